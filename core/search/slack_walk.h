// SlackWalk and SlackSearch: search with a slack bound in pieces, each of which ends where memory has been requested
// (search/best_first_walk.h). A piece is a step: its edges have been requested in the piece before, and its codes
// are compared in the piece behind it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>

#include "search/slack.h"
#include "search/walk_steps.h"

namespace gannet {

/// The bound that lies `share` of a distance beyond it, at most at the end of the range.
inline float slack_bound(float distance, double share) {
  const double value = static_cast<double>(distance);
  return static_cast<float>(
      std::min(value + share * std::fabs(value), double{std::numeric_limits<float>::max()}));
}

/// The same of the distances that a walk compares.
inline uint32_t slack_bound(const Codes& codes, uint32_t distance, double share) {
  if (codes.scaled() != nullptr) return in_order(slack_bound(out_of_order(distance), share));
  if (codes.wide()) return std::bit_cast<uint32_t>(slack_bound(std::bit_cast<float>(distance), share));
  return static_cast<uint32_t>(std::min<double>(distance * (1 + share), UINT32_MAX));
}

/// Of a squared distance, by how much of it a bound lies beyond it.
inline double share_of(float slack) { return double{slack} * (2 + double{slack}); }

/// One walk, as search/slack.h describes it.
class SlackWalk {
 public:
  SlackWalk(const Codes& codes, const SearchGraph& graph, const Admission& admission,
            SearchWorkspace& workspace, uint32_t k, double share, uint32_t length)
      : list(workspace.keys.data(), length),
        codes_(codes),
        graph_(graph),
        admission_(admission),
        workspace_(workspace),
        k_(k),
        share_(share) {}

  Beam list;
  SearchCounts counts = {};

  void start() {
    compare_starts([this] { narrow(); });
  }

  /// The same of a trace for fronts.
  void start(std::span<const SlackFront> fronts) {
    compare_starts([&] { narrow(fronts); });
  }

  /// How many rows of the list lie within the bound.
  uint32_t near() const {
    uint32_t end = list.size();
    while (end > sure_ && RowKey::distance(list.key(end - 1)) >= bound_) --end;
    return end;
  }

  /// Chooses the row of the next step, if there is one, and requests its edges; false where that was the last step.
  bool choose() {
    narrow();
    row_ = list.pop_within(bound_, sure_);
    if (row_ != kNoRow) prefetch_edges(graph_, row_, workspace_.level);
    return row_ != kNoRow || steps_[turn_ ^ 1].count != 0;
  }

  /// Expands that row and compares the rows of the step before.
  void step() {
    Step& requested = steps_[turn_];
    Step& arrived = steps_[turn_ ^ 1];
    requested.count = 0;
    if (row_ != kNoRow) request(row_, requested);
    compare(arrived.rows, arrived.count);
    turn_ ^= 1;
  }

  /// Goes on for the fronts together; found(front) says of one that has come to a stop whether its next one is
  /// wanted.
  template <class Found>
  void trace(std::span<SlackFront> fronts, const Found& found) {
    for (;; turn_ ^= 1) {
      uint32_t open = 0;
      bool all_go = true;
      for (SlackFront& front : fronts) {
        if (front.slacks.empty()) continue;
        ++open;
        all_go &= goes(front);
      }
      if (open == 0) return;
      Step& requested = steps_[turn_];
      Step& arrived = steps_[turn_ ^ 1];
      requested.count = 0;
      if (all_go) {
        request(list.pop(), requested);
      } else if (arrived.count == 0) {
        for (SlackFront& front : fronts) {
          while (!front.slacks.empty() && !goes(front))
            front.slacks = found(front) ? front.slacks.subspan(1) : front.slacks.last(0);
        }
      }
      compare(arrived.rows, arrived.count);
      narrow(fronts);
    }
  }

  /// How many rows of the list lie within the bound of a front.
  uint32_t near(const SlackFront& front) const {
    const uint32_t bound = bound_of(front.k, front.slacks.front());
    uint32_t end = list.size();
    while (end > front.k && RowKey::distance(list.key(end - 1)) >= bound) --end;
    return end;
  }

 private:
  static constexpr size_t kFirstStarts = 32;

  /// Compares twice as many starts at a time as before, so that most lie beyond the bound of those before them: to let 640
  /// into the list took half of a walk's time.
  template <class Narrow>
  void compare_starts(const Narrow& narrow_bound) {
    const bool from_groups = workspace_.from_groups && workspace_.entries.exist();
    if (!from_groups && !workspace_.covering.empty()) return compare_covering(narrow_bound);
    std::span<const uint32_t> starts = choose_starts(codes_, graph_, from_groups, workspace_, counts);
    const size_t most = workspace_.candidates.size();
    for (size_t some = std::min(kFirstStarts, most); !starts.empty(); some = std::min(2 * some, most)) {
      some = std::min(some, starts.size());
      const uint32_t count = enter(starts.data(), static_cast<uint32_t>(some), workspace_.candidates.data());
      compare(workspace_.candidates.data(), count);
      starts = starts.subspan(some);
      narrow_bound();
    }
  }

  /// The same of covering heads, of which those beyond the bound are not noted as met: few are met again.
  template <class Narrow>
  void compare_covering(const Narrow& narrow_bound) {
    const std::span<const uint32_t> heads = workspace_.covering;
    const size_t most = workspace_.candidates.size();
    uint32_t* const rows = workspace_.candidates.data();
    uint32_t* const distances = workspace_.code_distances.data();
    size_t some = std::min(kFirstStarts, most);
    for (size_t begin = 0; begin < heads.size(); begin += some, some = std::min(2 * some, most)) {
      some = std::min(some, heads.size() - begin);
      const auto count = static_cast<uint32_t>(some);
      counts.distances += count;
      workspace_.compared(count, list.size());
      if (workspace_.covering_codes != nullptr) {
        std::iota(rows, rows + some, static_cast<uint32_t>(begin));
        workspace_.covering_codes->walk_distances(workspace_.code.data(), rows, count, distances);
      } else {
        codes_.walk_distances(workspace_.code.data(), heads.data() + begin, count, distances);
      }
      uint32_t near = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (distances[i] >= bound_ || enter(heads.data() + begin + i, 1, rows + near) == 0) continue;
        distances[near++] = distances[i];
      }
      list.insert(distances, rows, near);
      narrow_bound();
    }
  }

  /// Rows whose codes are on their way.
  struct Step {
    uint32_t count = 0;
    uint32_t rows[ANN_DEGREE_MAX];
  };

  /// Where every row of the list may be returned.
  uint32_t bound_of(uint32_t k, float slack) const {
    if (list.size() < k) return UINT32_MAX;
    return slack_bound(codes_, RowKey::distance(list.key(k - 1)), share_of(slack));
  }

  /// Whether a walk with the next slack of a front would go on to the nearest row that waits.
  bool goes(const SlackFront& front) const {
    const uint32_t place = list.first_waiting();
    if (place == list.size()) return false;
    return place < front.k || RowKey::distance(list.key(place)) < bound_of(front.k, front.slacks.front());
  }

  /// Expands a row: notes those that it leads to and requests their codes.
  void request(uint32_t row, Step& step) {
    ++counts.expansions;
    const AdjacencyRow edges = graph_.touched_row(row, workspace_.level);
    step.count = enter(edges.targets, edges.length, step.rows);
    for (uint32_t i = 0; i < step.count; ++i) prefetch_code(codes_, step.rows[i]);
    const uint32_t next = list.peek();
    if (next != kNoRow) prefetch_edges(graph_, next, workspace_.level);
  }

  /// Leaves those rows that are met for the first time and may be walked in `fresh`; how many.
  uint32_t enter(const uint32_t* rows, uint32_t count, uint32_t* fresh) {
    const uint32_t met = workspace_.visited.enter(rows, count, fresh);
    return admission_.walks_all() ? met : admission_.keep_walked(fresh, met);
  }

  void compare(uint32_t* rows, uint32_t count) {
    counts.distances += count;
    workspace_.compared(count, list.size());
    uint32_t* distances = workspace_.code_distances.data();
    codes_.walk_distances(workspace_.code.data(), rows, count, distances);
    // The others never serve: the bound does not grow.
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
      rows[kept] = rows[i];
      distances[kept] = distances[i];
      kept += distances[i] < bound_ ? 1 : 0;
    }
    list.insert(distances, rows, kept);
  }

  /// Draws the bound tighter.
  void narrow(std::span<const SlackFront> fronts) {
    bound_ = 0;
    for (const SlackFront& front : fronts) {
      if (!front.slacks.empty()) bound_ = std::max(bound_, bound_of(front.k, front.slacks.back()));
    }
  }
  void narrow() {
    const uint32_t place = place_of_last_answer();
    if (place == list.size()) return;
    sure_ = place + 1;
    bound_ = slack_bound(codes_, RowKey::distance(list.key(place)), share_);
  }

  /// The place of the k-th row that may be returned; list.size() where there are fewer.
  uint32_t place_of_last_answer() const {
    if (admission_.answers_all()) return std::min(k_ - 1, list.size());
    uint32_t found = 0;
    for (uint32_t place = 0; place < list.size(); ++place) {
      found += admission_.answers(RowKey::row(list.key(place))) ? 1 : 0;
      if (found == k_) return place;
    }
    return list.size();
  }

  const Codes& codes_;
  const SearchGraph& graph_;
  const Admission& admission_;
  SearchWorkspace& workspace_;
  uint32_t k_;
  double share_;                 // of a squared distance, which the bound lies beyond it
  uint32_t bound_ = UINT32_MAX;  // only nearer rows are expanded,
  uint32_t sure_ = UINT32_MAX;   // and so many first ones, up to the last answer
  uint32_t row_ = kNoRow;        // chosen
  uint32_t turn_ = 0;            // the step that requests; the other one's codes are on their way
  Step steps_[2];
};

/// One search, which leaves its answers in workspace.neighbors.
class SlackSearch {
 public:
  SlackSearch(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
              const PreparedQuery& query, const Admission& admission, uint32_t k, float slack,
              SearchWorkspace& workspace)
      : SlackSearch(dataset, codes, graph, query, admission, k, slack, std::min(slack_list(k), codes.rows()),
                    workspace) {}
  SlackSearch(const SlackSearch&) = delete;

  /// Does the next piece; false where that was the last.
  bool go_on() {
    switch (next_) {
      case Piece::kStart:
        walk_.start();
        choose();
        return true;
      case Piece::kStep:
        walk_.step();
        choose();
        return true;
      case Piece::kReport:
        report();
        return false;
    }
    return false;
  }

  /// Does all of them, with the thread for itself.
  void run() {
    while (go_on()) continue;
  }

  uint32_t found() const { return found_; }
  const SearchCounts& counts() const { return walk_.counts; }

 private:
  enum class Piece { kStart, kStep, kReport };

  SlackSearch(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
              const PreparedQuery& query, const Admission& admission, uint32_t k, float slack,
              uint32_t length, SearchWorkspace& workspace)
      : dataset_(dataset),
        codes_(codes),
        query_(query),
        admission_(admission),
        k_(k),
        workspace_(begin_walk(codes, query, admission, length, workspace)),
        cleared_(workspace.visited),
        walk_(codes, graph, admission_, workspace, k, share_of(slack), length) {}

  void choose() {
    next_ = Piece::kStep;
    if (walk_.choose()) return;
    compared_ = choose_again(dataset_, codes_, walk_.list, walk_.near(), admission_, k_, workspace_);
    next_ = Piece::kReport;
  }
  void report() {
    compare_again(dataset_, codes_, query_, compared_, workspace_, walk_.counts);
    found_ = report_nearest(dataset_, compared_, k_, workspace_);
  }

  const Dataset& dataset_;
  const Codes& codes_;
  PreparedQuery query_;
  Admission admission_;
  uint32_t k_;
  SearchWorkspace& workspace_;
  VisitedCleared cleared_;
  SlackWalk walk_;
  Piece next_ = Piece::kStart;
  uint32_t compared_ = 0;  // rows as stored
  uint32_t found_ = 0;
};

}  // namespace gannet

#include "graph/covering_heads.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "base/row_loops.h"
#include "graph/long_edges.h"
#include "traverse/beam.h"

namespace gannet {
namespace {

constexpr uint32_t kHops = 2;      // at first,
constexpr uint32_t kHopsMost = 4;  // and where too many heads would be needed
/// Candidates by close heads, at most. What is left of them serves where it is at most so many times what is left of
/// those by near ones.
constexpr uint32_t kCloseCandidates = 4 * kCoveringMost;
constexpr uint32_t kCloseMost = 2;
constexpr uint32_t kWordBits = 32;
/// Heads whose neighbours are read between two questions to the monitor,
constexpr uint64_t kStepsAtOnce = 4096;
/// and in all for one number of steps: 25 to 50 times as many edges.
constexpr uint64_t kStepsMost = 1 << 20;

/// A walk that looks for a head: rows of its list, and rows that it expands at most.
constexpr uint32_t kWalkList = 16;
constexpr uint32_t kWalkSteps = 64;
/// Of a head's edges one in so many leads to a nearer row than that by which its surroundings are measured,
constexpr uint32_t kNearShare = 8;
/// and a row that is more than so many times as far as that one, by squared distance, is taken to be of another
/// island; so is a head beside the nearest one.
constexpr double kNearMost = 2.5;
/// Heads about one, of which a central one is chosen: by squared distance to that one at most so many times as far as
/// the nearest of them, since others may be of another island.
constexpr uint32_t kSamples = 16;
constexpr double kCentreMost = 1.8;
constexpr uint64_t kCentresAtOnce = 16;
/// Candidates that are tried at once, by all threads.
constexpr uint32_t kTriedAtOnce = 64;
/// Where so many and more are kept, this share of them at most is near one before: else there are no islands, but rows that
/// are hard to find.
constexpr uint32_t kJudged = 512;
constexpr double kHardMost = 0.5;

constexpr uint32_t words_of(uint32_t degree) { return (degree + kWordBits - 1) / kWordBits; }

/// Which heads are near each other: with edges in both directions and a third head to which both have such edges;
/// close, where neither has one that is much nearer.
enum class Near { kAny, kClose };

/// The heads near each.
class HeadNeighbors {
 public:
  HeadNeighbors(const SearchGraph& graph, const Codes& codes, const Execution& execution)
      : graph_(graph),
        codes_(codes),
        words_(words_of(graph.degree)),
        numbers_(filled_array<uint32_t>(execution, graph.rows, kNoRow)),
        mutual_(filled_array<uint32_t>(execution, graph.heads.size() * words_, 0u)),
        near_(execution.memory, graph.heads.size() * graph.degree),
        counts_(execution.memory, graph.heads.size()),
        close_(execution.memory, graph.heads.size()),
        nearest_(execution.memory, graph.heads.size()),
        code_(execution.memory, execution.threads * codes.stride()) {
    serial_for(execution, graph.heads.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t head = begin; head < end; ++head)
        numbers_[graph.heads[head]] = static_cast<uint32_t>(head);
    });
    for_each_head(execution, [&](uint32_t head, uint32_t worker) { mark_mutual(head, worker); });
    for_each_head(execution, [&](uint32_t head, uint32_t worker) { list_near(head, worker); });
  }

  /// Their numbers.
  std::span<const uint32_t> of(uint32_t head, Near near) const {
    return {near_.data() + uint64_t{head} * graph_.degree,
            near == Near::kClose ? close_[head] : counts_[head]};
  }

 private:
  template <class Mark>
  void for_each_head(const Execution& execution, const Mark& mark) const {
    const uint64_t grain = items_per_task(uint64_t{graph_.degree} * graph_.degree, kRowsAtOnce);
    parallel_for(execution, graph_.heads.size(), grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t head = begin; head < end; ++head) mark(static_cast<uint32_t>(head), worker);
    });
  }

  /// Whether test(number of the target) holds for a mutual edge; asked up to the first.
  template <class Test>
  bool any_mutual(uint32_t head, const Test& test) const {
    const uint32_t* targets = graph_.row(graph_.heads[head]).targets;
    for (uint32_t word = 0; word < words_; ++word) {
      for (uint32_t left = mutual_[uint64_t{head} * words_ + word]; left != 0; left &= left - 1) {
        const uint32_t rank = word * kWordBits + static_cast<uint32_t>(std::countr_zero(left));
        if (test(numbers_[targets[rank]])) return true;
      }
    }
    return false;
  }

  /// The first that reads these rows.
  void mark_mutual(uint32_t head, uint32_t worker) {
    const uint32_t number = graph_.heads[head];
    const AdjacencyRow row = graph_.touched_row(number);
    uint32_t neighbors[ANN_DEGREE_MAX];
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < row.length && row.targets[rank] != kNoRow; ++rank) {
      const uint32_t target = row.targets[rank];
      if (numbers_[target] == kNoRow) continue;
      neighbors[count++] = target;
      const AdjacencyRow back = graph_.touched_row(target);
      if (std::find(back.begin(), back.end(), number) != back.end())
        mutual_[uint64_t{head} * words_ + rank / kWordBits] |= 1u << rank % kWordBits;
    }
    uint32_t distances[ANN_DEGREE_MAX];
    compare(head, neighbors, count, worker, distances);
    nearest_[head] = count == 0 ? 0 : *std::min_element(distances, distances + count);
  }

  void compare(uint32_t head, const uint32_t* rows, uint32_t count, uint32_t worker, uint32_t* distances) {
    uint8_t* const code = code_.data() + worker * codes_.stride();
    codes_.gather(&graph_.heads[head], 1, code);
    codes_.distances(code, rows, count, distances);
  }

  void list_near(uint32_t head, uint32_t worker) {
    uint32_t neighbors[ANN_DEGREE_MAX];
    uint32_t rows[ANN_DEGREE_MAX];
    uint32_t count = 0;
    any_mutual(head, [&](uint32_t neighbor) {
      rows[count] = graph_.heads[neighbor];
      neighbors[count++] = neighbor;
      return false;
    });
    uint32_t distances[ANN_DEGREE_MAX];
    compare(head, rows, count, worker, distances);
    const auto is_neighbor = [&](uint32_t other) {
      return std::find(neighbors, neighbors + count, other) != neighbors + count;
    };
    uint32_t* const near = near_.data() + uint64_t{head} * graph_.degree;
    uint32_t others[ANN_DEGREE_MAX];
    uint16_t close = 0;
    uint16_t other = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (!any_mutual(neighbors[i], is_neighbor)) continue;
      const uint32_t least = std::min(nearest_[head], nearest_[neighbors[i]]);
      const bool is_close = codes_.value_of(distances[i]) <= kNearMost * codes_.value_of(least);
      (is_close ? near[close++] : others[other++]) = neighbors[i];
    }
    std::copy_n(others, other, near + close);
    counts_[head] = close + other;
    close_[head] = close;
  }

  const SearchGraph& graph_;
  const Codes& codes_;
  uint32_t words_;
  Array<uint32_t> numbers_;  // [rows] of heads, kNoRow of others
  Array<uint32_t> mutual_;   // [heads, words] a bit an edge: the target has one back
  Array<uint32_t> near_;     // [heads, degree] numbers of heads, close ones first,
  Array<uint16_t> counts_;   // [heads] so many of each,
  Array<uint16_t> close_;    // [heads] and of close ones
  Array<uint32_t> nearest_;  // [heads] the distance of the nearest one that an edge leads to
  Array<uint8_t> code_;      // [threads, stride]
};

/// A head, the first, and some of those about it.
struct Surroundings {
  uint32_t count = 0;
  uint32_t heads[kSamples];
};

/// Chooses heads one after the other, each of which covers those within some steps.
class Cover {
 public:
  Cover(const HeadNeighbors& neighbors, uint32_t heads, const Execution& execution)
      : neighbors_(neighbors),
        execution_(execution),
        front_(execution.memory, heads),
        reached_(execution.memory, heads),
        covered_(execution.memory, heads) {}

  /// Those of as few steps as do with `most` heads; none where that takes too many steps, or too many heads with the
  /// largest number.
  Array<Surroundings> choose(Near near, uint32_t hops, uint32_t hops_most, size_t most) {
    near_ = near;
    Array<Surroundings> chosen(execution_.memory, std::min<size_t>(covered_.size(), most));
    for (; hops <= hops_most; ++hops) {
      uint32_t count = 0;
      if (!choose(hops, chosen, count)) continue;
      return Array<Surroundings>::front(chosen, count, execution_.memory);
    }
    return {};
  }

 private:
  /// False where they are more than there is room for, or take too many steps.
  bool choose(uint32_t hops, Array<Surroundings>& chosen, uint32_t& count) {
    count = 0;
    steps_ = 0;
    serial_for(execution_, covered_.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      std::fill(reached_.data() + begin, reached_.data() + end, kNoRow);
      std::fill(covered_.data() + begin, covered_.data() + end, uint8_t{0});
    });
    for (uint32_t head = 0; head < covered_.size(); ++head) {
      if (covered_[head] != 0) continue;
      if (count == chosen.size() || steps_ > kStepsMost) return false;
      chosen[count++] = cover_from(head, hops);
    }
    return true;
  }

  /// Covers the heads within `hops` steps. Those about it are these, or those within kHops steps.
  Surroundings cover_from(uint32_t head, uint32_t hops) {
    uint32_t begin = 0;
    uint32_t end = 0;
    const auto reach = [&](uint32_t other) {
      if (reached_[other] == head) return;
      reached_[other] = head;
      front_[end++] = other;
    };
    reach(head);
    uint32_t covered = 0;
    for (uint32_t hop = 0; hop < std::max(hops, kHops); ++hop) {
      for (const uint32_t step_end = end; begin < step_end; ++begin) {
        if (steps_++ % kStepsAtOnce == 0) execution_.check();
        for (const uint32_t other : neighbors_.of(front_[begin], near_)) reach(other);
      }
      if (hop < hops) covered = end;
    }
    for (uint32_t i = 0; i < covered; ++i) covered_[front_[i]] = 1;
    Surroundings made;
    made.count = std::min(end, kSamples);
    for (uint32_t i = 0; i < made.count; ++i) made.heads[i] = front_[uint64_t{i} * end / made.count];
    return made;
  }

  const HeadNeighbors& neighbors_;
  const Execution& execution_;
  Array<uint32_t> front_;    // [heads] those that one reaches, in order of steps
  Array<uint32_t> reached_;  // [heads] the head from which each was reached last
  Array<uint8_t> covered_;   // [heads]
  Near near_ = Near::kAny;
  uint64_t steps_ = 0;
};

/// Chooses the most central of the heads about one: that with the least sum of squared distances to all, which is the
/// one nearest to their mean.
class Centres {
 public:
  Centres(const SearchGraph& graph, const Codes& codes, const Execution& execution)
      : graph_(graph),
        codes_(codes),
        execution_(execution),
        code_(execution.memory, execution.threads * codes.stride()) {}

  /// The rows of all, each once.
  Array<uint32_t> of(const Array<Surroundings>& all) {
    Array<uint32_t> chosen(execution_.memory, all.size());
    parallel_for(execution_, all.size(), kCentresAtOnce, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i) chosen[i] = graph_.heads[centre_of(all[i], worker)];
    });
    Array<uint8_t> is_chosen = filled_array<uint8_t>(execution_, graph_.rows, uint8_t{0});
    uint32_t count = 0;
    for (const uint32_t row : chosen) {
      if (is_chosen[row] == 0) chosen[count++] = row;
      is_chosen[row] = 1;
    }
    return Array<uint32_t>::front(chosen, count, execution_.memory);
  }

 private:
  uint32_t centre_of(const Surroundings& about, uint32_t worker) {
    uint32_t rows[kSamples] = {};
    for (uint32_t i = 0; i < about.count; ++i) rows[i] = graph_.heads[about.heads[i]];
    double from_first[kSamples];
    compare(rows, 0, about.count, worker, from_first);
    double bound = std::numeric_limits<double>::infinity();
    // Some may have the code of the first.
    for (uint32_t i = 1; i < about.count; ++i)
      if (from_first[i] > 0) bound = std::min(bound, kCentreMost * from_first[i]);
    uint32_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (uint32_t i = 0; i < about.count; ++i) {
      if (i > 0 && from_first[i] > bound) continue;
      double distances[kSamples];
      compare(rows, i, about.count, worker, distances);
      const double sum = std::accumulate(distances, distances + about.count, 0.0);
      if (sum >= least) continue;
      least = sum;
      best = i;
    }
    return about.heads[best];
  }

  void compare(const uint32_t* rows, uint32_t one, uint32_t count, uint32_t worker, double* distances) {
    uint8_t* const code = code_.data() + worker * codes_.stride();
    uint32_t of_codes[kSamples];
    codes_.gather(rows + one, 1, code);
    codes_.distances(code, rows, count, of_codes);
    std::transform(of_codes, of_codes + count, distances,
                   [&](uint32_t distance) { return codes_.value_of(distance); });
  }

  const SearchGraph& graph_;
  const Codes& codes_;
  const Execution& execution_;
  Array<uint8_t> code_;  // [threads, stride]
};

/// Leaves out candidates that walks find, each from the nearest covering head before.
class Thinning {
 public:
  Thinning(const SearchGraph& graph, const Codes& codes, std::span<const uint32_t> candidates, size_t most,
           Near near, const Execution& execution)
      : graph_(graph),
        codes_(codes),
        candidates_(candidates),
        hard_most_(near == Near::kAny ? kHardMost : 1),
        execution_(execution),
        kept_(execution.memory, std::min(candidates.size(), most)),
        codes_tried_(execution.memory, kTriedAtOnce * codes.stride()),
        distances_(execution.memory, kept_.size() * execution.threads),
        among_tried_(execution.memory, kTriedAtOnce * kTriedAtOnce) {}

  /// Those that are left, ascending; none where they are more than `most`, or lie in no islands.
  Array<uint32_t> run() {
    for (size_t begin = 0; begin < candidates_.size(); begin += kTriedAtOnce) {
      const auto some = static_cast<uint32_t>(std::min<size_t>(candidates_.size() - begin, kTriedAtOnce));
      const uint32_t* const rows = &candidates_[begin];
      const uint32_t before = count_;
      Sought tried[kTriedAtOnce];
      parallel_for(execution_, some, 1, [&](uint64_t i, uint64_t, uint32_t worker) {
        codes_.gather(&rows[i], 1, code_of(i));
        tried[i] = seek({rows[i], code_of(i)}, before, worker);
        codes_.distances(code_of(i), rows, static_cast<uint32_t>(i), among_tried(i));
      });
      bool is_kept[kTriedAtOnce] = {};
      for (uint32_t i = 0; i < some; ++i) {
        seek_among_tried({rows[i], code_of(i)}, rows, i, is_kept, &tried[i]);
        if (tried[i].is_found) continue;
        if (count_ == kept_.size()) return {};
        hard_ += tried[i].is_near ? 1 : 0;
        kept_[count_++] = rows[i];
        is_kept[i] = true;
      }
      if (count_ >= kJudged && hard_ > hard_most_ * count_) return {};
    }
    Array<uint32_t> rows = Array<uint32_t>::front(kept_, count_, execution_.memory);
    std::sort(rows.begin(), rows.end());
    return rows;
  }

 private:
  /// What a walk looks for.
  struct Walk {
    uint32_t row;
    const uint8_t* code;
  };

  /// Whether a walk finds a head from the nearest of some rows.
  struct Sought {
    uint32_t distance = UINT32_MAX;  // to that one
    bool is_near = false;            // which may be of the same island
    bool is_found = false;
  };

  uint8_t* code_of(uint64_t place) { return codes_tried_.data() + place * codes_.stride(); }
  uint32_t* among_tried(uint64_t place) { return among_tried_.data() + place * kTriedAtOnce; }

  /// From the first `end` that are kept.
  Sought seek(const Walk& walk, uint32_t end, uint32_t worker) {
    if (end == 0) return {};
    uint32_t* const distances = distances_.data() + kept_.size() * worker;
    codes_.distances(walk.code, kept_.data(), end, distances);
    const uint32_t* const nearest = std::min_element(distances, distances + end);
    return seek_from(walk, kept_[nearest - distances], *nearest);
  }

  /// From those that have been kept since, if one of them is nearer: of the candidates `rows` that are tried at once
  /// those before this one, whose distances are there.
  void seek_among_tried(const Walk& walk, const uint32_t* rows, uint32_t place, const bool* is_kept,
                        Sought* sought) {
    uint32_t nearest = kNoRow;
    uint32_t least = sought->distance;
    for (uint32_t other = 0; other < place; ++other) {
      const uint32_t distance = among_tried(place)[other];
      if (!is_kept[other] || distance >= least) continue;
      least = distance;
      nearest = rows[other];
    }
    if (nearest != kNoRow) *sought = seek_from(walk, nearest, least);
  }

  Sought seek_from(const Walk& walk, uint32_t row, uint32_t distance) const {
    const bool near = is_near(walk, distance);
    return {distance, near, near && finds(walk, row, distance)};
  }

  /// Whether a row at this distance may be of the same island. A walk can come from another one by a single edge, which
  /// walks of queries from further islands do not come by.
  bool is_near(const Walk& walk, uint32_t distance) const {
    const AdjacencyRow edges = graph_.touched_row(walk.row);
    const auto count = static_cast<uint32_t>(std::find(edges.begin(), edges.end(), kNoRow) - edges.begin());
    if (count == 0) return false;
    uint32_t distances[ANN_DEGREE_MAX];
    codes_.distances(walk.code, edges.targets, count, distances);
    std::nth_element(distances, distances + count / kNearShare, distances + count);
    return codes_.value_of(distance) <= kNearMost * codes_.value_of(distances[count / kNearShare]);
  }

  /// Whether best-first search from a row at this distance meets the one that is sought.
  bool finds(const Walk& walk, uint32_t from, uint32_t distance) const {
    uint64_t keys[Beam::room(kWalkList)];
    Beam list(keys, kWalkList);
    list.insert(&distance, &from, 1);
    for (uint32_t step = 0; step < kWalkSteps; ++step) {
      const uint32_t row = list.pop();
      if (row == kNoRow) return false;
      uint32_t rows[ANN_DEGREE_MAX];
      uint32_t distances[ANN_DEGREE_MAX];
      uint32_t count = 0;
      for (const uint32_t target : graph_.touched_row(row)) {
        if (target == walk.row) return true;
        if (target == kNoRow) break;
        // A row that has left the list is too far to come back.
        if (!holds(list, target)) rows[count++] = target;
      }
      codes_.distances(walk.code, rows, count, distances);
      list.insert(distances, rows, count);
    }
    return false;
  }

  static bool holds(const Beam& list, uint32_t row) {
    for (uint32_t place = 0; place < list.size(); ++place)
      if (RowKey::row(list.key(place)) == row) return true;
    return false;
  }

  const SearchGraph& graph_;
  const Codes& codes_;
  std::span<const uint32_t> candidates_;  // rows
  double hard_most_;  // of candidates by near heads alone: whether there are islands is known then
  const Execution& execution_;
  Array<uint32_t> kept_;
  uint32_t count_ = 0;           // of those,
  uint32_t hard_ = 0;            // and of those that are near one before
  Array<uint8_t> codes_tried_;   // [kTriedAtOnce, stride]
  Array<uint32_t> distances_;    // [threads, kept_.size()]
  Array<uint32_t> among_tried_;  // [kTriedAtOnce, kTriedAtOnce] from a candidate to those before it
};

}  // namespace

Array<uint32_t> covering_heads(const SearchGraph& graph, const Codes& codes, const Execution& execution) {
  const auto heads = static_cast<uint32_t>(graph.heads.size());
  if (!graph.is_fixed() || heads <= graph.entries.size()) return {};
  const HeadNeighbors neighbors(graph, codes, execution);
  Cover cover(neighbors, heads, execution);
  Centres centres(graph, codes, execution);
  const auto thinned = [&](Near near, uint32_t hops, uint32_t hops_most, size_t candidates_most,
                           size_t most) {
    const Array<uint32_t> candidates = centres.of(cover.choose(near, hops, hops_most, candidates_most));
    return Thinning(graph, codes, {candidates.data(), candidates.size()}, most, near, execution).run();
  };
  Array<uint32_t> covering = thinned(Near::kAny, kHops, kHopsMost, kCoveringMost, kCoveringMost);
  if (covering.empty()) return covering;
  const size_t most = std::min<size_t>(kCloseMost * covering.size(), kCoveringMost);
  for (uint32_t hops = 1; hops <= kHops; ++hops) {
    Array<uint32_t> close = thinned(Near::kClose, hops, hops, kCloseCandidates, most);
    if (!close.empty()) return close;
  }
  return covering;
}

uint64_t covering_heads_bytes(uint64_t rows, uint32_t degree, size_t stride, uint32_t threads) {
  const uint64_t heads = rows / kHeadShare;
  const uint64_t most = std::min<uint64_t>(heads, kCloseCandidates);
  const uint64_t neighbors = rows * sizeof(uint32_t) +
                             heads * ((words_of(degree) + degree + 1) * sizeof(uint32_t) + 4) +
                             threads * stride;
  const uint64_t cover = heads * 9 + 2 * most * sizeof(Surroundings);
  const uint64_t centres = rows + threads * stride + 2 * most * sizeof(uint32_t);
  const uint64_t thinning = kTriedAtOnce * (stride + kTriedAtOnce * sizeof(uint32_t)) +
                            (uint64_t{threads} + 3) * kCoveringMost * sizeof(uint32_t);
  return neighbors + cover + centres + thinning + 20 * kAlignment;
}

}  // namespace gannet

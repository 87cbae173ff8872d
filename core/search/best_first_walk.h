// BestFirstWalk and BestFirstSearch: best-first search in pieces, each of which ends where memory has been requested.
//
// A search that goes on at once waits for that memory, for edges longer than for codes: which row is expanded
// next is not known before the rows of a step have been compared. So the CPU's batches let several searches of one
// thread take turns (search/batch_on_host.h). A step is two pieces,
//
//   compare   the rows of the step before; choose the nearest row that waits and request its edges
//   request   read those edges, and request the codes of the rows that have not been met
//
// and behind the last one come the rows as stored, requested in one piece and compared in the next. Nothing that a
// search finds or counts depends on the other searches that take turns.
#pragma once

#include <cstdint>

#include "search/best_first.h"
#include "search/walk_steps.h"

namespace gannet {

/// One walk, as search/best_first.h describes it.
class BestFirstWalk {
 public:
  BestFirstWalk(const Codes& codes, const SearchGraph& graph, const Admission& admission, uint32_t length,
                SearchWorkspace& workspace)
      : beam(workspace.keys.data(), length),
        codes_(codes),
        graph_(graph),
        admission_(admission),
        workspace_(workspace) {}

  Beam beam;
  SearchCounts counts = {};

  void start() {
    const std::span<const uint32_t> starts =
        choose_starts(codes_, graph_, workspace_.starts_from_groups(beam.capacity()), workspace_, counts);
    fresh_ = enter(starts.data(), static_cast<uint32_t>(starts.size()));
    compare();
  }

  /// Chooses the nearest row that waits and requests its edges; false where none does.
  bool choose() {
    row_ = beam.pop();
    if (row_ != kNoRow) prefetch_edges(graph_, row_, workspace_.level);
    return row_ != kNoRow;
  }

  /// Expands the row chosen: requests the codes of those rows that it leads to.
  void request() {
    ++counts.expansions;
    const AdjacencyRow edges = graph_.touched_row(row_, workspace_.level);
    fresh_ = enter(edges.targets, edges_read(edges.length, workspace_.edges_part));
    for (uint32_t i = 0; i < fresh_; ++i) prefetch_code(codes_, workspace_.candidates[i]);
  }

  void compare() {
    counts.distances += fresh_;
    workspace_.compared(fresh_, beam.size());
    codes_.walk_distances(workspace_.code.data(), workspace_.candidates.data(), fresh_,
                          workspace_.code_distances.data());
    beam.insert(workspace_.code_distances.data(), workspace_.candidates.data(), fresh_);
  }

  /// A whole step of a walk that has the thread for itself; false where no row waits. While it compares, the edges
  /// of the row that it would expand next are on their way.
  bool step() {
    row_ = beam.pop();
    if (row_ == kNoRow) return false;
    request();
    const uint32_t next = beam.peek();
    if (next != kNoRow) prefetch_edges(graph_, next, workspace_.level);
    compare();
    return true;
  }

 private:
  /// Leaves those rows in workspace.candidates that are met for the first time and may be walked; how many.
  uint32_t enter(const uint32_t* rows, uint32_t count) {
    const uint32_t met = workspace_.visited.enter(rows, count, workspace_.candidates.data());
    return admission_.walks_all() ? met : admission_.keep_walked(workspace_.candidates.data(), met);
  }

  const Codes& codes_;
  const SearchGraph& graph_;
  const Admission& admission_;
  SearchWorkspace& workspace_;
  uint32_t row_ = kNoRow;  // chosen
  uint32_t fresh_ = 0;     // rows in workspace.candidates
};

/// One search, which leaves its answers in workspace.neighbors.
class BestFirstSearch {
 public:
  BestFirstSearch(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                  const PreparedQuery& query, const Admission& admission, uint32_t k, uint32_t beam,
                  SearchWorkspace& workspace)
      : dataset_(dataset),
        codes_(codes),
        query_(query),
        admission_(admission),
        k_(k),
        workspace_(begin_walk(codes, query, admission, beam, workspace)),
        cleared_(workspace.visited),
        walk_(codes, graph, admission_, beam, workspace) {}
  BestFirstSearch(const BestFirstSearch&) = delete;

  /// Does the next piece; false where that was the last.
  bool go_on() {
    switch (next_) {
      case Piece::kStart:
        walk_.start();
        choose();
        return true;
      case Piece::kRequest:
        walk_.request();
        next_ = Piece::kCompare;
        return true;
      case Piece::kCompare:
        walk_.compare();
        choose();
        return true;
      case Piece::kReport:
        compare_again(dataset_, codes_, query_, compared_, workspace_, walk_.counts);
        found_ = report_nearest(dataset_, compared_, k_, workspace_);
        return false;
    }
    return false;
  }

  /// Does all of them, with the thread for itself.
  void run() {
    compare();
    found_ = report_nearest(dataset_, compared_, k_, workspace_);
  }

  /// The same, but leaves the distances of the compared rows in workspace.distances, in the list's order.
  void compare() {
    walk_.start();
    while (walk_.step()) continue;
    compared_ = choose_again(dataset_, codes_, walk_.beam, walk_.beam.size(), admission_, k_, workspace_);
    compare_again(dataset_, codes_, query_, compared_, workspace_, walk_.counts);
  }

  uint32_t compared() const { return compared_; }
  uint32_t found() const { return found_; }
  const SearchCounts& counts() const { return walk_.counts; }

 private:
  enum class Piece { kStart, kRequest, kCompare, kReport };

  void choose() {
    next_ = Piece::kRequest;
    if (walk_.choose()) return;
    compared_ = choose_again(dataset_, codes_, walk_.beam, walk_.beam.size(), admission_, k_, workspace_);
    next_ = Piece::kReport;
  }

  const Dataset& dataset_;
  const Codes& codes_;
  PreparedQuery query_;
  Admission admission_;
  uint32_t k_;
  SearchWorkspace& workspace_;
  VisitedCleared cleared_;
  BestFirstWalk walk_;
  Piece next_ = Piece::kStart;
  uint32_t compared_ = 0;  // rows as stored
  uint32_t found_ = 0;
};

}  // namespace gannet

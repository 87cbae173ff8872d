// The common parts of the CPU's walks: memory requested ahead, a table of visited rows that is left empty, and
// the answer that a list becomes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "search/best_first.h"
#include "traverse/row_key.h"
#include "traverse/visited.h"

namespace gannet {

/// Bytes of a code that are requested ahead. Behind them the hardware follows, which within the first lines
/// comes late.
inline constexpr size_t kPrefetched = 1024;

// Always inlined: gcc takes a function that does nothing but prefetch for one without an effect, and drops
// calls of it that it has not inlined before it asks.

[[gnu::always_inline]] inline void prefetch_code(const Codes& codes, uint32_t row) {
  const uint8_t* code = codes.walk_row(row);
  const size_t end = std::min(codes.walk_stride(), kPrefetched);
  for (size_t byte = 0; byte < end; byte += 64) __builtin_prefetch(code + byte);
}

[[gnu::always_inline]] inline void prefetch_row(const Dataset& dataset, uint32_t row) {
  const RowsView& rows = dataset.view();
  const uint8_t* const first = rows.row(row);
  const size_t end = std::min(size_t{rows.dim} * element_bytes(rows.element), kPrefetched);
  // Rows may start anywhere in a line.
  for (size_t byte = 0; byte < end; byte += 64) __builtin_prefetch(first + byte);
  __builtin_prefetch(first + end - 1);
}

[[gnu::always_inline]] inline void prefetch_edges(const SearchGraph& graph, uint32_t row, uint32_t level) {
  const AdjacencyRow edges = graph.adjacency().row(row, level);
  for (uint32_t i = 0; i < edges.length; i += 64 / sizeof(uint32_t)) __builtin_prefetch(edges.targets + i);
}

/// Leaves the table of visited rows empty for the next search, also when this one ends in an error.
class VisitedCleared {
 public:
  explicit VisitedCleared(Visited& visited) : visited_(visited) {}
  ~VisitedCleared() { visited_.clear(); }
  VisitedCleared(const VisitedCleared&) = delete;

 private:
  Visited& visited_;
};

/// Makes a workspace ready for a walk of one query: room for a list of `length`, the query's code, and the masked row
/// among those that have been met. Returns it.
SearchWorkspace& begin_walk(const Codes& codes, const PreparedQuery& query, const Admission& admission,
                            uint32_t length, SearchWorkspace& workspace);

/// The rows where a walk starts, for which the leaders of entry points may be compared.
inline std::span<const uint32_t> choose_starts(const Codes& codes, const SearchGraph& graph, bool from_groups,
                                               SearchWorkspace& workspace, SearchCounts& counts) {
  const EntryGroups& entries = workspace.entries;
  if (!from_groups) return {graph.entries.data(), graph.entries.size()};
  const uint32_t leaders = entries.leader_count();
  counts.distances += leaders;
  codes.walk_distances(workspace.code.data(), entries.leaders(), leaders, workspace.code_distances.data());
  return {workspace.starts.data(), entries.choose(workspace.code_distances.data(), workspace.starts.data())};
}

/// Leaves the first rerank_count() rows that may be returned, among the first `near` of a list, in workspace.rows and
/// the distances of their codes in workspace.distances, in the list's order, and requests them as they are stored where
/// they are to be compared once more; returns how many.
uint32_t choose_again(const Dataset& dataset, const Codes& codes, const Beam& beam, uint32_t near,
                      const Admission& admission, uint32_t k, SearchWorkspace& workspace);

/// Leaves the reported distances of the `count` rows that were so chosen in workspace.distances.
void compare_again(const Dataset& dataset, const Codes& codes, const PreparedQuery& query, uint32_t count,
                   SearchWorkspace& workspace, SearchCounts& counts);

/// compare_again for a walk that stops more than once: a row that was compared at an earlier stop is not
/// compared anew. Eight stops of a query of 960 columns compared as many rows as stored as the walk between
/// them did codes.
class CompareOnce {
 public:
  CompareOnce(const Dataset& dataset, const Codes& codes, const PreparedQuery& query,
              const Admission& admission, SearchWorkspace& workspace)
      : dataset_(dataset), codes_(codes), query_(query), admission_(admission), workspace_(workspace) {
    std::fill(std::begin(rows_), std::end(rows_), kNoRow);
  }

  /// As compare_again with the counts of the walk left alone.
  uint32_t compare(const Beam& beam, uint32_t near, uint32_t k);

 private:
  static constexpr uint32_t kPlaces = 2048;
  static constexpr uint32_t kFull = 1536;  // beyond, rows are compared anew at each stop
  static constexpr uint32_t kPiece = 64;

  /// Where a row is remembered, or will be.
  uint32_t place_of(uint32_t row) const {
    uint32_t place = (row * 0x9e3779b1u) >> 21;
    while (rows_[place] != kNoRow && rows_[place] != row) place = (place + 1) % kPlaces;
    return place;
  }
  void compare_piece(const uint32_t* rows, const uint32_t* at, uint32_t count);

  const Dataset& dataset_;
  const Codes& codes_;
  const PreparedQuery& query_;
  const Admission& admission_;
  SearchWorkspace& workspace_;
  uint32_t used_ = 0;
  uint32_t rows_[kPlaces];
  float distances_[kPlaces];
};

/// Leaves the k nearest of so many compared rows in workspace.neighbors, sorted; returns how many.
uint32_t report_nearest(const Dataset& dataset, uint32_t compared, uint32_t k, SearchWorkspace& workspace);

}  // namespace gannet

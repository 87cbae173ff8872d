// Adjacency: how the edges of a graph lie in memory. This file alone knows.
//
//   fixed rows     [rows, stride], kNoRow in unused places at the end of a row (CAGRA)
//   variable rows  row r is targets[offsets[r], offsets[r + 1]) (TSDG)
//   prefixes       edges of a row may be sorted so that its first ones are a fair row too. prefixes[r, level]
//                  is how many of them a search of that level reads (TSDG: edges with an occlusion factor of at
//                  most `level`), so that a search chooses its degree without a test for each edge
//   layers         a layer above the bottom one holds some of the rows below it; its row i is row base_rows[i]
//                  of the layer below (GGNN)
//
// On a CUDA device rows are fixed: a walk waits for memory twice a step, for the edges and for the rows that
// they lead to, and offsets would be a third time. A placement pads variable rows to the longest one.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "base/first_touch.h"
#include "base/memory.h"
#include "traverse/row_key.h"

namespace gannet {

/// The level of a search that reads all edges of a row.
inline constexpr uint32_t kWholeRows = UINT32_MAX;

/// A search may read only the first edges of each row: `part` of kAllEdges of them, rounded up.
inline constexpr uint32_t kAllEdges = 256;
constexpr uint32_t edges_read(uint32_t length, uint32_t part) {
  return (length * part + kAllEdges - 1) / kAllEdges;
}

/// The places of a row of fixed rows, [rows, stride].
constexpr const uint32_t* fixed_row(const uint32_t* targets, uint32_t stride, uint32_t row) {
  return targets + uint64_t{row} * stride;
}

/// The edges of one row, best first. kNoRow may end them early.
struct AdjacencyRow {
  const uint32_t* targets;
  uint32_t length;

  const uint32_t* begin() const { return targets; }
  const uint32_t* end() const { return targets + length; }
};

/// The edges as a walk reads them. Plain data: part of the arguments of kernels.
struct Adjacency {
  const uint32_t* targets = nullptr;   // [rows, stride], or [offsets[rows]]
  const uint64_t* offsets = nullptr;   // [rows + 1], or null: fixed rows
  const uint16_t* prefixes = nullptr;  // [rows, levels], or null: every search reads whole rows
  uint32_t rows = 0;
  uint32_t stride = 0;  // places of the longest row
  uint32_t levels = 0;

  /// The places of a row where rows are fixed.
  constexpr const uint32_t* fixed_row(uint32_t row) const { return gannet::fixed_row(targets, stride, row); }

  AdjacencyRow row(uint32_t row) const {
    if (offsets == nullptr) return {fixed_row(row), stride};
    const uint64_t begin = offsets[row];
    return {targets + begin, static_cast<uint32_t>(offsets[uint64_t{row} + 1] - begin)};
  }

  /// The edges of a row that a search of a level reads.
  AdjacencyRow row(uint32_t row, uint32_t level) const {
    AdjacencyRow whole = this->row(row);
    if (prefixes != nullptr && level < levels) whole.length = prefixes[uint64_t{row} * levels + level];
    return whole;
  }
};

/// Fixed rows that a phase of a build writes.
struct EdgeTable {
  uint32_t* edges;  // [rows, degree] kNoRow in unused places at the end of a row
  uint32_t rows;
  uint32_t degree;

  constexpr uint32_t* row(uint32_t row) const { return edges + uint64_t{row} * degree; }
  constexpr uint32_t& edge(uint32_t row, uint32_t rank) const { return this->row(row)[rank]; }
  constexpr uint64_t places() const { return uint64_t{rows} * degree; }
};

/// The owner of one layer's edges.
struct GraphLayer {
  Array<uint32_t> edges;      // [rows, degree], or [offsets[rows]]
  Array<uint64_t> offsets;    // [rows + 1], or empty: fixed rows
  Array<uint16_t> prefixes;   // [rows, levels], or empty
  Array<uint32_t> base_rows;  // [rows] of the layer below, or empty: the bottom layer
  uint32_t rows = 0;
  uint32_t degree = 0;  // places of the longest row
  uint32_t levels = 0;

  FirstTouch* touch = nullptr;  // called before edges over a mapped file are read

  Adjacency adjacency() const {
    return {edges.data(),
            offsets.empty() ? nullptr : offsets.data(),
            prefixes.empty() ? nullptr : prefixes.data(),
            rows,
            degree,
            levels};
  }
  bool is_fixed() const { return offsets.empty(); }

  AdjacencyRow row(uint32_t number) const { return adjacency().row(number); }
  /// The same for a walk, which may be the first to read them.
  AdjacencyRow touched_row(uint32_t number, uint32_t level = kWholeRows) const {
    const AdjacencyRow row = adjacency().row(number, level);
    if (touch != nullptr)
      touch->touch(static_cast<uint64_t>(row.targets - edges.data()) * sizeof(uint32_t),
                   row.length * sizeof(uint32_t));
    return row;
  }
  void touch_all(const Execution& execution = {}) const {
    if (touch != nullptr) touch->touch_all(execution);
  }

  /// For phases that write fixed rows.
  EdgeTable table() { return {edges.data(), rows, degree}; }
  void make_fixed(const Allocator& memory) { edges = Array<uint32_t>(memory, checked_product(rows, degree)); }

  uint64_t bytes() const { return edges.bytes() + offsets.bytes() + prefixes.bytes() + base_rows.bytes(); }
};

}  // namespace gannet

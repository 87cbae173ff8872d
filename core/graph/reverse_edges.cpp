// CAGRA's reverse edges and merge (section III-B2).
//
// Reverse lists are collected by counting: how many edges point to each row, where its list begins,
// then the sources themselves, packed with their rank so that one sort of each short list puts it in
// order whatever thread came first.
//
// Bytes: 8 written for each edge, to a line of its own. Counting is a locked instruction, which waits for the stores
// before it; so the places of a row's edges are requested when they are known, and written two rows later.

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/row_loops.h"
#include "graph/search_graph.h"

namespace gannet {
namespace {

constexpr uint64_t kSortedAtOnce = 128;  // nearly all reverse lists; hubs have longer ones

/// The first `degree` distinct rows of f0 r0 f1 r1 ..., `self` left out.
void merge_row(uint32_t self, const uint32_t* forward, uint32_t forward_count, const uint64_t* reverse,
               uint32_t reverse_count, uint32_t degree, uint32_t* merged) {
  uint32_t count = 0;
  uint32_t taken[ANN_DEGREE_MAX];
  std::fill(taken, taken + round_up(degree, 8), kNoRow);
  const auto add = [&](uint32_t row) {
    if (count == degree || row == self) return;
    // Whole groups without a way out in between: the compiler makes four compares one.
    uint32_t there = 0;
    for (uint32_t first = 0; first < count; first += 8) {
      for (uint32_t i = 0; i < 8; ++i) there |= taken[first + i] == row ? 1 : 0;
    }
    if (there == 0) taken[count++] = row;
  };
  for (uint32_t i = 0; i < std::max(forward_count, reverse_count); ++i) {
    if (i < forward_count) add(forward[i]);
    if (i < reverse_count) add(static_cast<uint32_t>(reverse[i]));
  }
  std::copy_n(taken, degree, merged);
}

/// Writes the sources of all edges to the lists of their targets, which begin at `begins`; `counts` says how many of a
/// list are there. Each is packed as rank << 32 | source.
void scatter_sources(const uint32_t* edges, uint32_t rows, uint32_t degree, const Array<uint64_t>& begins,
                     Array<std::atomic<uint32_t>>& counts, uint64_t* sources, const Execution& execution) {
  constexpr uint32_t kLate = 2;  // rows between the request of places and their use
  parallel_for(execution, rows, rows_of_scattered(degree), [&](uint64_t begin, uint64_t end, uint32_t) {
    uint64_t* places[kLate + 1][ANN_DEGREE_MAX];
    for (uint64_t row = begin; row < end + kLate; ++row) {
      if (row < end) {
        uint64_t** const ahead = places[row % (kLate + 1)];
        for (uint32_t rank = 0; rank < degree; ++rank) {
          const uint32_t target = edges[row * degree + rank];
          if (target == kNoRow) continue;
          ahead[rank] = sources + begins[target] + counts[target].fetch_add(1, std::memory_order_relaxed);
          __builtin_prefetch(ahead[rank], 1);
        }
      }
      if (row < begin + kLate) continue;
      const uint64_t source = row - kLate;
      uint64_t* const* const known = places[source % (kLate + 1)];
      for (uint32_t rank = 0; rank < degree; ++rank) {
        if (edges[source * degree + rank] != kNoRow) *known[rank] = uint64_t{rank} << 32 | source;
      }
    }
  });
}

}  // namespace

void add_reverse_edges(Array<uint32_t>& edges, uint32_t rows, uint32_t degree, const Execution& execution) {
  const Allocator& memory = execution.memory;
  const uint64_t rows_per_task = rows_of_scattered(degree);
  Array<uint64_t> begins(memory, size_t{rows} + 1);
  Array<std::atomic<uint32_t>> counts = filled_array<std::atomic<uint32_t>>(execution, rows, 0u);
  parallel_for(execution, rows, rows_per_task, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t place = begin * degree; place < end * degree; ++place) {
      if (edges[place] != kNoRow) counts[edges[place]].fetch_add(1, std::memory_order_relaxed);
    }
  });
  place_by_counts(counts, begins, execution);
  Array<uint64_t> sources = filled_array<uint64_t>(execution, begins[rows], 0u);  // rank << 32 | source
  scatter_sources(edges.data(), rows, degree, begins, counts, sources.data(), execution);
  parallel_for(execution, rows, rows_per_task, [&](uint64_t begin, uint64_t end, uint32_t) {
    uint32_t forward[ANN_DEGREE_MAX];
    uint64_t sorted_before = begins[begin];
    for (uint64_t row = begin; row < end; ++row) {
      uint64_t* reverse = sources.data() + begins[row];
      const uint64_t total = begins[row + 1] - begins[row];
      // Hubs may lie side by side.
      if (begins[row + 1] - sorted_before > kRowsAtOnce) {
        execution.check();
        sorted_before = begins[row];
      }
      const uint64_t kept = std::min<uint64_t>(total, degree);
      uint64_t sorted[kSortedAtOnce];
      if (total <= kSortedAtOnce) {
        kernels().sort_keys(reverse, static_cast<uint32_t>(total), sorted);
        reverse = sorted;
      } else {
        sort_smallest(reverse, total, kept, execution);
      }
      uint32_t* merged = edges.data() + row * degree;
      std::copy_n(merged, degree, forward);
      const uint32_t forward_count =
          static_cast<uint32_t>(std::find(forward, forward + degree, kNoRow) - forward);
      merge_row(static_cast<uint32_t>(row), forward, forward_count, reverse, static_cast<uint32_t>(kept),
                degree, merged);
    }
  });
}

uint64_t reverse_edges_bytes(uint64_t rows, uint32_t degree) {
  const uint64_t begins_and_counts = sizeof(uint64_t) + sizeof(uint32_t);
  const uint64_t sources = degree * sizeof(uint64_t);
  return rows * (begins_and_counts + sources);
}

/// A slice of ranks is sorted from targets and sources to others; it has one rank at least. The scratch memory
/// of the sort hardly depends on their number.
uint64_t reverse_edges_device_bytes(uint64_t rows, uint32_t degree) {
  constexpr uint64_t kSorting = uint64_t{8} << 20;
  const uint64_t rank = rows * 4 * sizeof(uint32_t);
  return std::max(rank, std::min(rank * degree, kReverseEdgesDeviceBytes)) + kSorting;
}

}  // namespace gannet

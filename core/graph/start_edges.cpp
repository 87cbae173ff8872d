#include "graph/start_edges.h"

#include <algorithm>

#include "base/row_loops.h"
#include "graph/head_edges.h"

namespace gannet {
namespace {

constexpr uint64_t kHeadsPerTask = 64;

/// Heads by the start that is nearest to each, those of a start ascending.
class StartCells {
 public:
  StartCells(const Codes& codes, const SearchGraph& graph, const Execution& execution)
      : begins_(Array<uint32_t>::zeroed(execution.memory, graph.entries.size() + 1)),
        heads_(execution.memory, graph.heads.size()) {
    const auto starts = static_cast<uint32_t>(graph.entries.size());
    Array<uint32_t> start_of(execution.memory, heads_.size());
    Array<uint32_t> distances(execution.memory, size_t{starts} * execution.threads);
    Array<uint8_t> code(execution.memory, codes.stride() * execution.threads);
    parallel_for(execution, heads_.size(), kHeadsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      uint8_t* const own = code.data() + codes.stride() * worker;
      uint32_t* const to = distances.data() + size_t{starts} * worker;
      for (uint64_t i = begin; i < end; ++i) {
        codes.gather(&graph.heads[i], 1, own);
        codes.distances(own, graph.entries.data(), starts, to);
        start_of[i] = static_cast<uint32_t>(std::min_element(to, to + starts) - to);
      }
    });
    for (const uint32_t start : start_of) ++begins_[start + 1];
    for (uint32_t start = 0; start < starts; ++start) begins_[start + 1] += begins_[start];
    Array<uint32_t> ends = Array<uint32_t>::front(begins_, starts, execution.memory);
    for (size_t i = 0; i < heads_.size(); ++i) heads_[ends[start_of[i]]++] = graph.heads[i];
  }

  uint32_t begin(uint32_t start) const { return begins_[start]; }
  uint32_t size(uint32_t start) const { return begins_[start + 1] - begins_[start]; }
  const uint32_t* heads(uint32_t start) const { return heads_.data() + begins_[start]; }

 private:
  Array<uint32_t> begins_;  // [starts + 1]
  Array<uint32_t> heads_;   // [heads] start by start
};

/// Chooses heads of one cell.
struct Chooser {
  const Codes& codes;
  const Execution& execution;
  const uint32_t* heads;  // [count] of the cell
  uint32_t count;
  uint8_t* code;        // [stride] of the last one chosen
  uint32_t* nearest;    // [count] distance to the nearest one chosen
  uint32_t* distances;  // [count] to the last

  /// Writes the places of at most `wanted` heads, each the farthest from `start` and those before; how many.
  uint32_t choose(uint32_t start, uint32_t wanted, uint32_t* chosen) const {
    std::fill_n(nearest, count, UINT32_MAX);
    uint32_t size = 0;
    for (uint32_t last = start; count > 0 && size < wanted; last = heads[chosen[size - 1]]) {
      codes.gather(&last, 1, code);
      serial_for(execution, count, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
        codes.distances(code, heads + begin, static_cast<uint32_t>(end - begin), distances + begin);
      });
      for (uint32_t i = 0; i < count; ++i) nearest[i] = std::min(nearest[i], distances[i]);
      const uint32_t* const farthest = std::max_element(nearest, nearest + count);
      if (*farthest == 0) break;
      chosen[size++] = static_cast<uint32_t>(farthest - nearest);
    }
    return size;
  }
};

}  // namespace

void spread_start_edges(const Codes& codes, const SearchGraph& graph, uint32_t* rows,
                        const Execution& execution) {
  const uint32_t degree = graph.degree;
  const uint32_t wanted = degree / kStartShare;
  if (graph.heads.size() <= graph.entries.size() || wanted == 0) return;
  const StartCells cells(codes, graph, execution);
  Array<uint32_t> nearest(execution.memory, graph.heads.size());
  Array<uint32_t> distances(execution.memory, graph.heads.size());
  Array<uint8_t> code(execution.memory, codes.stride() * execution.threads);
  Array<uint32_t> scratch(execution.memory, size_t{2} * degree * execution.threads);
  parallel_for(execution, graph.entries.size(), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t* const chosen = scratch.data() + size_t{2} * degree * worker;
    uint32_t* const shared = chosen + degree;
    for (uint32_t start = static_cast<uint32_t>(begin); start < end; ++start) {
      const uint64_t first = cells.begin(start);
      const Chooser chooser{codes,
                            execution,
                            cells.heads(start),
                            cells.size(start),
                            code.data() + codes.stride() * worker,
                            nearest.data() + first,
                            distances.data() + first};
      const uint32_t count = chooser.choose(graph.entries[start], wanted, chosen);
      share_row(rows + size_t{start} * degree, degree, chosen, count, cells.heads(start), shared);
      std::copy_n(shared, degree, rows + size_t{start} * degree);
    }
  });
}

void spread_start_edges(const Codes& codes, SearchGraph& graph, const Execution& execution) {
  const EdgeTable table = graph.table();
  Array<uint32_t> rows(execution.memory, checked_product(graph.entries.size(), graph.degree));
  for (size_t i = 0; i < graph.entries.size(); ++i)
    std::copy_n(table.row(graph.entries[i]), graph.degree, rows.data() + i * graph.degree);
  spread_start_edges(codes, graph, rows.data(), execution);
  for (size_t i = 0; i < graph.entries.size(); ++i)
    std::copy_n(rows.data() + i * graph.degree, graph.degree, table.row(graph.entries[i]));
}

uint64_t start_edges_bytes(uint64_t heads, size_t stride, uint32_t degree, uint32_t threads) {
  const uint64_t cells =
      (2 * heads + 2 * kEntriesMax) * sizeof(uint32_t) + threads * (stride + kEntriesMax * sizeof(uint32_t));
  const uint64_t choosing = 2 * heads * sizeof(uint32_t) + threads * (stride + 2 * degree * sizeof(uint32_t));
  const uint64_t rows = uint64_t{kEntriesMax} * degree * sizeof(uint32_t);
  return rows + cells + choosing + (uint64_t{threads} * 4 + 16) * kAlignment;
}

}  // namespace gannet

// Best-first search with a bounded beam: the CPU's way through a SearchGraph.
//
//   beam    the `length` nearest rows met so far, sorted
//   start   all entry points are compared, or where they are many those of the nearest groups (search/entry_groups.h);
//           the nearest `length` of them enter the beam
//   step    expand the nearest row of the beam that has not been: read its edges, compare the rows
//           that have not been met, insert those nearer than the end of the beam
//   stop    when every row of the beam has been expanded
//
// It is CAGRA's search (section IV) with one parent a step and a complete visited table, which a CPU
// can afford. Distances are those of codes; at the end the nearest rows of the beam are compared once
// more on the stored rows, k and half as many again, at least 16 more, and the k best are reported.
//
// Bytes of a query at degree 32 and beam 40, 128 columns of u8: about 45 expansions of 128 bytes and
// 700 rows of 128 bytes, 95 KB, most of it waiting for memory. Therefore all rows of a step are
// requested before the first is compared, and the edges of the likely next row while this one's are; and no
// step between has a branch that cannot be foreseen: which rows were met, and where the near ones belong. Queries of a
// batch wait together: several searches of a thread take turns (search/best_first_walk.h).
//
// Rejected: codes of one bit a column (RaBitQ: Gao and Long, SIGMOD 2024). Beside the edges, those of a row's 32
// neighbours compared at once and rows read only when they are expanded (SymphonyQG: Gou et al., SIGMOD 2025), they
// took 1.6 to 2.8 times the time at equal recall on 100,000 texts of 384 columns and 1.3 to 1.8 times on 30,000 GIST
// rows of 960, with 1.8 and 4.2 KB a row: comparing 32 of them takes 0.13 and 0.3 us, fetching them from memory
// more, and a row is estimated for each edge that leads to it, where the table of visited rows spares two of three.
// Once for each row, to leave out rows whose lower bound lies beyond the beam, they spare more than half of the
// comparisons, and took 1.1 to 1.3 times the time on texts and .95 to 1.17 on GIST, where turning a query took 8 us
// that could be fewer: the cost of a row is mostly the jump to it, which its short code needs as well. (k = 10,
// recall .92 to .999; one thread of an AMD EPYC with AVX-512 VNNI and 32 MB of cache, medians of interleaved rounds.)
//
// Rows of many columns that fill few dimensions are projected instead (dataset/projected_codes.h): GIST takes .36 to
// .42 of the time at equal recall.
//
// Rejected: fewer starts. The first 16 entry points instead of all take, with the shortest beam that has the recall,
// .92 to 1.05 of the time on SIFT and GIST up to .99, but 1.05 to 1.87 on words and 1.2 on patches at .90 and .95,
// where walks then begin in the wrong place; patches at .999 alone take .35 (an AMD EPYC with AVX2).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "place/workspace.h"
#include "search/entry_groups.h"
#include "search/queries.h"
#include "traverse/beam.h"
#include "traverse/visited.h"

namespace gannet {

/// The memory that one search needs for itself, kept between searches so that they allocate nothing.
struct SearchWorkspace final : Workspace {
  SearchWorkspace(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                  const Allocator& memory)
      : visited(memory, codes.rows()),
        values(memory, dataset.query_bytes()),
        code(memory, codes.walk_query_bytes()),
        candidates(memory, std::max<size_t>(graph.degree, graph.entries.size())),
        code_distances(memory, candidates.size()),
        entries(codes, graph, memory),
        starts(memory, graph.entries.size()),
        allocator(memory) {}

  /// A thread has several: they come from the hook themselves.
  static void* operator new(size_t, const Allocator& memory) {
    return ::new (memory.take(kOwnBytes)) Origin{memory} + 1;
  }
  static void operator delete(void* workspace, const Allocator&) noexcept {
    SearchWorkspace::operator delete(workspace);
  }
  static void operator delete(void* workspace) noexcept {
    Origin* const origin = static_cast<Origin*>(workspace) - 1;
    const Allocator memory = origin->memory;
    memory.give_back(origin, kOwnBytes);
  }

  /// Makes room for a beam of `length`.
  void fit_beam(uint32_t length) {
    if (keys.size() >= Beam::room(length)) return;
    // The keys last: they say how long a beam all of them have room for, also when memory runs out
    // half-way.
    rows = Array<uint32_t>(allocator, length);
    distances = Array<float>(allocator, length);
    neighbors = Array<Neighbor>(allocator, length);
    keys = Array<uint64_t>(allocator, Beam::room(length));
  }
  uint64_t bytes() const override {
    return kOwnBytes + visited.bytes() + values.bytes() + code.bytes() + candidates.bytes() +
           code_distances.bytes() + entries.bytes() + starts.bytes() + keys.bytes() + rows.bytes() +
           distances.bytes() + neighbors.bytes();
  }

  Visited visited;
  Array<uint8_t> values;           // the query, prepared for the dataset
  Array<uint8_t> code;             // [walk_query_bytes] the query's code
  Array<uint32_t> candidates;      // rows of a step that have not been met, or places of starts
  Array<uint32_t> code_distances;  // theirs
  EntryGroups entries;             // where walks start
  Array<uint32_t> starts;          // of one walk
  Array<uint64_t> keys;            // [Beam::room(beam)]
  Array<uint32_t> rows;            // [beam] rows to compare once more
  Array<float> distances;          // [beam]
  Array<Neighbor> neighbors;       // [beam]
  Allocator allocator;
  uint32_t level = kWholeRows;      // which edges of rows with prefixes are read (graph/adjacency.h)
  uint32_t edges_part = kAllEdges;  // and which part of those
  bool from_groups = false;         // short lists start from groups of entry points, and walks with a slack
  std::span<const uint32_t> covering;     // where other walks with a slack start, unless there are none
  const Codes* covering_codes = nullptr;  // theirs, by place; null: they are read by row

  /// Whether a walk with a list of `length` starts from groups.
  bool starts_from_groups(uint32_t length) const { return from_groups && entries.serve(length); }

 private:
  /// In front of a workspace that comes from the hook.
  struct alignas(kAlignment) Origin {
    Allocator memory;
  };
  static const size_t kOwnBytes;
};

// A multiple of the alignment, as of all memory that the hook gives: some allocators refuse other sizes.
inline constexpr size_t SearchWorkspace::kOwnBytes =
    sizeof(Origin) + round_up(sizeof(SearchWorkspace), kAlignment);

/// Finds up to k near rows of one query and leaves them in workspace.neighbors, sorted; returns how many.
uint32_t search_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                           const PreparedQuery& query, const Admission& admission, uint32_t k, uint32_t beam,
                           SearchWorkspace& workspace, SearchCounts* counts);

/// Rows of a walk's list that are compared once more for k answers where codes are lossy, as far as it has so
/// many. With 8 more instead of 16, recall of 10 answers by inner product ends at 0.991, and with a quarter more
/// instead of half of 60 at 0.980.
constexpr uint32_t rerank_count(uint32_t k) { return k + std::max(16u, k / 2); }

/// As search_best_first, but leaves the reported distances of the first rerank_count() rows of the
/// beam in workspace.distances, in the beam's order; returns how many.
uint32_t compare_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                            const PreparedQuery& query, const Admission& admission, uint32_t k, uint32_t beam,
                            SearchWorkspace& workspace, SearchCounts* counts);

/// A beam whose answers are wanted, and for how many neighbours.
struct BeamStop {
  uint32_t beam;
  uint32_t k;  // at most the beam
};

/// One walk with the last of `stops`, whose beams rise, that leaves at each of them the rows that a search with
/// that beam compares: calls found(stop, compared, counts), with the distances as of compare_best_first in
/// workspace.distances, and goes on if that returns true. A longer beam takes the same steps as a shorter one as long
/// as that has rows to expand, since both expand the nearest row that waits; the shorter one ends when its first rows
/// have all been expanded.
void trace_best_first(
    const Dataset& dataset, const Codes& codes, const SearchGraph& graph, const PreparedQuery& query,
    const Admission& admission, std::span<const BeamStop> stops, SearchWorkspace& workspace,
    const std::function<bool(size_t stop, uint32_t compared, const SearchCounts& counts)>& found);

}  // namespace gannet

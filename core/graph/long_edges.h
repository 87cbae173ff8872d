// Long edges: how walks get from one island of rows to another.
//
// Where rows form islands, or have many copies, the lists under a graph hold rows of the own island alone. Pruning
// and reverse edges add none, and the repair joins islands at any place: every row is reachable, but a walk that
// goes nearer step by step does not find it. Then some rows, the heads, represent all:
//
//   heads     one row of each code, if that is a fourth of the rows at most; else rows of unlike codes that cover the
//             others: each is the end of an edge of a head, or has the code of such a row
//   graph     over the heads alone, made as the one below (lists, pruned by rank, reverse edges, repaired); its edges
//             take the second half of a head's row
//   way back  the last edge of every other row leads to its head
//   starts    kEntriesMax heads, and the pivots of a device; each of the first has edges to heads in all directions,
//             since islands may form groups that have no start (graph/start_edges.h)
//
// So a walk goes from head to head until it is on the right island, in the same lists and by the same steps as
// within it: every procedure on every device is served, and none knows of it. It is the upper layer of HNSW (Malkov
// and Yashunin, section 3) folded into the one below, except for the choice of its rows: one in 32, drawn at random,
// would miss a third of islands of 33 rows.
//
// Rejected: a graph over the heads apart, walked first for starts. By 100,000 rows that copy 10,000 it needs a fifth of
// the distances, but each procedure needs a walk before its own, on a device a kernel more.
//
// A file holds the heads in place of the entry points, which are drawn from them again.
//
// A device that has the graph does all of this there (graph/long_edges_cuda.h).
//
// Cost, n rows: one hash and one comparison of codes a row, 12 bytes a row while they are chosen, 4 bytes a head kept;
// then lists of the heads, at most a fourth of the graph's.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "knn/knn_graph.h"

namespace gannet {

/// One row in this many is a head at most.
inline constexpr uint32_t kHeadShare = 4;

/// Gives a graph of fixed rows heads and their edges, and repairs it again; nothing where there are no two heads, or
/// more of them than one of kHeadShare rows, or rows of fewer than kSharedDegreeLeast edges. Whether it has.
bool add_long_edges(const Codes& codes, SearchGraph& graph, uint64_t seed, const Execution& execution);

/// Edges of a row that is shared with long ones, at least.
inline constexpr uint32_t kSharedDegreeLeast = 4;

/// Neighbours of a head among heads, at most.
inline constexpr uint32_t kHeadLists = 48;

/// Heads of which a device compares all pairs; of more it finds lists by cells.
inline constexpr uint32_t kHeadsComparedThere = 16384;

/// Bytes that this takes at most, of codes of a stride.
uint64_t long_edges_bytes(uint64_t rows, size_t stride, uint32_t degree, uint32_t threads);

/// The rows, ascending, that stand for all, and for each row its head, [rows].
struct Heads {
  Array<uint32_t> rows;
  Array<uint32_t> of;
};
Heads choose_heads(const Codes& codes, const SearchGraph& graph, const Execution& execution);

/// Searches start at kEntriesMax of the heads, [heads] ascending. Up to kEntryPoints are entry points like others,
/// which is all that a file says of them.
void start_at_heads(SearchGraph& graph, Array<uint32_t> heads, uint64_t seed, const Allocator& memory);

/// Copies that a row has at most that stands for a query with them.
inline constexpr uint32_t kCopiesMost = 32;

/// Whether a row that stands for a query has copies, and if these are few, whether they are hidden from it.
enum class CopiesOf : uint8_t { kNone, kHidden, kSeen, kMany };

/// The queries to come that a row stands for: those that are no copies of rows, and those that are as often copies as
/// rows are. One without copies stands for both. Where rows are masked, those with many copies, which find further
/// ones, make up for the holes that masked copies leave: without them 50,000 rows of 5,000 codes got .953 of ten
/// answers for .8, and .995 for .95. With them, where edges go past hidden rows, 100,000 of 10,000 codes got .976 of
/// the first for .991.
constexpr bool stands_for_new(CopiesOf copies) {
  return copies == CopiesOf::kNone || copies == CopiesOf::kHidden;
}
constexpr bool stands_for_new_if_masked(CopiesOf copies) { return copies != CopiesOf::kSeen; }
constexpr bool stands_for_copies(CopiesOf copies) { return copies != CopiesOf::kHidden; }

/// Whether of the first `count` some hide their few copies and some see them.
bool have_both_kinds(const CopiesOf* kinds, uint32_t count);

/// Rows that stand for queries, and further rows with their codes, both ascending.
struct DrawnRows {
  Array<uint32_t> rows;
  Array<uint32_t> copies;
  Array<CopiesOf> kinds;  // [rows], or empty: all are kNone
  /// Most have copies, which are not named since these are too many: their recall promises nothing.
  bool have_copies = false;
};

/// Draws `count` rows that can stand for queries when each is hidden from its own search, with all that is among
/// `copies`; fewer only where rows have copies, of which there are then at most `most` with the rows themselves.
///
/// Among rows that are alike a head is no fair query: hidden, it leaves its island without the edges that lead there.
/// And a row that has copies is none, if queries to come are no copies: a walk that comes to one has found all there
/// is to find. If they are, it is a row without its copies that has less to find. Where most rows have copies, and an
/// eighth of them at most kCopiesMost, these are hidden with rows of half of their codes, one of each, and rows of the
/// other half see them, as rows with more copies do; of what either kind promises the lesser counts. Where there is not
/// room for some rows of either kind, all is as it was drawn, and `have_copies`.
DrawnRows draw_queries(const Codes& codes, const SearchGraph& graph, uint32_t count, uint64_t most,
                       uint64_t seed, uint64_t stream, const Execution& execution);

/// Puts them in random order, in which those that hide their few copies, those that see them and the others are spread
/// evenly.
void shuffle(DrawnRows& drawn, uint64_t seed, uint64_t stream, const Allocator& memory);

/// Bytes that this takes at most beside what it returns, but for the rows that are wanted.
uint64_t draw_queries_bytes(uint64_t rows);

}  // namespace gannet

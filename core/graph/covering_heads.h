// Covering heads: where walks start whose graph has more islands than entry points.
//
// A graph of islands has heads, and searches start at kEntriesMax of them (graph/long_edges.h). Where islands are
// more than these, and as far from each other in all directions, no start is nearer to the right island than others,
// and a walk finds that by chance. So it starts at one head of each instead.
//
// Which heads are of one island is seen by their edges: two heads are near each other where each has an edge to the
// other, and both such edges to a third; they are close where besides neither has a head much nearer. Edges from one
// island to another (of lists that are longer than an island has heads, of repairs) sometimes have one back, hardly
// ever a third head beside; but between islands of few heads they have, and then steps lead all over the next one.
//
// In order of rows a head covers all that are some steps from it at most; every one that none before covers gives a
// candidate. It is not the head itself, but the most central of those about it, which is nearer to queries of its
// island than heads of other islands are: a query at the edge of an island may be nearer to the edge of another.
//
// A candidate is left out where walks with a list of sixteen rows find it without it, from the nearest one that is
// kept, which is hardly farther than the rows around the candidate: what is farther is of another island, from which a
// single edge may lead there. That leaves about one of each island. So many candidates do no harm but by the time they
// take, and those of one step to close heads serve first, then of two, then of near heads: as far as they leave no more
// than twice as many as the last.
//
// Ten answers, one thread of an AMD EPYC with AVX-512 VNNI, distances and time of a query. Clusters differ in size.
//
//                                            heads  candidates  covering        .95            .99            .999
//   1,000,000 x 128, 1,000 clusters         76,382       7,385     1,312  1,754  29 us   1,873  38 us   2,039  57 us
//   1,000,000 x  96, 5,000 clusters         61,005      12,297     6,569  6,827  45 us   6,842  49 us   6,899  92 us
//   300,000   x 768, 1,000 clusters         30,816       5,371     1,026  1,308  64 us   1,402  96 us   1,491 119 us
//
// From the entry points and all that their long edges lead to walks got .96 of the first in 146 us, .98 of the last
// in 208, and more only all rows, in 1,320 and 1,820.
//
// Rejected. Candidates that are the heads which cover: those of two steps to close heads, thinned until walks found
// them and another head of each, were 1,443, 5,290 and 1,126, by 1,884 to 5,712 distances, but 612 of the 5,000
// clusters had none, and 2.5 % of the queries of others a nearer one of another cluster: .99 of them took 1.7 times
// as many expansions, and on an H200 five times (queues of walks there hold 64 rows, and those of the wrong island
// fill them). Centres of two steps, 5,623: 287 clusters without. Centres that may be anywhere among the heads about:
// 57, instead of 29. Links between heads by the edges of all rows that they stand for, some shares of them: 70 to 600
// clusters without. Another head sought besides the candidate: 7,334 of them, 22 clusters without; 2.2 times as far
// instead of 2.5, squared, 7,589, 20 without, and 1,712 of the first (of 1,500 islands of 30 rows one has none by
// 2.5, by 2.2 all have one). Before there were centres: edges in one direction, or in both without a third head (.977
// to .993 of the first); two paths of such edges instead of the third head (a fifth more time); any distance of the
// nearest one (.990); the rows around by the median of all edges, of which half may be long (.992).
//
// Rows that walks do not find though others kept before lie beside them are hard to find, and are no islands. Of 512
// candidates by near heads that are kept they are 59 % on 60,000 word counts x 256 and 74 % on 100,000 rows with a
// near copy each, for which no heads cover: that is asked after every 64 candidates. On clusters they are under 1 %.
// Both sets' searches take what they took with covering heads, which calibration then did not choose, and their builds
// less: of word counts 12.3 s of two threads' time instead of 13.5.
//
// On CUDA devices they are pivots, where calibration there finds that these serve better (tune/device_calibration.h).
//
// A file holds them with the curves of the CPU, so that an open reads no edges. A device's curves are of those that
// this makes: another choice needs another class of devices (place/placement.h).
//
// Cost, h heads of d edges, e of which have one back: h d^2 comparisons of numbers and 2 h d distances of codes by
// all threads and, up to the first third head, h e^3 at most; then, up to five times, the neighbours of a million
// heads at most by one; of c candidates, 32,768 at most, c 16^2 distances for their centres, and c times those kept,
// 32 and 6,000 in walks, by all threads. By two threads .1 to .5 s of builds of 12 to 20 s, by sixteen beside an H200
// .01 to .1; .07 of the .23 s that 60,000 word counts x 256 take there, whose heads lie in no islands.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

/// A walk that starts at more of them would compare more than it spares.
inline constexpr uint32_t kCoveringMost = 8192;

/// The rows, ascending; none where the graph has no heads beside its entry points, or too many would be needed.
Array<uint32_t> covering_heads(const SearchGraph& graph, const Codes& codes, const Execution& execution);

/// Bytes that this takes at most, by codes of `stride` bytes.
uint64_t covering_heads_bytes(uint64_t rows, uint32_t degree, size_t stride, uint32_t threads);

}  // namespace gannet

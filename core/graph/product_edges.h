// Edges for inner product: half of a walk leads to rows that give large products, not to rows that are near.
//
// By inner product the answers to most queries are few long rows, which are seldom near to one another, and a row
// need not be its own best match. A graph of near rows (squared L2) leads a walk round a row's neighbourhood; a list by
// product leads from everywhere to the long rows of its direction. So a row of this graph has three eighths of its
// edges from the first kind, with reverse ones and pruned as for L2, and the rest, forward alone, from the
// second: its nearest rows by product, pruned by rank among themselves.
//
// Of 40,000 word vectors, 32 edges, queries of another law, a beam of 32 finds .958 of the ten best products at 528
// distances; near rows alone .862 at 614, and lists by product alone, with reverse edges, .992 at 714
// (tests/bench/results.csv, "edges:", has other shares and beams).
//
// The lists by product are not found by comparing all rows: rows walk the graph of near rows as queries
// (beam 32: .86 of its 16 best, 444 distances), and then looks twice at the lists of near rows and of those in its own
// list (.94, 63 distances more). Lists by such walks alone gave .877 / 611 in a graph of both kinds, so looked
// through .931 / 580, and the true ones .958 / 528.
//
// One row in three walks. The others read the lists of the first eight of these that they have edges to, and walk where
// there are fewer than two or these fill no list: near rows have much of their lists in common. Where lists are longer
// than 128 all rows walk. Of 150,000 word vectors a beam of 96 finds .9915 of the ten of foreign queries and .9354 of
// those of queries like the rows, where lists of walks by all rows had .9881 and .9304 at as many distances, and a build
// by two threads takes .83 of the time. Where rows have few neighbours in common less is found: of 150,000 normal rows of
// 32 columns .9390 instead of .9447, of 100,000 of 256 columns that share a direction .9390 instead of .9444. One row in
// four walks: .9900, .9385; .9358, .9387. A few steps of a walk from what others found: .9907, .9338; .9382, .9401. A
// device's rows all walk (index/product_walks.h).
//
// After the walk and after each look the lists are made mutual: a product is the same from both ends, so each row is
// inserted into the lists of the rows in its own beam that are nearer to it than to their k-th. These are few, a
// thousandth of all entries, but rows that no other walk finds. Of 40,000 word vectors a beam of 96 finds .9971 of the ten
// of foreign queries and .9938 of those of queries like the rows, where lists that were not mutual, of walks with longer
// beams, had .9858 and .9608 at as many distances, and a search for .99 takes a tenth of the time. Mutual after the walk
// alone: .9923 and .9914 without looks, with both .9969 and .9937 by walks of half as long again.
//
// Walks start among long rows as well as everywhere: of queries like the rows .943 are found at 390 distances
// instead of .874 at 446. Half of the starts are spread over all rows, since where all rows are of one
// length the longest may all be in one region. The others are long rows of ranks that grow as powers: the few
// longest may be far from all others and in no other row's list, and answer every query of their
// direction (of 150,000 word vectors some 20, which made 1.2 % of the answers unreachable).
#pragma once

#include <cstdint>

#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

/// Of `count` entry points half spread over all rows, half among the longest sixteenth of them; ascending.
Array<uint32_t> choose_entries_by_product(const Dataset& dataset, uint32_t count, uint64_t seed,
                                          const Execution& execution);

/// Replaces five eighths of the edges of a graph of near rows by those by product, from lists of `k`. `codes` are those
/// that walks take. Results do not depend on threads.
void add_product_edges(SearchGraph& graph, const Dataset& dataset, const Codes& codes, uint32_t k,
                       const Execution& execution);

/// The k rows of the largest products of each row, itself not among them, that walks over a graph of near rows find.
KnnGraph lists_by_product(const SearchGraph& graph, const Dataset& dataset, const Codes& codes, uint32_t k,
                          const Execution& execution);

/// Host memory that add_product_edges takes at most beside the graph.
uint64_t product_edges_bytes(uint64_t rows, uint32_t dim, uint32_t k, uint32_t degree, uint32_t threads);

}  // namespace gannet

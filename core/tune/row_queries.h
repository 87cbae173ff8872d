// Rows of a dataset that stand for queries of a calibration.
//
// A row that is stored as f16 or bf16 has been rounded, and queries to come have not: where the grid is as coarse as
// neighbours are near, rows fall upon each other, and a row finds those of its own place where a query lies between
// places. So each value of such a row is moved by up to half a unit of its grid. 50,000 rows far from the origin
// stored as bf16, asked .8 to .95 for one, ten and a hundred, got .07 to .11 less than asked; where the grid is fine it
// changes nothing. Zeros stay: they are values that are not there.
//
// Rows that lay nearer to each other than a unit have come to be on both sides of some bounds of the grid, and
// queries like them lie close to those bounds: all places about them are about as far. From anywhere within its own
// place a row finds its neighbours more easily: 2,500 and 50,000 rows near popular points, stored as f16, got .973
// for .99 of ten and .864 for .9 of a hundred. So in a column in which all near rows, to which the graph leads, lie
// on one side of a row or at its own value, the row is moved close to the bound on that side, the closer the more of
// them lie beyond. With the values that these 2,500 had before they were rounded, beams of 10, 15 and 31 had recalls
// of .986, .989 and .990; moved to anywhere within half a unit .994, .996 and .999; moved towards bounds .980, .987
// and .990. Rows without near ones, as in most sets, are moved to anywhere.
//
// That is still a guess: of 5,000 to 13,000 rows near popular points, stored as f16, and of as many far from the origin
// by cosine, stored as bf16, asked .8 to .95, nine figures were .03 to .08 short. So where most rows of a sample have near
// ones, and rows are few, twice the miss of the sample is promised: none of these is short then. Of 20,000 and 50,000
// none was, and to compare all rows, which a search does where no walk promises enough, would cost more.
#pragma once

#include "base/execution.h"
#include "dataset/dataset.h"
#include "graph/search_graph.h"

namespace gannet {

/// The element of rows as queries, of which each takes Dataset::query_bytes().
constexpr int32_t query_element(int32_t stored) { return is_float_element(stored) ? ANN_F32 : stored; }

/// Below so many rows those of a sample that stand for queries say less of queries to come, and half of the miss is asked
/// for: of rows that were rounded to places beside each other here, by product at the search (index/search.cpp).
inline constexpr uint32_t kFewRows = 16384;

struct CopiedRows {
  Array<uint8_t> values;     // [rows, Dataset::query_bytes()]
  bool are_crowded = false;  // of few rows in all, and most of them with near ones that are not equal
};

/// The values of one row are a function of the row, its place in `rows`, the seed and `graph`, over all rows of `dataset`.
CopiedRows copy_as_queries(const Dataset& dataset, const SearchGraph& graph, const Array<uint32_t>& rows,
                           uint64_t seed, const Execution& execution);

}  // namespace gannet

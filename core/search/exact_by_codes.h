// The nearest rows of many queries, by tiles of codes and a second look at the stored rows.
//
// Exact search reads every stored row for every 16 queries, 4 bytes a column for floats. Here rows are
// packed once for some hundred queries and compared as codes, a byte a column and one instruction for
// 64: 256 queries against 30,000 x 960 floats take 0.04 s instead of 0.8. The nearest k + k / 2 + 64
// by code are then compared as stored. Where codes are the rows (u8 and i8 under L2) that is exact.
// Elsewhere a true neighbour is missed if rounding moves it by half its rank and 64 more places. Codes of some
// rows may be of no use at all: where densities differ, thousands of rows share one code. So each list is
// looked at: if its k nearest lie scattered beyond the first half of those that are kept in reserve, all rows
// are compared for this query, as stored. Good enough to measure recall, not for an answer.
#pragma once

#include "dataset/codes.h"
#include "search/queries.h"
#include "segment/row_set.h"

namespace gannet {

/// distances[q * k] onwards become the reported distances of the k nearest rows of query q, ascending.
/// `excluded` is as for search_exact, and no row of `held_out` counts. There must be more than k rows that do, and
/// every query be usable; null: nothing is compared as stored. `first_by_code`, unless null, gets the
/// CodeOrder::kLooked rows of each that are nearest by code, equal ones by number; kNoRow where there are no more.
void nearest_by_codes(const Dataset& dataset, const Codes& codes, const QueryBlock& queries, uint32_t first,
                      uint32_t count, const uint32_t* excluded, RowSetView held_out, uint32_t k,
                      float* distances, const Execution& execution, uint32_t* first_by_code = nullptr);

/// Bytes that it takes at most.
uint64_t nearest_by_codes_bytes(size_t stride, uint32_t count, uint32_t k, uint32_t threads);

}  // namespace gannet

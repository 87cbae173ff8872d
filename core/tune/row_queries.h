// Rows of a dataset that stand for queries of a calibration.
//
// A row that is stored as f16 or bf16 has been rounded, and queries to come have not: where the grid is as coarse as
// neighbours are near, rows fall upon each other, and a row finds those of its own place where a query lies between
// places. So each value of such a row is moved by up to half a unit of its grid. 50,000 rows far from the origin
// stored as bf16, asked .8 to .95 for one, ten and a hundred, got .07 to .11 less than asked; where the grid is fine it
// changes nothing. Zeros stay: they are values that are not there.
#pragma once

#include "dataset/dataset.h"

namespace gannet {

/// The element of rows as queries, of which each takes Dataset::query_bytes().
constexpr int32_t query_element(int32_t stored) { return is_float_element(stored) ? ANN_F32 : stored; }

/// [rows, query_bytes()] of `dataset`; the values of one are a function of the row, its place in `rows` and the seed.
Array<uint8_t> copy_as_queries(const Dataset& dataset, const Array<uint32_t>& rows, uint64_t seed,
                               const Allocator& memory);

}  // namespace gannet

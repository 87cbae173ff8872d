// Integer products of a query with coded rows, for codes with a scale for each row (dataset/scaled_codes.h).
//
// A row's column is a byte x = u + 128, u in [-127, 127]. A query's is an integer V of up to 16 bits, so that its own
// rounding costs nothing beside the rows': of 200 queries each on eleven made and real sets a query in 8 bits lost
// up to .07 of the true ten among the first ten. Machines are fast at products of bytes (vpdpbusd, and
// dp4a and integer tensor cores on a GPU), so V also stands as two digits, V = 256 high + low, and
//
//     sum u V = 256 sum x high + sum x low - 128 sum V,
//
// all modulo 2^32. The sum itself fits 32 bits if |V| is at most most_of_query(columns).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "distance/kernels.h"

namespace gannet {

/// Columns of queries are a multiple of this, zero beyond the dimension; rows are read to a multiple of 16.
inline constexpr uint32_t kProductAlign = 64;

/// The bytes of a row that are read, at most.
constexpr size_t round_up_to_16(size_t columns) { return (columns + 15) / 16 * 16; }

/// The largest |V| that is allowed: both digits are signed bytes, and the sum fits.
constexpr int32_t most_of_query(uint32_t columns) {
  return std::min(127 * 256, 0x7fffffff / 127 / static_cast<int32_t>(columns));
}

struct ProductQuery {
  const int16_t* values = nullptr;  // [columns] V
  const int8_t* high = nullptr;     // [columns]
  const int8_t* low = nullptr;      // [columns]
  uint32_t bias = 0;                // 128 * sum V
};

/// out[i] = sum u V over `columns` columns of the row that begins at rows + ids[i] * stride, or, ids being null, at
/// rows + i * stride. No byte is read behind `columns` rounded up to 16.
using RowProducts = void (*)(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
                             const uint32_t* ids, uint32_t count, int32_t* out);

/// The loop of a level; all give the same.
RowProducts row_products(const Kernels& level = kernels());

RowProducts row_products_portable();
RowProducts row_products_avx2();
RowProducts row_products_avx512();
RowProducts row_products_avx512vnni();

}  // namespace gannet

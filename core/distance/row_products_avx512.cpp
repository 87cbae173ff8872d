// Products for AVX-512 without VNNI: as for AVX2, twice as wide.

#if defined(__x86_64__)

#include "distance/row_products.h"
#include "distance/row_products_avx512.h"

namespace gannet {
namespace {

/// Bytes of a piece of 32 columns that may be read.
__mmask32 columns_here(uint32_t column, uint32_t columns) {
  const uint32_t left = static_cast<uint32_t>(round_up_to_16(columns) - column);
  return left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
}

uint32_t product(const int16_t* query, const uint8_t* row, uint32_t columns) {
  __m512i sums = _mm512_setzero_si512();
  for (uint32_t column = 0; column < columns; column += 32) {
    const __m512i x =
        _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(columns_here(column, columns), row + column));
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(x, _mm512_loadu_si512(query + column)));
  }
  return sum32(sums);
}

void products(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
              const uint32_t* ids, uint32_t count, int32_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + (ids != nullptr ? ids[i] : i) * stride;
    out[i] = static_cast<int32_t>(product(query.values, row, columns) - query.bias);
  }
}

}  // namespace

RowProducts row_products_avx512() { return products; }

}  // namespace gannet

#endif

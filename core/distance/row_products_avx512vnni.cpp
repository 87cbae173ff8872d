// Products for AVX-512 with VNNI: two vpdpbusd, one for each digit of V, take 64 columns of a row that is read
// once. Four rows at a time, so that no instruction waits for the sum before it.

#if defined(__x86_64__)

#include "distance/row_products.h"
#include "distance/row_products_avx512.h"

namespace gannet {
namespace {

/// Bytes of a piece of 64 columns that may be read.
__mmask64 columns_here(uint32_t column, uint32_t columns) {
  const uint32_t left = static_cast<uint32_t>(round_up_to_16(columns) - column);
  return left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
}

template <uint32_t kRows>
void add_rows(const ProductQuery& query, const uint8_t* const* row, uint32_t columns, int32_t* out) {
  __m512i high[kRows];
  __m512i low[kRows];
  for (uint32_t r = 0; r < kRows; ++r) high[r] = low[r] = _mm512_setzero_si512();
  for (uint32_t column = 0; column < columns; column += 64) {
    const __mmask64 here = columns_here(column, columns);
    const __m512i high_digits = _mm512_loadu_si512(query.high + column);
    const __m512i low_digits = _mm512_loadu_si512(query.low + column);
    for (uint32_t r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_maskz_loadu_epi8(here, row[r] + column);
      high[r] = _mm512_dpbusd_epi32(high[r], x, high_digits);
      low[r] = _mm512_dpbusd_epi32(low[r], x, low_digits);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    const __m512i sums = _mm512_add_epi32(_mm512_slli_epi32(high[r], 8), low[r]);
    out[r] = static_cast<int32_t>(sum32(sums) - query.bias);
  }
}

void products(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
              const uint32_t* ids, uint32_t count, int32_t* out) {
  const auto row = [&](uint32_t i) { return rows + (ids != nullptr ? ids[i] : i) * stride; };
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint8_t* const four[] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
    add_rows<4>(query, four, columns, out + i);
  }
  for (; i < count; ++i) {
    const uint8_t* const one[] = {row(i)};
    add_rows<1>(query, one, columns, out + i);
  }
}

}  // namespace

RowProducts row_products_avx512vnni() { return products; }

}  // namespace gannet

#endif

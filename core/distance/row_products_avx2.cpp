// Products for AVX2: bytes are widened to 16 bits, whose products with V vpmaddwd adds in pairs, modulo 2^32.

#if defined(__x86_64__)

#include <immintrin.h>

#include "distance/row_products.h"
#include "distance/sums_avx2.h"

namespace gannet {
namespace {

__m256i term(const int16_t* query, const uint8_t* row, uint32_t column) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + column)));
  return _mm256_madd_epi16(x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query + column)));
}

uint32_t product(const int16_t* query, const uint8_t* row, uint32_t columns) {
  __m256i sums = _mm256_setzero_si256();
  for (uint32_t column = 0; column < columns; column += 16)
    sums = _mm256_add_epi32(sums, term(query, row, column));
  return static_cast<uint32_t>(sum32(sums));
}

/// Those of four rows, which share what a sum of lanes costs.
__m128i four_products(const int16_t* query, const uint8_t* const* rows, uint32_t columns) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (uint32_t column = 0; column < columns; column += 16) {
    a = _mm256_add_epi32(a, term(query, rows[0], column));
    b = _mm256_add_epi32(b, term(query, rows[1], column));
    c = _mm256_add_epi32(c, term(query, rows[2], column));
    d = _mm256_add_epi32(d, term(query, rows[3], column));
  }
  return four_sums(a, b, c, d);
}

void products(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
              const uint32_t* ids, uint32_t count, int32_t* out) {
  const auto row = [&](uint32_t i) { return rows + (ids != nullptr ? ids[i] : i) * stride; };
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint8_t* const four[] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
    const __m128i bias = _mm_set1_epi32(static_cast<int32_t>(query.bias));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_sub_epi32(four_products(query.values, four, columns), bias));
  }
  for (; i < count; ++i) out[i] = static_cast<int32_t>(product(query.values, row(i), columns) - query.bias);
}

}  // namespace

RowProducts row_products_avx2() { return products; }

}  // namespace gannet

#endif

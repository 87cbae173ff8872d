// Products for AVX2: bytes are widened to 16 bits, whose products with V vpmaddwd adds in pairs, modulo 2^32.

#if defined(__x86_64__)

#include <immintrin.h>

#include "distance/row_products.h"

namespace gannet {
namespace {

uint32_t product(const int16_t* query, const uint8_t* row, uint32_t columns) {
  __m256i sums = _mm256_setzero_si256();
  for (uint32_t column = 0; column < columns; column += 16) {
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + column)));
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query + column));
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(x, v));
  }
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1))));
}

void products(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
              const uint32_t* ids, uint32_t count, int32_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + (ids != nullptr ? ids[i] : i) * stride;
    out[i] = static_cast<int32_t>(product(query.values, row, columns) - query.bias);
  }
}

}  // namespace

RowProducts row_products_avx2() { return products; }

}  // namespace gannet

#endif

#include "distance/row_products.h"

namespace gannet {
namespace {

void products(const ProductQuery& query, const uint8_t* rows, size_t stride, uint32_t columns,
              const uint32_t* ids, uint32_t count, int32_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + (ids != nullptr ? ids[i] : i) * stride;
    uint32_t sum = 0;
    for (uint32_t column = 0; column < columns; ++column)
      sum += static_cast<uint32_t>(int32_t{row[column]} * query.values[column]);
    out[i] = static_cast<int32_t>(sum - query.bias);
  }
}

}  // namespace

RowProducts row_products_portable() { return products; }

RowProducts row_products(const Kernels& level) {
#if defined(__x86_64__)
  if (&level == &kAvx2Kernels) return row_products_avx2();
  if (&level == &kAvx512Kernels) return row_products_avx512();
  if (&level == &kAvx512VnniKernels) return row_products_avx512vnni();
#endif
  (void)level;
  return row_products_portable();
}

}  // namespace gannet

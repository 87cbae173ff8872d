#include "tune/row_queries.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.h"

namespace gannet {
namespace {

constexpr uint64_t kRoundingStream = 0x726f756e646564;  // "rounded"
constexpr uint32_t kValuesOfWord = 4;

/// The distance from a value of f16 or bf16 to the next one.
float unit_of(float value, int32_t element) {
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7f800000);
  return element == ANN_F16 ? std::max(power * 0x1p-10f, 0x1p-24f) : power * 0x1p-7f;
}

void copy_unrounded(const uint8_t* row, uint32_t dim, int32_t element, uint64_t seed, uint64_t place,
                    float* out) {
  const uint64_t words = (dim + kValuesOfWord - 1) / kValuesOfWord;
  for (uint64_t word = 0; word < words; ++word) {
    uint64_t random = random_word(seed, kRoundingStream, place * words + word);
    const uint32_t first = static_cast<uint32_t>(word) * kValuesOfWord;
    for (uint32_t j = first; j < std::min(first + kValuesOfWord, dim); ++j, random >>= 16) {
      const float value = element_to_float(row, element, j);
      const float moved = static_cast<float>(random & 0xffff) * 0x1p-16f - 0.5f;
      out[j] = value == 0 ? 0 : value + moved * unit_of(value, element);
    }
  }
}

}  // namespace

Array<uint8_t> copy_as_queries(const Dataset& dataset, const Array<uint32_t>& rows, uint64_t seed,
                               const Allocator& memory) {
  const size_t bytes = dataset.query_bytes();
  const int32_t element = dataset.element();
  Array<uint8_t> copied(memory, checked_product(rows.size(), bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    uint8_t* const out = copied.data() + i * bytes;
    const auto* row = static_cast<const uint8_t*>(dataset.view().row(rows[i]));
    if (element == query_element(element))
      std::memcpy(out, row, bytes);
    else
      copy_unrounded(row, dataset.dim(), element, seed, i, reinterpret_cast<float*>(out));
  }
  return copied;
}

}  // namespace gannet

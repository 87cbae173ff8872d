#include "calls_model.h"

#include <cmath>

#include "base/random.h"
#include "distance/element.h"

namespace gannet::fuzz {
namespace {

constexpr uint64_t kCharacters = 12;

/// A value of a matrix, by the matrix's character: noise, few values, one value, large, clusters, tiny, two
/// densities, lengths by a power law, near copies, one column that outweighs the others, zeros of both signs,
/// islands.
float value_of(uint64_t character, uint64_t seed, uint64_t row, uint64_t column) {
  const uint64_t word = random_word(seed, row, column);
  switch (character) {
    case 0:
      return static_cast<float>(word % 255) - 127;
    case 1:
      return static_cast<float>(word % 2);
    case 2:
      return 3;
    case 3:
      return static_cast<float>(word % 255) * 1e36f;
    case 4:
      return static_cast<float>(row % 3) * 1000 + static_cast<float>(word % 16);
    case 5:
      return static_cast<float>(word % 255) * 1e-40f;
    case 6:
      return row % 5 == 0 ? static_cast<float>(word % 64) * 1e-5f : static_cast<float>(word % 255) - 127;
    case 7:
      return std::ldexp(static_cast<float>(word % 255) - 127, static_cast<int>(row * 7 % 33) - 16);
    case 8:
      return static_cast<float>(random_word(seed, row / 8, column) % 100) +
             static_cast<float>(word % 4) * 0.001f;
    case 9:
      return (static_cast<float>(word % 255) - 127) * (column == 0 ? 1000.0f : 1.0f);
    case 10:
      return word % 3 == 0 ? -0.0f : static_cast<float>(word % 3) - 1;
    default:
      return row % 2 == 0 ? 0 : static_cast<float>(word % 9) - 4;
  }
}

void put_value(Block& block, float value, uint64_t row, uint32_t column) {
  uint8_t* out = block.bytes.data() + row * block.view.dim * element_bytes(block.view.element);
  if (!is_float_element(block.view.element)) {
    out[column] = static_cast<uint8_t>(static_cast<int64_t>(std::fmod(value, 256)));
    return;
  }
  if (block.view.element == ANN_F16) value = std::min(65504.0f, std::max(-65504.0f, value));
  float_to_element(value, out, block.view.element, column);
}

void fill_with_stride(Block& block, uint64_t extra) {
  const uint64_t packed = uint64_t{block.view.dim} * element_bytes(block.view.element);
  const uint64_t stride = packed + extra;
  block.view.row_stride = stride;
  // The last row ends where its values end.
  const uint64_t rows = block.view.rows;
  block.strided.assign(rows == 0 ? 0 : (rows - 1) * stride + packed, 0xee);
  for (uint64_t row = 0; row < rows; ++row)
    std::memcpy(block.strided.data() + row * stride, block.bytes.data() + row * packed, packed);
  block.view.data = block.strided.data();
}

/// Something that the library has to refuse before it reads a value.
void misuse(Block& block, Input& input) {
  block.legal = false;
  switch (input.below(6)) {
    case 0:
      block.view.element = static_cast<int32_t>(input.below(2) == 0 ? 0 : 6 + input.byte());
      break;
    case 1:
      block.view.dim = input.below(2) == 0 ? 0 : ANN_DIM_MAX + 1 + input.byte();
      break;
    case 2:
      block.view.data = nullptr;
      block.view.rows = 1 + input.wide() / 2;
      break;
    case 3:
      block.view.space = input.below(2) == 0 ? -1 : 1 + input.byte();
      break;
    case 4:
      block.view.row_stride = 1;
      block.legal = block.view.dim * element_bytes(block.view.element) == 1;
      break;
    default:
      block.view.row_stride = UINT64_MAX - input.byte();
      block.legal = block.view.rows == 0;
  }
}

}  // namespace

Block make_block(Input& input, uint32_t dim, int32_t element, uint64_t rows) {
  Block block;
  block.view.dim = dim;
  block.view.element = element;
  block.view.rows = rows;
  block.bytes.resize(rows * dim * element_bytes(element));
  const uint64_t character = input.below(kCharacters);
  const uint64_t seed = input.byte();
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < dim; ++column)
      put_value(block, value_of(character, seed, row, column), row, column);
  }
  const uint64_t kind = input.below(24);
  if (kind == 21 && rows > 0 && is_float_element(element)) {
    put_value(block, input.below(2) == 0 ? NAN : INFINITY, input.below(rows),
              static_cast<uint32_t>(input.below(dim)));
    // Clipping to the range of a half makes infinity finite, and not a number the least of its values.
    block.finite = element == ANN_F16;
  }
  fill_with_stride(block, kind == 22 ? input.byte() : 0);
  if (kind == 23) misuse(block, input);
  return block;
}

uint32_t squared_distance(const uint8_t* a, const uint8_t* b, uint32_t dim, int32_t element) {
  uint32_t sum = 0;
  for (uint32_t column = 0; column < dim; ++column) {
    const int32_t difference = element == ANN_I8
                                   ? int32_t{static_cast<int8_t>(a[column])} - static_cast<int8_t>(b[column])
                                   : int32_t{a[column]} - b[column];
    sum += static_cast<uint32_t>(difference * difference);
  }
  return sum;
}

}  // namespace gannet::fuzz

// Elements: conversions to and from the 16-bit floats, over all of their values, and lengths of vectors of them.

#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "dataset/lengths.h"
#include "distance/element.h"

using namespace gannet;

TEST_CASE("every f16 and bf16 comes back from its float as itself") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (!std::isnan(float_of_f16(half))) REQUIRE(f16_of_float(float_of_f16(half)) == half);
    if (!std::isnan(float_of_bf16(half))) REQUIRE(bf16_of_float(float_of_bf16(half)) == half);
  }
}

TEST_CASE("rounding to f16 goes to the nearest, halves to even") {
  // Between two neighbours: just below the middle, the middle, just above it.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = float_of_f16(static_cast<uint16_t>(bits));
    const float high = float_of_f16(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact in a float
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    REQUIRE(f16_of_float(middle) == even);
    REQUIRE(f16_of_float(std::nextafter(middle, low)) == bits);
    REQUIRE(f16_of_float(std::nextafter(middle, high)) == bits + 1);
    REQUIRE(f16_of_float(-middle) == (even | 0x8000));
  }
}

TEST_CASE("values beyond f16 become infinite and NaN stays NaN") {
  REQUIRE(f16_of_float(65504) == 0x7bff);
  REQUIRE(f16_of_float(65519) == 0x7bff);
  REQUIRE(f16_of_float(65520) == 0x7c00);
  REQUIRE(f16_of_float(-1e30f) == 0xfc00);
  REQUIRE(std::isnan(float_of_f16(f16_of_float(NAN))));
  REQUIRE(std::isnan(float_of_bf16(bf16_of_float(std::numeric_limits<float>::signaling_NaN()))));
  REQUIRE(bf16_of_float(std::numeric_limits<float>::max()) == 0x7f80);
}

TEST_CASE("all values of i8 and u8 are values of every float element") {
  for (int value = -128; value < 256; ++value) {
    const float exact = static_cast<float>(value);
    REQUIRE(float_of_f16(f16_of_float(exact)) == exact);
    REQUIRE(float_of_bf16(bf16_of_float(exact)) == exact);
  }
}

TEST_CASE("lengths of several rows at once are those of each alone, summed in doubles column by column") {
  constexpr uint32_t kDim = 37;
  for (const int32_t element : {ANN_F32, ANN_F16, ANN_BF16, ANN_I8, ANN_U8}) {
    const size_t stride = kDim * element_bytes(element) + 3;  // rows may start anywhere
    std::vector<uint8_t> rows(9 * stride);
    for (size_t row = 0; row < 9; ++row)
      for (uint32_t column = 0; column < kDim; ++column) {
        const auto value = static_cast<float>((row * kDim + column) * 7919 % 101);
        if (is_float_element(element))
          float_to_element(value / 13 - 3, rows.data() + row * stride, element, column);
        else
          rows[row * stride + column] = static_cast<uint8_t>(value);
      }
    for (uint32_t count = 0; count <= 9; ++count) {
      std::vector<double> lengths(count + 1, -1);
      find_lengths(rows.data(), stride, count, element, kDim, lengths.data());
      for (uint32_t row = 0; row < count; ++row) {
        double sum = 0;
        for (uint32_t column = 0; column < kDim; ++column) {
          const double value = element_to_float(rows.data() + row * stride, element, column);
          sum += value * value;
        }
        CHECK(lengths[row] == std::sqrt(sum));
        CHECK(length_of(rows.data() + row * stride, element, kDim) == std::sqrt(sum));
      }
      CHECK(lengths[count] == -1);
    }
  }
}

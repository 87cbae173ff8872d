// The device memory of exact search, for estimates: the bytes of search/exact_cuda.cu, in a build without CUDA too.

#include <algorithm>
#include <bit>

#include "search/exact_cuda.h"

namespace gannet::cuda {
namespace {

// Threads of a multiprocessor by their registers, 128 and less.
constexpr uint64_t kThreadsAtOnce = 512;
constexpr uint64_t kMultiprocessorsMax = 170;

}  // namespace

uint64_t exact_device_bytes(uint64_t rows, uint32_t dim, int32_t metric, int32_t element, uint64_t queries,
                            uint32_t kept) {
  const bool is_float = is_float_element(element);
  const bool filtered = is_float && queries > kExactFewQueries;
  const ExactTile tile = filtered ? kExactFloats : is_float ? kExactFewFloats : kExactIntegers;
  const uint64_t tall = std::max<uint64_t>(1, (queries + tile.queries - 1) / tile.queries);
  const uint64_t fitting = kMultiprocessorsMax * kThreadsAtOnce / tile.threads;  // blocks
  const uint64_t resident = filtered ? std::min<uint64_t>(fitting, kExactFloatBlocks) : fitting;
  const uint64_t slices =
      std::clamp<uint64_t>(resident / tall, 1, rows / (uint64_t{kExactTilesOfSlice} * tile.rows) + 1);
  const uint64_t half = std::bit_ceil(std::max(kept, filtered ? kExactFilteredHalfMin : kExactHalfMin));
  const uint64_t list = 2 * half * sizeof(uint64_t) + 2 * sizeof(uint32_t);  // keys, how many, and a bound
  const uint64_t vector = round_up(dim * (is_float ? sizeof(float) : 1), kCodeAlign);
  const uint64_t norm_square_and_bound = sizeof(double) + 2 * sizeof(uint32_t);
  const uint64_t answer = kept * (sizeof(uint32_t) + sizeof(float));
  const bool squared = is_float ? filtered && metric != ANN_METRIC_COSINE : metric == ANN_METRIC_L2;
  const uint64_t row_squares = squared ? rows * sizeof(uint32_t) : 0;
  return slices * queries * list + queries * (vector + norm_square_and_bound + answer) + row_squares + vector;
}

}  // namespace gannet::cuda

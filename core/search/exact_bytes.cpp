// The device memory of exact search, for estimates: the bytes of search/exact_cuda.cu, in a build without CUDA too.

#include <algorithm>
#include <bit>

#include "search/exact_cuda.h"

namespace gannet::cuda {
namespace {

// Threads of a multiprocessor: of kernels with up to 128 registers, and of the one of very few queries at most.
constexpr uint64_t kThreadsOfTiles = 512;
constexpr uint64_t kThreadsOfStreams = 2048;
constexpr uint64_t kMultiprocessorsMax = 170;

}  // namespace

uint64_t exact_device_bytes(uint64_t rows, uint32_t dim, int32_t metric, int32_t element, uint64_t queries,
                            uint32_t kept) {
  const bool is_float = is_float_element(element);
  const bool few = queries <= few_queries(is_float);
  const bool streamed = queries <= kExactStreamed;
  const ExactTile tile = streamed ? kExactStream : is_float ? kExactFewFloats : kExactFewIntegers;
  const uint64_t tall = std::max<uint64_t>(1, (queries + tile.queries - 1) / tile.queries);
  const uint64_t resident =  // blocks
      kMultiprocessorsMax * (streamed ? kThreadsOfStreams : kThreadsOfTiles) / tile.threads;
  const uint64_t slices =
      few ? std::clamp<uint64_t>(resident / tall, 1, rows / (uint64_t{kExactTilesOfSlice} * tile.rows) + 1)
          : 1;
  const uint64_t half = std::bit_ceil(std::max(kept, kExactHalfMin));
  const uint64_t list = 2 * half * sizeof(uint64_t) + sizeof(uint32_t);  // keys and how many
  const uint64_t vector = round_up(dim * (is_float ? sizeof(float) : 1), kCodeAlign);
  const uint64_t norm_and_square = sizeof(double) + sizeof(uint32_t);
  const uint64_t answer = kept * (sizeof(uint32_t) + sizeof(float));
  const bool squared = !is_float && metric == ANN_METRIC_L2 && !streamed;
  const uint64_t row_squares = squared ? rows * sizeof(uint32_t) : 0;
  const uint64_t query = slices * list + vector + norm_and_square + answer;
  if (few) return queries * query + row_squares;
  const uint64_t halves = is_float ? 2 * exact_half_bytes(dim) : 0;
  const uint64_t launched = exact_filter_rows(rows, dim, queries);
  return queries * (query + halves + 2 * sizeof(float) + launched / 8) +  // scale, bound and marks
         row_squares + launched * (halves + 4 * sizeof(float)) +          // terms
         halves + sizeof(uint64_t);  // the centre, and how many are marked
}

}  // namespace gannet::cuda

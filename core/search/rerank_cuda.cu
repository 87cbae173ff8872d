// Exact distances of the rows that a walk found, on the GPU.
//
//   kept       rows of a query that the walk found by codes, k and some more
//   key        distance and row number in 64 bits (metric_cuda.cuh)
//
// A block answers one query: its warps compare four rows at a time, all lanes on the same columns, then
// the block sorts the keys and writes the first k.
//
// Equal bits. The CPU sums floats in 64 lanes, column i in lane i mod 64, without fused multiply-add, and
// folds them in a fixed order (distance/kernels.h). Lane t of a warp is lanes t and t + 32: each has a
// sum of its own, and the exchanges below are the CPU's fold. Integers are exact in any order.
//
// Bytes a query: kept rows, 26 of 512 bytes at k = 10 and 128 columns of f32: 13 KB beside 65 KB that the
// walk reads. Operations: 3 a column and lane, some 10 for each fold, and a sort of `kept` keys: 15
// levels of 32 keys at k = 10. Up to 32 keys have a kernel of their own, because 16 KB for 2,048 keys
// would leave 14 blocks a multiprocessor where 16 fit, and one warp sorts 32 without a block's barriers.

#include <cooperative_groups.h>

#include "search/metric_cuda.cuh"
#include "search/rerank_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kRows = 4;  // that a warp compares at once
constexpr uint32_t kFewKeys = 32;

template <int32_t kElement, bool kDot, uint32_t kKeysMax>
struct Rerank {
  struct Shared {
    Key keys[kKeysMax];
  };

  const RerankArgs& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  uint64_t query = blockIdx.x;
  const uint8_t* values = args.queries + query * args.query_stride;
  uint32_t size = sort_size(args.kept);

  static __device__ uint32_t sort_size(uint32_t kept) {
    uint32_t power = kRows;
    while (power < kept) power *= 2;
    return power;
  }

  __device__ void run() {
    for (uint32_t first = threadIdx.x / 32 * kRows; first < size; first += kWarps * kRows)
      compare(first);
    block.sync();
    sort();
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      const Key key = shared.keys[i];
      args.out_rows[query * args.k + i] = row_of(key);  // kNoKey gives kNoRow
      args.out_distances[query * args.k + i] = key == kNoKey ? INFINITY : distance_of(key);
    }
  }

  /// Makes the keys first ... first + kRows - 1.
  __device__ void compare(uint32_t first) {
    uint32_t numbers[kRows];
    const uint8_t* rows[kRows];
    float sums[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const bool exists = first + i < args.kept;
      numbers[i] = exists ? args.candidates[query * args.kept + first + i] : kNoRow;
      // Where there is no row, row 0 is read and not used.
      rows[i] = args.rows + uint64_t{numbers[i] == kNoRow ? 0 : numbers[i]} * args.row_stride;
    }
    add_up(rows, sums);
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const Key key =
          numbers[i] == kNoRow ? kNoKey : make_key(distance(sums[i], rows[i], numbers[i]), numbers[i]);
      if (warp.thread_rank() == i) shared.keys[first + i] = key;
    }
  }

  __device__ void add_up(const uint8_t* const* rows, float* sums) const {
    if constexpr (is_float_element(kElement))
      add_floats(rows, sums);
    else
      add_integers(rows, sums);
  }

  __device__ void add_integers(const uint8_t* const* rows, float* sums) const {
    const uint32_t* query_words = reinterpret_cast<const uint32_t*>(values);
    uint32_t totals[kRows] = {};
    for (uint32_t word = warp.thread_rank(); word < (args.dim + 3) / 4; word += 32) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        totals[i] = add_products<kElement == ANN_I8>(
            reinterpret_cast<const uint32_t*>(rows[i])[word], query_words[word], totals[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      for (uint32_t half = 16; half != 0; half /= 2) totals[i] += warp.shfl_xor(totals[i], half);
      sums[i] = static_cast<float>(static_cast<int32_t>(totals[i]));
    }
  }

  static __device__ float product(float row, float query_value) {
    const float difference = __fsub_rn(row, query_value);
    return kDot ? __fmul_rn(row, query_value) : __fmul_rn(difference, difference);
  }

  __device__ void add_floats(const uint8_t* const* rows, float* sums) const {
    const float* floats = reinterpret_cast<const float*>(values);
    float low[kRows] = {};   // the CPU's lane t of each row
    float high[kRows] = {};  // and t + 32
#pragma unroll 2
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 64) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        low[i] = __fadd_rn(low[i], product(float_at<kElement>(rows[i], column), floats[column]));
      if (column + 32 >= args.dim) continue;
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        high[i] = __fadd_rn(
            high[i], product(float_at<kElement>(rows[i], column + 32), floats[column + 32]));
    }
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) sums[i] = fold(low[i], high[i]);
  }

  __device__ float fold(float low, float high) const {
    low = __fadd_rn(low, warp.shfl_xor(low, 16));
    high = __fadd_rn(high, warp.shfl_xor(high, 16));
    float sum = __fadd_rn(low, high);
    for (uint32_t half = 8; half != 0; half /= 2) sum = __fadd_rn(sum, warp.shfl_xor(sum, half));
    return sum;
  }

  __device__ double query_norm() const {
    return *reinterpret_cast<const double*>(values + args.value_bytes);
  }

  __device__ float distance(float sum, const uint8_t* row, uint32_t number) const {
    if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
    const double norm = query_norm();
    if constexpr (is_float_element(kElement)) {
      if (is_extreme(norm, args.norms[number]))
        return distance_of_cosine(extreme_cosine<kElement>(
            reinterpret_cast<const float*>(values), norm, row, args.dim));
    }
    return to_distance(sum, args.metric, norm, args.norms[number]);
  }

  __device__ void sort() {
    if constexpr (kKeysMax > kFewKeys) {
      sort_keys(threadIdx.x, kThreads, [this] { block.sync(); });
    } else {
      if (threadIdx.x < 32) sort_keys(threadIdx.x, 32, [this] { warp.sync(); });
      block.sync();
    }
  }

  template <class Sync>
  __device__ void sort_keys(uint32_t lane, uint32_t lanes, const Sync& sync) {
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        for (uint32_t i = lane; i < size / 2; i += lanes) {
          const uint32_t place = 2 * i - (i & (stride - 1));
          const Key first = shared.keys[place];
          const Key second = shared.keys[place + stride];
          if ((first > second) == ((place & run) == 0)) {
            shared.keys[place] = second;
            shared.keys[place + stride] = first;
          }
        }
        sync();
      }
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(kThreads) rerank(const __grid_constant__ RerankArgs args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <int32_t kElement, bool kDot>
void start(const RerankArgs& args, const Stream& stream) {
  const auto kernel = args.kept <= kFewKeys ? rerank<Rerank<kElement, kDot, kFewKeys>>
                                            : rerank<Rerank<kElement, kDot, kRerankMax>>;
  launch("rerank", kernel, args.count, kThreads, stream, args);
}

template <int32_t kElement>
void start_floats(const RerankArgs& args, const Stream& stream) {
  if (args.metric == ANN_METRIC_L2)
    start<kElement, false>(args, stream);
  else
    start<kElement, true>(args, stream);
}

}  // namespace

void start_rerank(const RerankArgs& args, int32_t element, const Stream& stream) {
  switch (element) {
    case ANN_F32:
      return start_floats<ANN_F32>(args, stream);
    case ANN_F16:
      return start_floats<ANN_F16>(args, stream);
    case ANN_BF16:
      return start_floats<ANN_BF16>(args, stream);
    // Of integers the L2 of codes is that of the rows: only products come here.
    case ANN_I8:
      return start<ANN_I8, true>(args, stream);
    default:
      return start<ANN_U8, true>(args, stream);
  }
}

}  // namespace gannet::cuda

// Exact distances of the rows that a walk found, on the GPU.
//
//   kept       rows of a query that the walk found by codes, k and some more
//   key        distance and row number in 64 bits (metric_cuda.cuh)
//
// A block answers one query: each of its warps compares every fourth row, all lanes of the warp on the
// one row, then the block sorts the keys and writes the first k.
//
// Equal bits. The CPU sums floats in 64 lanes, column i in lane i mod 64, without fused multiply-add, and
// folds them in a fixed order (distance/kernels.h). Lane t of a warp is lanes t and t + 32: each has a
// sum of its own, and the exchanges below are the CPU's fold. Integers are exact in any order.
//
// Bytes a query: kept rows, 26 of 512 bytes at k = 10 and 128 columns of f32: 13 KB beside 65 KB that the
// walk reads. Operations: 3 a column and lane, some 10 for the fold, and a sort of `kept` keys: 15 levels
// of 32 keys at k = 10. The walk costs ten times as much, so nothing here is tuned.

#include <cooperative_groups.h>

#include "search/metric_cuda.cuh"
#include "search/rerank_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 128;

struct Shared {
  Key keys[kRerankMax];
};

template <int32_t kElement, bool kDot>
struct Rerank {
  const RerankArgs& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  uint64_t query = blockIdx.x;
  const uint8_t* values = args.queries + query * args.query_stride;
  uint32_t size = sort_size(args.kept);

  static __device__ uint32_t sort_size(uint32_t kept) {
    uint32_t power = 2;
    while (power < kept) power *= 2;
    return power;
  }

  __device__ void run() {
    for (uint32_t i = threadIdx.x / 32; i < size; i += kThreads / 32) {
      const uint32_t row = i < args.kept ? args.candidates[query * args.kept + i] : kNoRow;
      const Key key = row == kNoRow ? kNoKey : make_key(distance(row), row);
      if (warp.thread_rank() == 0) shared.keys[i] = key;
    }
    block.sync();
    sort();
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      const Key key = shared.keys[i];
      args.out_rows[query * args.k + i] = row_of(key);  // kNoKey gives kNoRow
      args.out_distances[query * args.k + i] = key == kNoKey ? INFINITY : distance_of(key);
    }
  }

  __device__ float distance(uint32_t row_number) const {
    const uint8_t* row = args.rows + uint64_t{row_number} * args.row_stride;
    if constexpr (kElement == ANN_I8 || kElement == ANN_U8) {
      return in_metric(integer_sum(row), row_number);
    } else {
      const float* floats = reinterpret_cast<const float*>(values);
      if (args.metric == ANN_METRIC_COSINE &&
          is_extreme(query_norm(), args.norms[row_number]))
        return distance_of_cosine(extreme_cosine<kElement>(floats, query_norm(), row, args.dim));
      return in_metric(float_sum(row, floats), row_number);
    }
  }

  __device__ double query_norm() const {
    return *reinterpret_cast<const double*>(values + args.value_bytes);
  }

  __device__ float in_metric(float sum, uint32_t row) const {
    if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
    return to_distance(sum, args.metric, query_norm(), args.norms[row]);
  }

  __device__ float integer_sum(const uint8_t* row) const {
    const uint32_t* a = reinterpret_cast<const uint32_t*>(row);
    const uint32_t* b = reinterpret_cast<const uint32_t*>(values);
    uint32_t sum = 0;
    for (uint32_t word = warp.thread_rank(); word < (args.dim + 3) / 4; word += 32)
      sum = add_products<kElement == ANN_I8>(a[word], b[word], sum);
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    return static_cast<float>(static_cast<int32_t>(sum));
  }

  static __device__ float product(float row, float query) {
    const float difference = __fsub_rn(row, query);
    return kDot ? __fmul_rn(row, query) : __fmul_rn(difference, difference);
  }

  __device__ float float_sum(const uint8_t* row, const float* floats) const {
    float low = 0;   // the CPU's lane t
    float high = 0;  // and t + 32
#pragma unroll 4
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 64)
      low = __fadd_rn(low, product(float_at<kElement>(row, column), floats[column]));
#pragma unroll 4
    for (uint32_t column = warp.thread_rank() + 32; column < args.dim; column += 64)
      high = __fadd_rn(high, product(float_at<kElement>(row, column), floats[column]));
    low = __fadd_rn(low, warp.shfl_xor(low, 16));
    high = __fadd_rn(high, warp.shfl_xor(high, 16));
    float sum = __fadd_rn(low, high);
    for (uint32_t half = 8; half != 0; half /= 2) sum = __fadd_rn(sum, warp.shfl_xor(sum, half));
    return sum;
  }

  __device__ void sort() {
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        for (uint32_t i = threadIdx.x; i < size / 2; i += kThreads) {
          const uint32_t place = 2 * i - (i & (stride - 1));
          const Key first = shared.keys[place];
          const Key second = shared.keys[place + stride];
          if ((first > second) == ((place & run) == 0)) {
            shared.keys[place] = second;
            shared.keys[place + stride] = first;
          }
        }
        block.sync();
      }
    }
  }
};

template <int32_t kElement, bool kDot>
__global__ void __launch_bounds__(kThreads) rerank(const __grid_constant__ RerankArgs args) {
  __shared__ Shared shared;
  Rerank<kElement, kDot>{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <int32_t kElement>
void start(const RerankArgs& args, const Stream& stream) {
  if (args.metric == ANN_METRIC_L2)
    launch("rerank", rerank<kElement, false>, args.count, kThreads, stream, args);
  else
    launch("rerank", rerank<kElement, true>, args.count, kThreads, stream, args);
}

}  // namespace

void start_rerank(const RerankArgs& args, int32_t element, const Stream& stream) {
  switch (element) {
    case ANN_F32:
      return start<ANN_F32>(args, stream);
    case ANN_F16:
      return start<ANN_F16>(args, stream);
    case ANN_BF16:
      return start<ANN_BF16>(args, stream);
    // Of integers the L2 of codes is that of the rows: only products come here.
    case ANN_I8:
      return launch("rerank", rerank<ANN_I8, true>, args.count, kThreads, stream, args);
    default:
      return launch("rerank", rerank<ANN_U8, true>, args.count, kThreads, stream, args);
  }
}

}  // namespace gannet::cuda

// Exact distances of rows as stored, by one warp, four rows at a time or one, all lanes on the same columns.
//
// Equal bits: floats are summed in the CPU's lanes (distance/float_pairs_cuda.cuh), and integers are exact in any
// order.
#pragma once

#include "distance/float_pairs_cuda.cuh"
#include "distance/metric_cuda.cuh"
#include "search/rerank_cuda.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {

constexpr uint32_t kRerankRows = 4;  // that a warp compares at once, where it has so many

/// `kReads` parts of 64 columns of each row of floats are under way at once.
template <int32_t kElement, bool kDot, uint32_t kRows, uint32_t kReads>
struct ExactRows {
  const RerankArgs& args;
  const uint8_t* values;  // [query_stride] of the query, as RerankArgs has them

  /// The key of numbers[lane] in the first kRows lanes; kNoKey for kNoRow.
  __device__ Key compare(const uint32_t (&numbers)[kRows]) const {
    const uint8_t* rows[kRows];
    // Where there is no row, row 0 is read and not used.
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i)
      rows[i] = args.rows + uint64_t{numbers[i] == kNoRow ? 0 : numbers[i]} * args.row_stride;
    // Each lane has its row: the code for a distance, with its divisions, stands here once.
    float sum;
    if constexpr (is_float_element(kElement))
      sum = sum_floats(rows);
    else
      sum = sum_integers(rows);
    uint32_t number = numbers[0];
#pragma unroll
    for (uint32_t i = 1; i < kRows; ++i) number = lane_number() == i ? numbers[i] : number;
    if (lane_number() >= kRows || number == kNoRow) return kNoKey;
    return make_key(distance(sum, number), number);
  }

 private:
  // The first lanes get the sums of a row each.
  __device__ float sum_integers(const uint8_t* const (&rows)[kRows]) const {
    const uint32_t* query_words = reinterpret_cast<const uint32_t*>(values);
    uint32_t totals[kRows] = {};
    for (uint32_t word = lane_number(); word < (args.dim + 3) / 4; word += kWarp) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        totals[i] = add_products < kElement ==
                    ANN_I8 > (reinterpret_cast<const uint32_t*>(rows[i])[word], query_words[word], totals[i]);
    }
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t total = __reduce_add_sync(kAllLanes, totals[i]);
      own = lane_number() == i ? total : own;
    }
    return static_cast<float>(static_cast<int32_t>(own));
  }

  __device__ float sum_floats(const uint8_t* const (&rows)[kRows]) const {
    const auto query = [&](uint32_t, uint32_t column) { return floats_at<ANN_F32>(values, column); };
    return sum_float_pairs<kElement, kDot, kReads>(rows, query, args.dim);
  }

  __device__ float distance(float sum, uint32_t number) const {
    if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
    const double norm = *reinterpret_cast<const double*>(values + args.value_bytes);
    if constexpr (is_float_element(kElement)) {
      if (is_extreme(norm, args.norms[number]))
        return distance_of_cosine(extreme_cosine<kElement>(reinterpret_cast<const float*>(values), norm,
                                                           args.rows + uint64_t{number} * args.row_stride,
                                                           args.dim));
    }
    return to_distance(sum, args.metric, norm, args.norms[number]);
  }
};

/// ExactRows::compare for rows of any element: all warps of a launch go the same way.
template <uint32_t kRows, uint32_t kReads>
__device__ Key compare_exact(const RerankArgs& args, int32_t element, const uint8_t* values,
                             const uint32_t (&numbers)[kRows]) {
  const bool dot = args.metric != ANN_METRIC_L2;
  switch (element) {
    case ANN_F32:
      return dot ? ExactRows<ANN_F32, true, kRows, kReads>{args, values}.compare(numbers)
                 : ExactRows<ANN_F32, false, kRows, kReads>{args, values}.compare(numbers);
    case ANN_F16:
      return dot ? ExactRows<ANN_F16, true, kRows, kReads>{args, values}.compare(numbers)
                 : ExactRows<ANN_F16, false, kRows, kReads>{args, values}.compare(numbers);
    case ANN_BF16:
      return dot ? ExactRows<ANN_BF16, true, kRows, kReads>{args, values}.compare(numbers)
                 : ExactRows<ANN_BF16, false, kRows, kReads>{args, values}.compare(numbers);
    // Of integers the L2 of codes is that of the rows: only products come here.
    case ANN_I8:
      return ExactRows<ANN_I8, true, kRows, kReads>{args, values}.compare(numbers);
    default:
      return ExactRows<ANN_U8, true, kRows, kReads>{args, values}.compare(numbers);
  }
}

/// The same apart from its callers, whose registers it is not to take.
__device__ __noinline__ inline Key exact_key(const RerankArgs& args, int32_t element, const uint8_t* values,
                                             uint4 rows) {
  return compare_exact<kRerankRows, 1>(args, element, values, {rows.x, rows.y, rows.z, rows.w});
}

/// The key of one row, in the first lane, where warps have no more to compare: of floats eight parts come at once.
__device__ __noinline__ inline Key exact_key_of_one(const RerankArgs& args, int32_t element,
                                                    const uint8_t* values, uint32_t row) {
  return compare_exact<1, 8>(args, element, values, {row});
}

}  // namespace gannet::cuda

// The record of a query, made by one warp or by a block: byte for byte what Dataset::prepare makes on the CPU.
//
//   query      the caller's vector: any element, stride and alignment
//   record     its values as the kernels take them: f32 for float rows, else the element, zeros behind
//
// A warp goes through the query twice: to look for NaN and infinity and for the largest value, and to write. The
// second time it comes from the cache. A block does so once where nothing is scaled; else its first warp makes the
// record, and reads it once more, since the length is one sum in the order of columns.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "distance/metric_cuda.cuh"
#include "search/records_cuda.h"

namespace gannet::cuda {

template <int32_t kElement, bool kAsFloats>
struct MakeRecord {
  using Value = std::conditional_t<kAsFloats, float, uint8_t>;

  const RecordArgs& args;
  const uint8_t* query;  // the caller's
  uint8_t* record;       // [record_stride], or null
  double* norm;          // or null
  cooperative_groups::thread_block_tile<32> warp =
      cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  float half = 1;  // the scale, in two factors: the inverse of the smallest floats is none
  float rest = 1;

  /// False where a value is not finite.
  __device__ bool run() {
    const bool usable = look();
    if (record == nullptr) return usable;
    const double length = write(usable);
    if (warp.thread_rank() != 0) return usable;
    // Blocks read records 16 bytes at a time.
    if (args.scaled && args.record_stride > args.value_bytes)
      *reinterpret_cast<double2*>(record + args.value_bytes) = {length, 0};
    if (norm != nullptr) *norm = length;
    return usable;
  }

 private:
  /// False where a value is not finite; chooses the scale.
  __device__ bool look() {
    if constexpr (!is_float_element(kElement) && !kAsFloats) return true;
    bool finite = true;
    float largest = 0;
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 32) {
      const float value = float_of(column);
      finite = finite && isfinite(value);
      largest = fmaxf(largest, fabsf(value));
    }
    if (!warp.all(finite)) return false;
    largest = cooperative_groups::reduce(warp, largest, cooperative_groups::greater<float>());
    if (args.scaled && largest > 0) {
      const int exponent = -ilogbf(largest);
      half = ldexpf(1, exponent / 2);
      rest = ldexpf(1, exponent - exponent / 2);
    }
    return true;
  }

  /// Writes the values, and returns their length where it counts.
  __device__ double write(bool usable) const {
    Value* values = reinterpret_cast<Value*>(record);
    const uint32_t places = args.value_bytes / sizeof(Value);
    for (uint32_t column = warp.thread_rank(); column < places; column += 32)
      values[column] = usable && column < args.dim ? value_of(column) : nothing();
    if (!args.scaled) return 0;
    warp.sync();
    return length();
  }

  /// Squares of floats are exact as doubles; their sum is rounded at every column, in order, as on the CPU. Each lane
  /// reads the values anew and adds for itself, so that one sum waits for the last one alone: exchanged from lane to
  /// lane squares took 39 cycles a column, 9 of 88 us for a query of 384 columns (one NVIDIA H100).
  __device__ double length() const {
    constexpr uint32_t kWord = sizeof(uint4) / sizeof(Value);
    double sum = 0;
#pragma unroll 4
    for (uint32_t first = 0; first < args.dim; first += kWord) {
      const uint4 word = *reinterpret_cast<const uint4*>(record + first * sizeof(Value));
      const Value* values = reinterpret_cast<const Value*>(&word);
#pragma unroll
      for (uint32_t i = 0; i < kWord; ++i) sum = __dadd_rn(sum, square(values[i]));
    }
    return __dsqrt_rn(sum);
  }

  static __device__ double square(Value value) {
    double number = static_cast<double>(value);
    if constexpr (kElement == ANN_I8 && !kAsFloats) number = static_cast<int8_t>(value);
    return number * number;
  }

  __device__ Value value_of(uint32_t column) const {
    if constexpr (kAsFloats)
      return __fmul_rn(__fmul_rn(float_of(column), half), rest);
    else
      return query[column] ^ args.flip;
  }

  /// The value behind the columns.
  __device__ Value nothing() const { return kAsFloats ? Value{0} : static_cast<Value>(args.flip); }

  __device__ float float_of(uint32_t column) const {
    return column_of<kElement>(query, column, args.aligned);
  }
};

/// The record of a query that is not scaled, by all threads of a block.
template <int32_t kElement, bool kAsFloats>
struct MakePlainRecord {
  using Value = std::conditional_t<kAsFloats, float, uint8_t>;

  const RecordArgs& args;
  const uint8_t* query;  // the caller's
  uint8_t* record;       // [value_bytes]

  /// False where a value is not finite. Ends with a barrier.
  __device__ bool run() const {
    Value* values = reinterpret_cast<Value*>(record);
    const uint32_t places = args.value_bytes / sizeof(Value);
    const Value nothing = kAsFloats ? Value{0} : static_cast<Value>(args.flip);
    bool finite = true;
    for (uint32_t column = threadIdx.x; column < places; column += blockDim.x) {
      const Value value = column < args.dim ? value_of(column) : nothing;
      if constexpr (kAsFloats) finite = finite && isfinite(value);
      values[column] = value;
    }
    if (__syncthreads_and(finite)) return true;
    for (uint32_t column = threadIdx.x; column < places; column += blockDim.x) values[column] = nothing;
    __syncthreads();
    return false;
  }

 private:
  __device__ Value value_of(uint32_t column) const {
    if constexpr (kAsFloats)
      return column_of<kElement>(query, column, args.aligned);
    else
      return query[column] ^ args.flip;
  }
};

/// Runs `Make` for the element of the queries. One branch, which all threads take together: loops over columns are of
/// one element.
template <template <int32_t, bool> class Make, class... Rest>
__device__ bool make_by_element(const RecordArgs& args, Rest... rest) {
  switch (args.element) {
    case ANN_F32:
      return Make<ANN_F32, true>{args, rest...}.run();
    case ANN_F16:
      return Make<ANN_F16, true>{args, rest...}.run();
    case ANN_BF16:
      return Make<ANN_BF16, true>{args, rest...}.run();
    case ANN_I8:
      return args.as_floats ? Make<ANN_I8, true>{args, rest...}.run()
                            : Make<ANN_I8, false>{args, rest...}.run();
    default:
      return args.as_floats ? Make<ANN_U8, true>{args, rest...}.run()
                            : Make<ANN_U8, false>{args, rest...}.run();
  }
}

/// Makes the record of a query, by all lanes of a warp; false where a value is not finite, and the record is of
/// zeros. Apart from its callers, whose registers it is not to take.
__device__ __noinline__ inline bool make_record(const RecordArgs& args, const uint8_t* query, uint8_t* record,
                                                double* norm) {
  return make_by_element<MakeRecord>(args, query, record, norm);
}

/// make_record() by all threads of a block; ends with a barrier.
__device__ __noinline__ inline bool make_record_by_block(const RecordArgs& args, const uint8_t* query,
                                                         uint8_t* record) {
  if (!args.scaled) return make_by_element<MakePlainRecord>(args, query, record);
  const bool usable = threadIdx.x >= 32 || make_record(args, query, record, nullptr);
  return __syncthreads_and(usable);
}

}  // namespace gannet::cuda

// The record of a query, made by one warp or by a block: byte for byte what Dataset::prepare makes on the CPU.
//
//   query      the caller's vector: any element, stride and alignment
//   record     its values as the kernels take them: f32 for float rows, else the element, zeros behind
//
// A warp or block goes through the query once, to look for NaN and infinity and for the largest value, and through the
// record once more, to bring it into range. The length is one sum in the order of columns: a warp's work.
#pragma once

#include "distance/metric_cuda.cuh"
#include "search/records_cuda.h"

namespace gannet::cuda {

/// Squares of columns in shared memory, for a warp.
struct Squares {
  static constexpr uint32_t kColumns = 32;  // of a piece: a lane squares one
  static constexpr uint32_t kAtOnce = 8;    // that a lane reads ahead

  alignas(16) double pieces[2][kColumns];

  /// The root of the sum of square(column), a number of at least zero. Squares of floats are exact as doubles; their sum
  /// is rounded at every column, in order, as on the CPU. Zeros behind the columns change no sum. All lanes add the same
  /// numbers, while the next are on their way: a column takes 12 cycles, of which one sum waits 8 for the last (one NVIDIA
  /// H200). Where every lane read and squared all columns it took 25, and records by one warp 10 us of the 38 of a query
  /// of 384 columns; exchanged from lane to lane squares took 39 (H100).
  template <class Square>
  __device__ double length(uint32_t columns, const Square& square) {
    const auto fill = [&](uint32_t first) {
      const uint32_t column = first + threadIdx.x % kColumns;
      pieces[first / kColumns % 2][threadIdx.x % kColumns] = column < columns ? square(column) : 0;
    };
    double sum = 0;
    fill(0);
    __syncwarp();
    for (uint32_t first = 0; first < columns; first += kColumns) {
      if (first + kColumns < columns) fill(first + kColumns);
      sum = add_piece(pieces[first / kColumns % 2], sum);
      __syncwarp();
    }
    return __dsqrt_rn(sum);
  }

 private:
  static __device__ double add_piece(const double* piece, double sum) {
    double now[kAtOnce];
    read(piece, now);
#pragma unroll
    for (uint32_t first = 0; first < kColumns; first += kAtOnce) {
      double next[kAtOnce];
      if (first + kAtOnce < kColumns) read(piece + first + kAtOnce, next);
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) sum = __dadd_rn(sum, now[i]);
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) now[i] = next[i];
    }
    return sum;
  }

  static __device__ void read(const double* from, double (&to)[kAtOnce]) {
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; i += 2) {
      const double2 pair = *reinterpret_cast<const double2*>(from + i);
      to[i] = pair.x;
      to[i + 1] = pair.y;
    }
  }
};

/// What a block has in shared memory while it makes a record.
struct RecordShared {
  Squares squares;
  uint32_t of_warps[32];
};

/// All threads of a block or of a warp, which make a record together: what they have to agree on.
struct BlockOfRecord {
  RecordShared& shared;

  __device__ uint32_t rank() const { return threadIdx.x; }
  __device__ uint32_t size() const { return blockDim.x; }
  __device__ Squares& squares() const { return shared.squares; }
  __device__ bool all(bool holds) const { return __syncthreads_and(holds) != 0; }
  __device__ void sync() const { __syncthreads(); }

  /// The largest of non-negative numbers.
  __device__ float largest(float own) const {
    const uint32_t of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(own));
    if (threadIdx.x % 32 == 0) shared.of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();
    const uint32_t other = threadIdx.x % 32;
    return __uint_as_float(
        __reduce_max_sync(0xffffffff, other < blockDim.x / 32 ? shared.of_warps[other] : 0));
  }
};

struct WarpOfRecord {
  Squares& shared;

  __device__ uint32_t rank() const { return threadIdx.x % 32; }
  __device__ uint32_t size() const { return 32; }
  __device__ Squares& squares() const { return shared; }
  __device__ bool all(bool holds) const { return __all_sync(0xffffffff, holds); }
  __device__ void sync() const { __syncwarp(); }
  __device__ float largest(float own) const {
    return __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(own)));
  }
};

template <int32_t kElement, bool kAsFloats, class Threads>
struct MakeRecord {
  using Value = std::conditional_t<kAsFloats, float, uint8_t>;

  const RecordArgs& args;
  const uint8_t* query;  // the caller's
  uint8_t* record;       // [record_stride], or null
  double* norm;          // or null
  Threads threads;
  bool finite = true;  // of this thread's values
  float most = 0;      // likewise

  /// False where a value is not finite. A block ends with a barrier.
  __device__ bool run() {
    Value* const values = reinterpret_cast<Value*>(record);
    for_each_place([&](uint32_t column) {
      const Value value = column < args.dim ? value_of(column) : nothing();
      if (values != nullptr) values[column] = value;
    });
    const bool usable = threads.all(finite);
    if (values == nullptr) return usable;
    if (!usable)
      for_each_place([&](uint32_t column) { values[column] = nothing(); });
    else if (kAsFloats && args.scaled)
      bring_into_range(threads.largest(most));
    if (usable && !args.scaled) return true;
    threads.sync();
    if (!args.scaled) return false;
    if (threads.rank() < 32) measure(values);
    threads.sync();
    return usable;
  }

 private:
  template <class Visit>
  __device__ void for_each_place(const Visit& visit) const {
    for (uint32_t column = threads.rank(); column < args.value_bytes / sizeof(Value);
         column += threads.size())
      visit(column);
  }

  __device__ Value value_of(uint32_t column) {
    if constexpr (kAsFloats) {
      const float value = column_of<kElement>(query, column, args.aligned);
      finite = finite && isfinite(value);
      most = fmaxf(most, fabsf(value));
      return value;
    } else {
      return query[column] ^ args.flip;
    }
  }

  /// The value behind the columns.
  __device__ Value nothing() const { return kAsFloats ? Value{0} : static_cast<Value>(args.flip); }

  /// In two factors, as the inverse of the smallest floats is none. Each thread has its own values.
  __device__ void bring_into_range(float largest) const {
    if (!(largest > 0)) return;
    const int exponent = -ilogbf(largest);
    const float half = ldexpf(1, exponent / 2);
    const float rest = ldexpf(1, exponent - exponent / 2);
    float* const values = reinterpret_cast<float*>(record);
    for_each_place(
        [&](uint32_t column) { values[column] = __fmul_rn(__fmul_rn(values[column], half), rest); });
  }

  /// The length, by a warp. Blocks read records 16 bytes at a time.
  __device__ void measure(const Value* values) const {
    const double length = threads.squares().length(args.dim, [&](uint32_t column) {
      if constexpr (kElement == ANN_I8 && !kAsFloats)
        return square(static_cast<int8_t>(values[column]));
      else
        return square(values[column]);
    });
    if (threads.rank() != 0) return;
    if (args.record_stride > args.value_bytes)
      *reinterpret_cast<double2*>(record + args.value_bytes) = {length, 0};
    if (norm != nullptr) *norm = length;
  }

  static __device__ double square(double value) { return value * value; }
};

/// Makes the record for the element of the queries; false where a value is not finite, and the record is of zeros. One
/// branch, which all threads take together: loops over columns are of one element.
template <class Threads>
__device__ bool make_record(const RecordArgs& args, const uint8_t* query, uint8_t* record, double* norm,
                            const Threads& threads) {
  switch (args.element) {
    case ANN_F32:
      return MakeRecord<ANN_F32, true, Threads>{args, query, record, norm, threads}.run();
    case ANN_F16:
      return MakeRecord<ANN_F16, true, Threads>{args, query, record, norm, threads}.run();
    case ANN_BF16:
      return MakeRecord<ANN_BF16, true, Threads>{args, query, record, norm, threads}.run();
    case ANN_I8:
      return args.as_floats ? MakeRecord<ANN_I8, true, Threads>{args, query, record, norm, threads}.run()
                            : MakeRecord<ANN_I8, false, Threads>{args, query, record, norm, threads}.run();
    default:
      return args.as_floats ? MakeRecord<ANN_U8, true, Threads>{args, query, record, norm, threads}.run()
                            : MakeRecord<ANN_U8, false, Threads>{args, query, record, norm, threads}.run();
  }
}

/// By all threads of a block; ends with a barrier. Apart from its callers, whose registers it is not to take.
__device__ __noinline__ inline bool make_record_by_block(const RecordArgs& args, const uint8_t* query,
                                                         uint8_t* record, RecordShared& shared) {
  return make_record<BlockOfRecord>(args, query, record, nullptr, {shared});
}

}  // namespace gannet::cuda

// Comparison of a warp's rows with a query by codes that have a scale for each row (dataset/scaled_codes.h), bit for
// bit as ScaledCodes::distances compares them.
//
// Teams of four lanes take a row each as in RowComparison (traverse/walk_steps.cuh). A row's bytes are unsigned and
// both digits of the query signed, so a word costs two products of four bytes each, as many as |x - q|^2 of plain
// bytes does with x.x. Terms stand behind a row's bytes as its team has just read them, weighed with digits that are
// zero; the lane that gets the row's sum reads them once more, from the first cache.
//
// Registers: four rounds of two loads as there, 32, and the query's part is read anew, 16. Bytes a row: its stride.
#pragma once

#include "traverse/walk_steps.cuh"

namespace gannet::cuda {

/// Adds the products of four unsigned and four signed bytes.
__device__ inline uint32_t add_mixed_products(uint32_t row, uint32_t digits, uint32_t sum) {
  int32_t total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(row), "r"(digits), "r"(sum));
  return static_cast<uint32_t>(total);
}

/// A float as an unsigned number of the same order, and back.
__device__ inline uint32_t in_order(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}
__device__ inline float product_of(uint32_t ordered) {
  return __uint_as_float((ordered & 0x80000000) != 0 ? ordered & 0x7fffffff : ~ordered);
}

/// `kInShared`: where the query lies.
template <bool kInShared>
struct ScaledComparison : RowTeams<2> {
  static constexpr uint32_t kLoads = 2;
  static constexpr uint32_t kHeadBytes = 64;

  const uint32_t& stride;          // bytes, a multiple of 64
  const uint8_t* query = nullptr;  // as ScaledCodes lays it out
  float weight = 0;
  uint32_t bias = 0;
  uint32_t terms_at = 0;

  explicit __device__ ScaledComparison(const uint32_t& row_stride) : stride(row_stride) {}

  __device__ void begin(const uint8_t* code) {
    query = code;
    const uint4 head = read(reinterpret_cast<const uint4*>(code));
    weight = __uint_as_float(head.x);
    bias = head.y;
    terms_at = head.z;
  }

  /// As RowComparison::compare.
  template <class Meanwhile>
  __device__ uint32_t compare(const uint8_t* codes, const uint32_t* rows, uint32_t count,
                              const Meanwhile& meanwhile) const {
    uint32_t sums[kRounds] = {};
    add_piece(codes, rows, 0, count, sums, [&] {
      if constexpr (kInShared) prefetch_rows(codes, stride, rows, count);
      meanwhile();
    });
    for (uint32_t byte = kPiece; byte < stride; byte += kPiece)
      add_piece(codes, rows, byte, count, sums, [] {});
    const uint32_t sum = turn(sums);
    if (place() >= count) return kFarthest;
    return distance(codes + uint64_t{rows[place()]} * stride, static_cast<int32_t>(sum - bias));
  }

  /// As RowComparison::compare_few.
  __device__ uint32_t compare_few(const uint8_t* codes, const uint32_t* rows, uint32_t count) const {
    uint32_t sum = 0;
    const bool has_row = team() < count;
    const uint8_t* row = codes + uint64_t{rows[has_row ? team() : 0]} * stride;
    const auto reach = [&](uint32_t at, uint32_t load) { return has_row && at + load * kLoadBytes < stride; };
    for (uint32_t byte = 0; byte < stride; byte += kRounds * kPiece) {
      uint4 values[kRounds][kLoads];
      read_row(row, byte, reach, values);
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
#pragma unroll
        for (uint32_t load = 0; load < kLoads; ++load) {
          const uint32_t at = byte + round * kPiece;
          if (!reach(at, load)) continue;
          const uint8_t* part = query + kHeadBytes + at + load * kLoadBytes + member() * sizeof(uint4);
          const uint4 high = read(reinterpret_cast<const uint4*>(part));
          const uint4 low = read(reinterpret_cast<const uint4*>(part + stride));
          sum += 256 * products(values[round][load], high) + products(values[round][load], low);
        }
      }
    }
    sum = sum_of_team(sum);
    if (place() >= count) return kFarthest;
    return distance(codes + uint64_t{rows[place()]} * stride, static_cast<int32_t>(sum - bias));
  }

 private:
  /// Of the query.
  template <class T>
  static __device__ T read(const T* place) {
    return kInShared ? *place : __ldg(place);
  }

  template <class Meanwhile>
  __device__ void add_piece(const uint8_t* codes, const uint32_t* rows, uint32_t byte, uint32_t count,
                            uint32_t* sums, const Meanwhile& meanwhile) const {
    uint4 values[kRounds][kLoads];
    const auto reaches = [&](uint32_t at, uint32_t load) { return at + load * kLoadBytes < stride; };
    read_rows(codes, stride, rows, byte, count, reaches, values);
    meanwhile();
#pragma unroll
    for (uint32_t load = 0; load < kLoads; ++load) {
      const uint32_t at = byte + load * kLoadBytes;
      if (at >= stride) continue;
      const uint8_t* part = query + kHeadBytes + at + member() * sizeof(uint4);
      const uint4 high = read(reinterpret_cast<const uint4*>(part));
      const uint4 low = read(reinterpret_cast<const uint4*>(part + stride));
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
        if (round * kTeams + team() < count)
          sums[round] += 256 * products(values[round][load], high) + products(values[round][load], low);
      }
    }
  }

  static __device__ uint32_t products(const uint4& row, const uint4& digits) {
    uint32_t sum = add_mixed_products(row.x, digits.x, 0);
    sum = add_mixed_products(row.y, digits.y, sum);
    sum = add_mixed_products(row.z, digits.z, sum);
    return add_mixed_products(row.w, digits.w, sum);
  }

  __device__ uint32_t distance(const uint8_t* row, int32_t product) const {
    const uint4 terms = __ldg(reinterpret_cast<const uint4*>(row + terms_at));
    const float* table = reinterpret_cast<const float*>(query + kHeadBytes + 2 * stride);
    const float cross = __fmul_rn(__fmul_rn(weight, __uint_as_float(terms.x)), __int2float_rn(product));
    const float sum = __fadd_rn(read(table + terms.z), __fadd_rn(__uint_as_float(terms.y), cross));
    return min(in_order(sum), kFarthest - 1);  // no number, beyond the range of floats, is a row all the same
  }
};

/// T of products, whose order is that of numbers of either sign: so far behind the k-th best as a share of it.
/// kFarthest stays.
__device__ inline uint32_t stretched_product(uint32_t distance, float stretch) {
  if (distance == kFarthest) return kFarthest;
  const float value = product_of(distance);
  return in_order(__fadd_rn(value, __fmul_rn(stretch - 1, fabsf(value))));
}

}  // namespace gannet::cuda

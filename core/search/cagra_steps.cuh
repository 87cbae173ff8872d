// Steps that both of CAGRA's searches take on the GPU: rows compared by teams, keys sorted and merged in
// the registers of a warp, the hash of a query's content.
//
// Warp splitting (section IV-B1). A team of 2 to 32 lanes compares one row: each lane loads 16 bytes of
// it at a time, less where 32 lanes would read past the 64 columns below. A small team needs few
// exchanges at the end and many registers, a large one the reverse. Of floats a team takes as many rows at
// a time as keep 16 sums in each thread. Measured on one NVIDIA H200, batch of 10,000 (128 columns) or 2,000
// (960), M = 64, ms:
//   team                  2     4     8    16    32
//   128 bytes of codes  2.07  1.77  1.59  2.10  3.09
//   1,024               1.98  1.63  1.17  1.13  1.19
//   128 columns of f16  2.87  3.22  3.05  4.11  4.33
//   960                 3.82  4.06  3.25  4.77  3.51
//   128 columns of f32  5.17  5.31  4.53  4.39  4.26
//   960                 9.74  7.75  5.95  5.37  4.25
//
// Equal bits. Integers are exact in any order. Floats are summed as the CPU sums them
// (distance/kernels.h): 64 lanes, column i in lane i mod 64, no fused multiply-add, folded in one order. A
// thread of a team of T has 64 / T of those lanes, in pieces of consecutive columns; a fold of lanes that
// lie in one thread is an addition, of others an exchange.
#pragma once

#include "distance/byte_teams_cuda.cuh"
#include "distance/metric_cuda.cuh"
#include "search/cagra_cuda.h"
#include "traverse/walk_steps.cuh"
#include "traverse/shared_sort_cuda.h"
#include "traverse/warp_sort_cuda.h"

namespace gannet::cuda {

/// One query of a block.
struct CagraQuery {
  const uint8_t* values;  // [query_stride]
  uint64_t content;       // the hash
  uint32_t square;        // q.q of bytes
  double norm;            // for cosine
};

/// Hash, square and length of a query, by one warp; all its lanes return the same.
__device__ inline CagraQuery read_query(const CagraArgs& args, bool bytes, uint32_t number) {
  CagraQuery query = {args.queries + uint64_t{number} * args.query_stride, 0, 0, 0};
  const uint32_t* words = reinterpret_cast<const uint32_t*>(query.values);
  for (uint32_t place = lane_number(); place < args.query_words; place += kWarp) {
    const uint32_t word = __ldg(words + place);
    query.content += content_of(word, place);
    if (bytes) query.square = add_products<false>(word, word, query.square);
  }
#pragma unroll
  for (uint32_t half = kWarp / 2; half != 0; half /= 2)
    query.content += __shfl_xor_sync(kAllLanes, query.content, half);
  query.square = __reduce_add_sync(kAllLanes, query.square);
  if (args.metric == ANN_METRIC_COSINE)
    query.norm = *reinterpret_cast<const double*>(query.values + args.value_bytes);
  return query;
}

/// Rows compared by teams: of bytes.
template <RowKind kKind, uint32_t kTeam>
struct Team {
  static_assert(kKind == RowKind::kBytes);

  const CagraArgs& args;
  const CagraQuery& query;

  /// Calls take(place, distance) once for each of rows[0 ... count), on some lane.
  template <class Take>
  __device__ void compare(const uint32_t* rows, uint32_t count, const Take& take) const {
    const ByteTeams<kTeam, ByteSum::kSquare> teams = {query.values, args.stride, threadIdx.x,
                                                      blockDim.x / kTeam};
    teams.compare(
        count,
        [base = args.rows, stride = args.stride, rows](uint32_t place) {
          return base + uint64_t{rows[place]} * stride;
        },
        [&](uint32_t place, uint32_t sum) { take(place, sum + query.square); });
  }
};

template <RowKind kKind>
constexpr int32_t element_of() {
  return kKind == RowKind::kF32 ? ANN_F32 : kKind == RowKind::kF16 ? ANN_F16 : ANN_BF16;
}

/// Of floats.
template <RowKind kKind, uint32_t kTeam>
  requires(kKind != RowKind::kBytes)
struct Team<kKind, kTeam> {
  static constexpr uint32_t kLanes = 64;  // of the CPU's sums
  static constexpr uint32_t kBytes = kKind == RowKind::kF32 ? 4 : 2;
  static constexpr uint32_t kPiece = 16 / kBytes < kLanes / kTeam ? 16 / kBytes : kLanes / kTeam;
  static constexpr uint32_t kPieces = kLanes / (kTeam * kPiece);  // of a thread
  static constexpr uint32_t kSums = kPieces * kPiece;
  static constexpr uint32_t kRounds = kSums < 16 ? 16 / kSums : 1;  // rows that a team has at a time

  const CagraArgs& args;
  const CagraQuery& query;

  template <class Take>
  __device__ void compare(const uint32_t* rows, uint32_t count, const Take& take) const {
    if (args.metric == ANN_METRIC_L2)
      compare_by<false>(rows, count, take);
    else
      compare_by<true>(rows, count, take);
  }

 private:
  static __device__ uint32_t member() { return threadIdx.x % kTeam; }

  template <bool kDot, class Take>
  __device__ void compare_by(const uint32_t* rows, uint32_t count, const Take& take) const {
    const uint32_t teams = blockDim.x / kTeam;
    for (uint32_t base = 0; base < count; base += teams * kRounds) {
      const uint32_t first = base + threadIdx.x / kTeam;
      float sums[kRounds][kSums] = {};
#pragma unroll(kTeam >= 8 ? 2 : 1)
      for (uint32_t column = 0; column < args.columns; column += kLanes)
        add_columns<kDot>(rows, first, teams, count, column, sums);
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
        fold(sums[round]);
        const uint32_t place = first + round * teams;
        if (member() == 0 && place < count) take(place, to_number(sums[round][0], rows[place]));
      }
    }
  }

  /// Adds 64 columns of the rows of a team.
  template <bool kDot>
  __device__ void add_columns(const uint32_t* rows, uint32_t first, uint32_t teams, uint32_t count,
                              uint32_t column, float (&sums)[kRounds][kSums]) const {
#pragma unroll
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      const uint32_t at = column + (piece * kTeam + member()) * kPiece;
      if (at >= args.columns) continue;
      float own[kPiece];
      read_floats(query.values, at, own);
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
        const uint32_t place = first + round * teams;
        if (place >= count) continue;
        float values[kPiece];
        read_row(args.rows + uint64_t{rows[place]} * args.stride, at, values);
#pragma unroll
        for (uint32_t i = 0; i < kPiece; ++i) {
          float& sum = sums[round][piece * kPiece + i];
          const float difference = __fsub_rn(values[i], own[i]);
          sum = __fadd_rn(sum, kDot ? __fmul_rn(values[i], own[i]) : __fmul_rn(difference, difference));
        }
      }
    }
  }

  /// Floats up to a multiple of four columns; zeros beyond. At most 16 bytes are read at once.
  __device__ void read_floats(const uint8_t* vector, uint32_t column, float (&values)[kPiece]) const {
    const float* floats = reinterpret_cast<const float*>(vector) + column;
    if constexpr (kPiece == 2) {
      const float2 two = __ldg(reinterpret_cast<const float2*>(floats));
      values[0] = two.x;
      values[1] = two.y;
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kPiece; i += 4) {
        float4 four = {0, 0, 0, 0};
        if (column + i < args.columns) four = __ldg(reinterpret_cast<const float4*>(floats + i));
        values[i] = four.x;
        values[i + 1] = four.y;
        values[i + 2] = four.z;
        values[i + 3] = four.w;
      }
    }
  }

  __device__ void read_row(const uint8_t* row, uint32_t column, float (&values)[kPiece]) const {
    if constexpr (kKind == RowKind::kF32) {
      read_floats(row, column, values);
    } else {
      uint32_t words[kPiece / 2];
      const uint8_t* from = row + column * kBytes;
      if constexpr (kPiece == 8) {
        const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
      } else if constexpr (kPiece == 4) {
        const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
        words[0] = two.x, words[1] = two.y;
      } else {
        words[0] = __ldg(reinterpret_cast<const uint32_t*>(from));
      }
#pragma unroll
      for (uint32_t i = 0; i < kPiece; ++i)
        values[i] = float_of_bits<element_of<kKind>()>(words[i / 2] >> i % 2 * 16 & 0xffff);
    }
  }

  /// Pieces whose sums have gone into another one's when lanes kStride apart are folded.
  static constexpr uint32_t folded_before(uint32_t stride) {
    uint32_t folded = 0;
    for (const uint32_t earlier : {16u, 32u, 8u, 4u, 2u, 1u}) {
      if (earlier == stride) break;
      const uint32_t pieces = earlier / kPiece;
      if (pieces >= kTeam) folded |= pieces / kTeam;
    }
    return folded;
  }

  template <uint32_t kStride>
  static __device__ void fold_lanes(float (&sums)[kSums]) {
    constexpr uint32_t kFolded = folded_before(kStride);
    if constexpr (kStride < kPiece) {
#pragma unroll
      for (uint32_t i = 0; i < kStride; ++i) sums[i] = __fadd_rn(sums[i], sums[i + kStride]);
    } else {
      constexpr uint32_t kApart = kStride / kPiece;  // in pieces
#pragma unroll
      for (uint32_t piece = 0; piece < kPieces; ++piece) {
        if ((piece & kFolded) != 0) continue;
        if (kApart >= kTeam && (piece & (kApart / kTeam)) != 0) continue;
#pragma unroll
        for (uint32_t i = 0; i < kPiece; ++i) {
          float& sum = sums[piece * kPiece + i];
          if constexpr (kApart >= kTeam)
            sum = __fadd_rn(sum, sums[(piece + kApart / kTeam) * kPiece + i]);
          else
            sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, kApart));
        }
      }
    }
  }

  /// The CPU's fold: 64 lanes to 16 as (l + l+16) + (l+32 + l+48), then by halves.
  static __device__ void fold(float (&sums)[kSums]) {
    fold_lanes<16>(sums);
    fold_lanes<32>(sums);
    fold_lanes<8>(sums);
    fold_lanes<4>(sums);
    fold_lanes<2>(sums);
    fold_lanes<1>(sums);
  }

  /// A sum as a distance, and that as a number of the same order.
  __device__ uint32_t to_number(float sum, uint32_t row) const {
    if (args.stored == 0) return __float_as_uint(sum);  // bits of floats >= 0 keep their order
    return static_cast<uint32_t>(make_key(distance(sum, row), 0) >> 32);
  }

  __device__ float distance(float sum, uint32_t row) const {
    if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
    const float norm = args.norms[row];
    if (is_extreme(query.norm, norm))
      return distance_of_cosine(
          extreme_cosine<element_of<kKind>()>(reinterpret_cast<const float*>(query.values), query.norm,
                                              args.rows + uint64_t{row} * args.stride, args.columns));
    return to_distance(sum, args.metric, query.norm, norm);
  }
};

/// Compares rows by teams of the size that the caller chose; by all threads of the block.
template <RowKind kKind, class Take>
__device__ void compare_rows(const CagraArgs& args, const CagraQuery& query, const uint32_t* rows,
                             uint32_t count, const Take& take) {
  switch (args.team) {
    case 2:
      return Team<kKind, 2>{args, query}.compare(rows, count, take);
    case 4:
      return Team<kKind, 4>{args, query}.compare(rows, count, take);
    case 8:
      return Team<kKind, 8>{args, query}.compare(rows, count, take);
    case 16:
      return Team<kKind, 16>{args, query}.compare(rows, count, take);
    default:
      return Team<kKind, 32>{args, query}.compare(rows, count, take);
  }
}

/// Sorts keys[0 ... count) by a warp and puts kNone behind them, up to kWords * 32 in all.
template <uint32_t kWords>
__device__ void sort_words(uint64_t* keys, uint32_t count) {
  uint64_t sorted[kWords];
#pragma unroll
  for (uint32_t word = 0; word < kWords; ++word) {
    const uint32_t i = word * kWarp + lane_number();
    sorted[word] = i < count ? keys[i] : RowKey::kNone;
  }
  sort_ascending(sorted);
  __syncwarp();
#pragma unroll
  for (uint32_t word = 0; word < kWords; ++word) keys[word * kWarp + lane_number()] = sorted[word];
  __syncwarp();
}

/// Of a sorted list of kWords * 32 places and `size` sorted keys the nearest `length` stay in the list.
template <uint32_t kWords>
__device__ void merge_words(uint64_t* list, uint32_t length, const uint64_t* keys, uint32_t size) {
  constexpr uint32_t kPlaces = kWords * kWarp;
  uint64_t merged[kWords];
#pragma unroll
  for (uint32_t word = 0; word < kWords; ++word) {
    const uint32_t i = word * kWarp + lane_number();
    const uint32_t opposite = kPlaces - 1 - i;
    const uint64_t other = opposite < size ? keys[opposite] : RowKey::kNone;
    merged[word] = min(list[i], other);
  }
  sort_bitonic(merged);
  __syncwarp();
#pragma unroll
  for (uint32_t word = 0; word < kWords; ++word) {
    const uint32_t i = word * kWarp + lane_number();
    list[i] = i < length ? merged[word] : RowKey::kNone;
  }
  __syncwarp();
}

/// The power of two, at least 32, that holds so many keys.
__host__ __device__ constexpr uint32_t warp_size_of(uint32_t count) {
  uint32_t size = kWarp;
  while (size < count) size *= 2;
  return size;
}

/// Section IV-B2, up to 512 candidates: they are sorted, then merged into the sorted list, both in the
/// registers of one warp. `list` has warp_size_of(length) places, `keys` warp_size_of(count).
static __device__ __noinline__ void update_list(uint64_t* list, uint32_t length, uint64_t* keys,
                                                uint32_t count) {
  const uint32_t size = warp_size_of(count);
  switch (size) {
    case 32:
      sort_words<1>(keys, count);
      break;
    case 64:
      sort_words<2>(keys, count);
      break;
    case 128:
      sort_words<4>(keys, count);
      break;
    case 256:
      sort_words<8>(keys, count);
      break;
    default:
      sort_words<16>(keys, count);
      break;
  }
  switch (warp_size_of(length)) {
    case 32:
      return merge_words<1>(list, length, keys, size);
    case 64:
      return merge_words<2>(list, length, keys, size);
    case 128:
      return merge_words<4>(list, length, keys, size);
    case 256:
      return merge_words<8>(list, length, keys, size);
    default:
      return merge_words<16>(list, length, keys, size);
  }
}

/// The `width` nearest rows of a sorted list that have not been parents are marked and named; how many.
/// By one warp.
__device__ inline uint32_t take_parents(uint64_t* list, uint32_t length, uint32_t width, uint32_t* parents) {
  uint32_t taken = 0;
  for (uint32_t first = 0; first < length && taken < width; first += kWarp) {
    const uint32_t i = first + lane_number();
    const uint64_t key = i < length ? list[i] : RowKey::kNone;  // whose flag is set
    const bool is_new = !RowKey::flag(key);
    const uint32_t news = __ballot_sync(kAllLanes, is_new);
    const uint32_t place = taken + __popc(news & lanes_before());
    if (is_new && place < width) {
      parents[place] = RowKey::row(key);
      list[i] = key | RowKey::kFlag;
    }
    taken += __popc(news);
  }
  __syncwarp();
  return min(taken, width);
}

/// A random row (step (0)), kNoRow where there is none or it is hidden.
__device__ inline uint32_t shown_start(const CagraArgs& args, uint64_t content, uint32_t places,
                                       uint32_t place) {
  const uint32_t row = start_row(content, args.row_count, places, place);
  return row != kNoRow && args.hidden.holds(row) ? kNoRow : row;
}

// Two steps of searches that leave rows out. They are not inlined, because walks have no register left for them:
// CAGRA's took 6 to 9 % longer, TSDG's 3 % (one NVIDIA H200, 1M SIFT rows).

static __device__ __noinline__ bool is_removed(const RowSetView& removed, uint32_t row) {
  return removed.holds(row);
}

/// Leaves the keys that may be answered, in order. By a block; `size` is a power of two.
static __device__ __noinline__ void drop_removed(const RowSetView& removed, uint64_t* keys, uint32_t size) {
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x)
    if (keys[i] != RowKey::kNone && removed.holds(RowKey::row(keys[i]))) keys[i] = RowKey::kNone;
  __syncthreads();
  sort_shared(keys, size, BlockSorts{});
}

/// Writes the answer of a query from sorted keys.
__device__ inline void write_found(const CagraArgs& args, uint32_t query, const uint64_t* keys,
                                   uint32_t places) {
  for (uint32_t i = threadIdx.x; i < args.kept; i += blockDim.x) {
    const uint64_t key = i < places ? keys[i] : RowKey::kNone;
    const uint64_t place = uint64_t{query} * args.kept + i;
    args.out_rows[place] = key == RowKey::kNone ? kNoRow : RowKey::row(key);
    if (args.out_distances != nullptr)
      args.out_distances[place] = key == RowKey::kNone ? INFINITY : __uint2float_rn(RowKey::distance(key));
  }
}

}  // namespace gannet::cuda

// Steps of a walk over a SearchGraph by one warp: which rows have been visited, and how far rows lie.
//
// A warp compares up to 32 rows at a time. Teams of four lanes take a row each, eight rows a round,
// four rounds, and all rounds' loads are on their way before the first is used: 8 loads of 16 bytes
// in flight a lane. The four partial sums of a lane are then turned round within its team, half of
// them given away and half received at each level, so that three exchanges leave every lane with the
// distance of one row.
//
// Measured elsewhere on one NVIDIA H200 (1M SIFT rows of 128 bytes, 64 edges a row): eight lanes a row
// instead of four took 4 to 16 % more time, two lanes 6 % more; x.x from memory instead of four more
// products 3 to 7 % more; loads that leave no trace in the first cache 15 % more. Measured here, likewise:
// branches past the rounds for which there are no rows 3 to 5 % more, past the latter two rounds 0 to 1 % more.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "dataset/codes.h"
#include "distance/metric_cuda.cuh"
#include "traverse/row_key.h"
#include "traverse/visited_bloom.h"

namespace gannet::cuda {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xffffffff;
constexpr uint32_t kFarthest = 0xffffffff;  // a code distance behind every other

__device__ inline uint32_t lane_number() { return threadIdx.x % kWarp; }
__device__ inline uint32_t lanes_before() { return (1u << lane_number()) - 1; }

/// The rows that one warp has visited: a Bloom filter (traverse/visited_bloom.h) whose number of words is known when
/// the kernel is compiled, or where kWords is 0 when it is launched. A row has two bits in each of two words: 4 KB
/// with 1,300 rows take one new row in a thousand for a visited one, with 6,600 one in ten. Where the number of words
/// is given, all rows of long beams are marked, and a row has one bit in each: of four bits 32 KB with 80,000 rows
/// lose a quarter of the new rows, of two a fifth.
template <uint32_t kWords>
struct VisitedBloom {
  static_assert((kWords & (kWords - 1)) == 0 && (kWords == 0 || kWords >= 128));

  static constexpr bool kTwoOfWord = kWords != 0;  // bits of a row

  uint32_t* words;          // in shared memory, 16-byte aligned
  uint32_t given_bits = 0;  // where kWords is 0: there are 2^given_bits words

  __device__ uint32_t word_bits() const {
    if constexpr (kWords != 0)
      return 31 - __builtin_clz(kWords);
    else
      return given_bits;
  }

  __device__ void clear() {
    for (uint32_t i = lane_number(); i < 1u << word_bits() >> 2; i += kWarp)
      reinterpret_cast<uint4*>(words)[i] = {0, 0, 0, 0};
    __syncwarp();
  }

  /// Whether a row may be new; with `marks` it is marked, and of equal rows in one call one is new.
  __device__ bool is_new(uint32_t row, bool marks) {
    const Bits first = bits_of(row * 0x9e3779b1);
    const Bits second = bits_of(mixed_row(row));
    uint32_t first_word;
    uint32_t second_word;
    if (marks) {
      first_word = atomicOr(first.word, first.mask);
      second_word = atomicOr(second.word, second.mask);
    } else {
      first_word = *first.word;
      second_word = *second.word;
    }
    return (~first_word & first.mask) != 0 || (~second_word & second.mask) != 0;
  }
  __device__ bool enter(uint32_t row) { return is_new(row, true); }

 private:
  struct Bits {
    uint32_t* word;
    uint32_t mask;
  };
  /// Those that the upper part of a hash names.
  __device__ Bits bits_of(uint32_t hash) const {
    const uint32_t rest = hash << word_bits();
    uint32_t* const word = words + (hash >> (32 - word_bits()));
    if constexpr (kTwoOfWord) return {word, 1u << (rest >> 27) | 1u << (rest >> 22 & 31)};
    return {word, 1u << (rest >> 27)};
  }
};

/// How codes are read. `row_bytes` is 64 or 128 where a row is that long, 0 for rows of any length, which
/// are read in pieces of 128 bytes. With `query_in_registers` the query stays there; else every comparison reads
/// it again, from shared memory or as a rule from the first cache. Queries of several pieces do not. Halves are
/// compared with a query of floats, whose code is twice as long as a row.
struct CodePolicy {
  CodeKind kind;
  uint32_t row_bytes;
  bool query_in_registers;
  bool in_shared = false;  // where the query lies
};

/// The teams of a warp that compares up to 32 rows, each lane of which reads kLoads times 16 bytes of a row at once.
template <uint32_t kLoads>
struct RowTeams {
  static constexpr uint32_t kTeam = 4;  // lanes of a row
  static constexpr uint32_t kTeams = kWarp / kTeam;
  static constexpr uint32_t kRounds = kWarp / kTeams;
  static constexpr uint32_t kLoadBytes = kTeam * sizeof(uint4);  // of a row by one load of its team
  static constexpr uint32_t kPiece = kLoads * kLoadBytes;

  static __device__ uint32_t team() { return lane_number() / kTeam; }
  static __device__ uint32_t member() { return lane_number() % kTeam; }

  /// The place, among the rows of a comparison, whose distance this lane gets.
  static __device__ uint32_t place() { return member() * kTeams + team(); }

  /// Asks for a piece of this team's rows, from `byte` on, where reaches(byte, load) says that a load is within a row.
  template <class Reaches>
  static __device__ void read_rows(const uint8_t* codes, uint32_t stride, const uint32_t* rows, uint32_t byte,
                                   uint32_t count, const Reaches& reaches, uint4 (&values)[kRounds][kLoads]) {
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t item = round * kTeams + team();
      if (item >= count) continue;
      const uint8_t* source = codes + uint64_t{rows[item]} * stride + (byte + member() * sizeof(uint4));
#pragma unroll
      for (uint32_t load = 0; load < kLoads; ++load) {
        if (reaches(byte, load))
          values[round][load] = __ldg(reinterpret_cast<const uint4*>(source + load * kLoadBytes));
      }
    }
  }

  /// Asks for kRounds pieces of this team's row, from `byte` on.
  template <class Reaches>
  static __device__ void read_row(const uint8_t* row, uint32_t byte, const Reaches& reaches,
                                  uint4 (&values)[kRounds][kLoads]) {
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t at = byte + round * kPiece;
#pragma unroll
      for (uint32_t load = 0; load < kLoads; ++load) {
        if (!reaches(at, load)) continue;
        const uint8_t* source = row + at + load * kLoadBytes + member() * sizeof(uint4);
        values[round][load] = __ldg(reinterpret_cast<const uint4*>(source));
      }
    }
  }

  /// Asks the second cache for the lines of this team's rows behind their first piece, each lane for every fourth.
  static __device__ void prefetch_rows(const uint8_t* codes, uint32_t stride, const uint32_t* rows,
                                       uint32_t count) {
    constexpr uint32_t kLine = 128;
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t item = round * kTeams + team();
      if (item >= count) continue;
      const uint8_t* row = codes + uint64_t{rows[item]} * stride;
      for (uint32_t byte = kPiece + member() * kLine; byte < stride; byte += kTeam * kLine)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + byte));
    }
  }

  /// From this lane's part of the sum of its team's row to the whole, as turn() adds it.
  template <class Sum>
  static __device__ Sum sum_of_team(Sum sum) {
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    return sum + __shfl_xor_sync(kAllLanes, sum, 1);
  }

  /// From this lane's parts of the sums of its team's rows to the sum of row place().
  template <class Sum>
  static __device__ Sum turn(Sum (&sums)[kRounds]) {
    exchange<2>(sums);
    exchange<1>(sums);
    return sums[0];
  }

 private:
  /// Gives half of the sums to the lane `kHalf` away and adds its sums to the other half.
  template <uint32_t kHalf, class Sum>
  static __device__ void exchange(Sum (&sums)[kRounds]) {
    const bool upper = (member() & kHalf) != 0;
#pragma unroll
    for (uint32_t i = 0; i < kHalf; ++i) {
      const Sum mine = upper ? sums[i + kHalf] : sums[i];
      const Sum others = upper ? sums[i] : sums[i + kHalf];
      sums[i] = mine + __shfl_xor_sync(kAllLanes, others, kHalf);
    }
  }
};

constexpr uint32_t loads_of(const CodePolicy& code) { return code.row_bytes == 64 ? 1 : 2; }

template <CodePolicy kCode>
struct RowComparison : RowTeams<loads_of(kCode)> {
  static constexpr uint32_t kLoads = loads_of(kCode);
  using Teams = RowTeams<kLoads>;
  using Teams::kLoadBytes, Teams::kPiece, Teams::kRounds, Teams::kTeams, Teams::member, Teams::place,
      Teams::team;
  static constexpr bool kIsFloat = kCode.kind != CodeKind::kUnsigned;
  static constexpr bool kIsHalf = kCode.kind == CodeKind::kHalf;
  static_assert(!kIsHalf || !kCode.query_in_registers);
  // Blocks of few queries wait for one piece of wide rows after the other, but in clusters (compare_few). One NVIDIA
  // H100, one query, 100 and 1,000: gist .89 to .96 of the time, texts of 384 columns .95 to 1.00; halves of patches
  // 1.02, and 10,000 queries, a warp each, which wait for bandwidth, 1.05 to 1.23, so that neither prefetches.
  static constexpr bool kPrefetches = kCode.row_bytes == 0 && kCode.in_shared && !kIsFloat;
  using Sum = std::conditional_t<kIsFloat, float, uint32_t>;

  const uint32_t& stride_given;    // bytes, in the constant bank
  const uint8_t* query = nullptr;  // [stride], of halves twice that
  uint4 registers[kLoads];         // this lane's part of the query, if it stays there
  uint32_t query_square = 0;       // q.q of bytes

  explicit __device__ RowComparison(const uint32_t& stride) : stride_given(stride) {}

  __device__ uint32_t stride() const { return kCode.row_bytes != 0 ? kCode.row_bytes : stride_given; }

  __device__ void begin(const uint8_t* code) {
    query = code;
    if constexpr (kCode.query_in_registers) read_query(0, registers);
    if constexpr (kIsFloat) return;
    query_square = 0;
    for (uint32_t byte = lane_number() * 16; byte < stride(); byte += kWarp * 16) {
      const uint4 words = read(query + byte);
      query_square = add_products(words, words, query_square);
    }
    query_square = __reduce_add_sync(kAllLanes, query_square);
  }

  /// The distance of row rows[place()] of `codes`, [rows, stride], or kFarthest where place() is not
  /// below `count`. Calls meanwhile() once the first loads are on their way.
  template <class Meanwhile>
  __device__ uint32_t compare(const uint8_t* codes, const uint32_t* rows, uint32_t count,
                              const Meanwhile& meanwhile) const {
    Sum sums[kRounds] = {};
    add_piece(codes, rows, 0, count, sums, [&] {
      if constexpr (kPrefetches) Teams::prefetch_rows(codes, stride(), rows, count);
      meanwhile();
    });
    if constexpr (kCode.row_bytes == 0) {
      for (uint32_t byte = kPiece; byte < stride(); byte += kPiece)
        add_piece(codes, rows, byte, count, sums, [] {});
    }
    return distance_at(Teams::turn(sums), count);
  }

  /// As compare(), bit for bit, of no more rows than there are teams: pieces of a row come together, where compare()
  /// asks for one of four rows, and waits for memory once for each piece.
  __device__ uint32_t compare_few(const uint8_t* codes, const uint32_t* rows, uint32_t count) const {
    static_assert(kCode.row_bytes == 0);
    Sum sum = 0;
    const bool has_row = team() < count;
    const uint8_t* row = codes + uint64_t{rows[has_row ? team() : 0]} * stride();
    const auto reach = [&](uint32_t at, uint32_t load) {
      return has_row && at < stride() && reaches(at, load);
    };
    for (uint32_t byte = 0; byte < stride(); byte += kRounds * kPiece) {
      uint4 values[kRounds][kLoads];
      Teams::read_row(row, byte, reach, values);
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
        const uint32_t at = byte + round * kPiece;
#pragma unroll
        for (uint32_t load = 0; load < kLoads; ++load)
          if (reach(at, load)) sum = add_part(values[round][load], at + load * kLoadBytes, sum);
      }
    }
    return distance_at(Teams::sum_of_team(sum), count);
  }

 private:
  /// Of the row of place(), of which there may be none.
  __device__ uint32_t distance_at(Sum sum, uint32_t count) const {
    if (place() >= count) return kFarthest;
    if constexpr (kIsFloat)
      return __float_as_uint(sum);  // bits of floats >= 0 keep their order
    else
      return sum + query_square;
  }

  /// Adds this lane's part of a row, which starts `at` bytes into the team's.
  __device__ Sum add_part(const uint4& row, uint32_t at, Sum sum) const {
    const uint32_t own = at + member() * sizeof(uint4);
    if constexpr (kIsHalf)
      return add_half_part(row, read(query + 2 * own), read(query + 2 * own + sizeof(uint4)), sum);
    else
      return add(row, read(query + own), sum);
  }

  static __device__ float add_half_part(const uint4& row, const uint4& low, const uint4& high, float sum) {
    sum = add_pair(row.x, low.x, low.y, sum);
    sum = add_pair(row.y, low.z, low.w, sum);
    sum = add_pair(row.z, high.x, high.y, sum);
    return add_pair(row.w, high.z, high.w, sum);
  }

  static __device__ uint4 read(const uint8_t* part_of_query) {
    const uint4* words = reinterpret_cast<const uint4*>(part_of_query);
    return kCode.in_shared ? *words : __ldg(words);
  }

  __device__ bool reaches(uint32_t byte, uint32_t load) const {
    return kCode.row_bytes != 0 || load == 0 || byte + load * kLoadBytes < stride();
  }

  __device__ void read_query(uint32_t byte, uint4* part) const {
#pragma unroll
    for (uint32_t load = 0; load < kLoads; ++load) {
      const uint32_t at = byte + load * kLoadBytes;
      part[load] = {0, 0, 0, 0};
      if (reaches(byte, load)) part[load] = read(query + at + member() * sizeof(uint4));
    }
  }

  template <class Meanwhile>
  __device__ void add_piece(const uint8_t* codes, const uint32_t* rows, uint32_t byte, uint32_t count,
                            Sum* sums, const Meanwhile& meanwhile) const {
    uint4 values[kRounds][kLoads];
    const auto reach = [&](uint32_t at, uint32_t load) { return reaches(at, load); };
    Teams::read_rows(codes, stride(), rows, byte, count, reach, values);
    meanwhile();
    if constexpr (kIsHalf) return add_halves(values, byte, count, sums);
    uint4 piece[kLoads];
    if constexpr (!kCode.query_in_registers) read_query(byte, piece);
    const uint4* part = kCode.query_in_registers ? registers : piece;
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
#pragma unroll
      for (uint32_t load = 0; load < kLoads; ++load) {
        if (round * kTeams + team() < count && reaches(byte, load))
          sums[round] = add(values[round][load], part[load], sums[round]);
      }
    }
  }

  /// A part of the query is read for all rounds at once, which saves registers.
  __device__ void add_halves(const uint4 (&values)[kRounds][kLoads], uint32_t byte, uint32_t count,
                             Sum* sums) const {
#pragma unroll
    for (uint32_t load = 0; load < kLoads; ++load) {
      if (!reaches(byte, load)) continue;
      const uint8_t* part = query + 2 * (byte + load * kLoadBytes + member() * sizeof(uint4));
      const uint4 low = read(part);
      const uint4 high = read(part + sizeof(uint4));
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
        if (round * kTeams + team() >= count) continue;
        sums[round] = add_half_part(values[round][load], low, high, sums[round]);
      }
    }
  }

  static __device__ float add_pair(uint32_t halves, uint32_t first, uint32_t second, float sum) {
    const float2 row = __half22float2(reinterpret_cast<const __half2&>(halves));
    return add_square(__float_as_uint(row.y), second, add_square(__float_as_uint(row.x), first, sum));
  }

  static __device__ float add_square(uint32_t a, uint32_t b, float sum) {
    const float difference = __uint_as_float(a) - __uint_as_float(b);
    return fmaf(difference, difference, sum);
  }

  /// |x - q|^2 of floats; of bytes x.x - 2 x.q, to which q.q is added at the end. Modulo 2^32 that is
  /// exact, and the whole is below 2^31.
  static __device__ Sum add(const uint4& row, const uint4& query, Sum sum) {
    if constexpr (kIsFloat) {
      sum = add_square(row.x, query.x, sum);
      sum = add_square(row.y, query.y, sum);
      sum = add_square(row.z, query.z, sum);
      return add_square(row.w, query.w, sum);
    } else {
      return add_products(row, row, sum) - 2 * add_products(row, query, 0);
    }
  }
};

/// A row and its distance, in a sorted list that has one place in each lane.
struct ListEntry {
  uint32_t distance = kFarthest;
  uint32_t row = kNoRow;
};

__device__ inline ListEntry shuffle(const ListEntry& item, uint32_t lane) {
  return {__shfl_sync(kAllLanes, item.distance, lane), __shfl_sync(kAllLanes, item.row, lane)};
}

/// Compares with the lane `stride` away and keeps the lesser or the greater of the two.
template <bool kByRow>
__device__ void order(ListEntry& item, uint32_t stride, bool keep_lesser) {
  const ListEntry other = {__shfl_xor_sync(kAllLanes, item.distance, stride),
                           __shfl_xor_sync(kAllLanes, item.row, stride)};
  bool less = other.distance < item.distance;
  bool greater = other.distance > item.distance;
  if constexpr (kByRow) {
    const bool equal = other.distance == item.distance;
    less |= equal && other.row < item.row;
    greater |= equal && other.row > item.row;
  }
  if (keep_lesser ? less : greater) item = other;
}

/// Sorts a list that rises and then falls, ascending.
template <bool kByRow = false>
__device__ void sort_bitonic(ListEntry& item) {
#pragma unroll
  for (uint32_t stride = kWarp / 2; stride != 0; stride /= 2)
    order<kByRow>(item, stride, (lane_number() & stride) == 0);
}

/// T: how far rows are still expanded, when `distance` is that of the k-th best. kFarthest stays.
template <CodeKind kKind>
__device__ uint32_t stretched(uint32_t distance, float stretch) {
  if (distance == kFarthest) return kFarthest;
  if constexpr (kKind != CodeKind::kUnsigned)
    return __float_as_uint(__uint_as_float(distance) * stretch);
  else
    return __float2uint_rz(__uint2float_rn(distance) * stretch);  // the largest if beyond
}

/// Sorts one item in each lane, ascending.
template <bool kByRow = false>
__device__ void sort_lanes(ListEntry& item) {
#pragma unroll
  for (uint32_t run = 2; run < kWarp; run *= 2) {
#pragma unroll
    for (uint32_t stride = run / 2; stride != 0; stride /= 2)
      order<kByRow>(item, stride, ((lane_number() & stride) == 0) == ((lane_number() & run) == 0));
  }
  sort_bitonic<kByRow>(item);
}

/// Puts one item into a sorted list; the last one falls off.
__device__ inline void insert(ListEntry& list, const ListEntry& item) {
  ListEntry previous = {__shfl_up_sync(kAllLanes, list.distance, 1), __shfl_up_sync(kAllLanes, list.row, 1)};
  if (lane_number() == 0) previous.distance = 0;
  if (item.distance < previous.distance)
    list = previous;
  else if (item.distance < list.distance)
    list = item;
}

/// Merges a list in descending order into an ascending one and keeps the nearest.
__device__ inline void merge(ListEntry& list, const ListEntry& descending) {
  if (descending.distance < list.distance) list = descending;
  sort_bitonic(list);
}

}  // namespace gannet::cuda

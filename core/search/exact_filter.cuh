// Exact search on the GPU: many queries, filtered by tensor cores.
//
// Products of halves (exact_halves.cuh) are no answers: they say how far apart a pair is at least, and pairs that
// this does not put behind the k-th best are marked, and summed later in the CPU's lanes (exact_near.cuh). With u =
// 2^-11 a rounded value is within u of the value, as a share of it, so a sum of d products is within some (2 u + d
// 2^-22) |q| |x| of the true one, the sum's rounding included (product_error has all of it). L2 is the same about any
// point, and a difference from the centre of some rows is rounded like any float: so lengths are those about the
// centre, and rows far from the origin are as distinct as others. Where something is no number the pair is summed.
// Products of integers are exact, and so are their sums; a pair's distance is taken from them in floats, with room
// for that.
//
// Rows in a few islands are all near by these products, each to those of its own. To sum a pair takes as long as to
// multiply 100 to 200. So where more than a 64th of the pairs has been marked, those that follow are multiplied three
// times: halves with halves, halves with what the others have lost, and that with halves, which have 21 bits together.
//
//   here         tile      128 queries x 256 rows, or 128 where shared memory is short
//                panel     64 columns of a tile, of integers 128: 128 bytes of each of its vectors, in eight pieces
//                stage     a panel on its way to shared memory or there; several are under way at once
//                run       the tiles that a block goes through for its queries
//                mark      a bit of a pair that may be near
//
// A warp has 64 x 64 sums, in 128 registers of a lane. For 16 columns of halves, or 32 of integers, it reads 4 KB of
// shared memory, which takes 32 cycles, and makes 65,536 or 131,072 products, which takes 48. A tile reads 384
// vectors for 32,768 pairs: a byte of the cache for 43 products, with 128 x 128 pairs for 32. A pair costs three more
// instructions and a comparison, the same for every number of columns: at 128 columns two fifths of the products'
// time. Marks of 4,096 queries and 65,536 rows take 32 MB, whatever is near; lists of pairs overflow where all are.
// One NVIDIA H200, kernels alone: 350 TFLOP/s at 512 columns, 240 at 128; tensor cores are busy for .55 of the
// cycles, and this instruction keeps them busy for some .65 at most.
#pragma once

#include "search/exact_halves.cuh"

namespace gannet::cuda {
namespace exact_search {

/// Where the mark of a row stands among those of 32 rows side by side: each of four lanes has two of every eight rows.
__device__ inline uint32_t row_of_mark(uint32_t bit) { return bit % 8 / 2 * 8 + bit / 8 * 2 + bit % 2; }

constexpr float kTiny = 1e-34f;  // room for products too small for a float

/// Vectors of one side, as products take them.
struct FilterVectors {
  const uint8_t* first;  // [count, stride] bytes
  uint32_t stride;
  uint32_t bytes;  // of a vector, beyond which are zeros
};

/// Of floats. The passes of careful products are those of both sides' halves, those of rows' low parts, and those of
/// queries'.
struct HalfProducts {
  using Sum = float;
  static constexpr uint32_t kPassesMax = 3;

  static __device__ bool is_careful(const ExactArgs& args) { return args.care.is_careful(); }
  static __device__ FilterVectors queries(const ExactArgs& args, uint32_t pass) {
    return {args.query_halves + (pass == 2 ? args.half_bytes : 0), 2 * args.half_bytes, args.half_bytes};
  }
  static __device__ FilterVectors rows(const ExactArgs& args, uint32_t pass) {
    return {args.row_halves + (pass == 1 ? args.half_bytes : 0), 2 * args.half_bytes, args.half_bytes};
  }
  static __device__ void multiply(Sum (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]) {
    multiply_halves(sums, left, right);
  }
  static __device__ float scale(const ExactArgs& args, uint32_t query) { return args.query_scales[query]; }
  static __device__ float square(const ExactArgs& args, uint32_t query) {
    return __uint_as_float(args.query_squares[query]);
  }
  static __device__ float error(const ExactArgs& args, bool careful) {
    return product_error(args.dim, careful);
  }
};

/// Of integers, as they are.
template <bool kSigned>
struct ByteProducts {
  using Sum = int32_t;
  static constexpr uint32_t kPassesMax = 1;

  static __device__ bool is_careful(const ExactArgs&) { return false; }
  static __device__ FilterVectors queries(const ExactArgs& args, uint32_t) {
    return {args.queries, args.query_stride, args.row_stride};
  }
  static __device__ FilterVectors rows(const ExactArgs& args, uint32_t) {
    return {args.rows, args.row_stride, args.row_stride};
  }
  static __device__ void multiply(Sum (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]) {
    multiply_bytes<kSigned>(sums, left, right);
  }
  static __device__ float scale(const ExactArgs&, uint32_t) { return 1; }
  static __device__ float square(const ExactArgs& args, uint32_t query) {
    return args.metric == ANN_METRIC_L2 ? static_cast<float>(args.query_squares[query]) : 0;
  }
  static __device__ float error(const ExactArgs&, bool) { return 0; }
};

template <FilterTile kTile, class Products>
struct NearFilter {
  using Args = ExactArgs;
  static constexpr uint32_t kThreads = kFilterThreads;
  static constexpr uint32_t kRows = kTile.rows;
  static constexpr uint32_t kStages = kTile.stages;
  static constexpr uint32_t kPieces = kFilterPanelBytes / 16;
  static constexpr uint32_t kWarpQueries = 64;
  static constexpr uint32_t kSide = kThreads / 32 / (kFilterQueries / kWarpQueries);  // warps side by side
  static constexpr uint32_t kWarpRows = kRows / kSide;
  static constexpr uint32_t kStrips = kWarpQueries / 16;  // of queries that an instruction multiplies
  static constexpr uint32_t kAcross = kWarpRows / 8;      // with so many rows
  static constexpr uint32_t kGroups = kWarpRows / 32;     // of rows whose marks are one word
  static constexpr uint32_t kLaneQueries = 2 * kStrips;
  static constexpr uint32_t kStep = kThreads / kPieces;  // vectors of which all threads fetch a piece at once

  struct Stage {
    uint4 queries[kFilterQueries * kPieces];
    uint4 rows[kRows * kPieces];
  };
  struct Shared {
    Stage stages[kStages];
    float4 terms[kStages][kRows];    // of tiles that are under way
    float4 queries[kFilterQueries];  // scale, share and room of each query
  };

  const ExactArgs& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t query_begin = blockIdx.x * kFilterQueries;
  uint32_t warp_query = threadIdx.x / 32 / kSide * kWarpQueries;
  uint32_t warp_row = threadIdx.x / 32 % kSide * kWarpRows;
  uint32_t begin = blockIdx.y * args.slice_rows;
  uint32_t end = min(begin + args.slice_rows, args.row_count);
  bool careful = Products::is_careful(args);
  uint32_t panels = (careful ? Products::kPassesMax : 1) * args.panels;
  typename Products::Sum sums[kStrips][kAcross][4] = {};

  __device__ void run() {
    if (begin >= end) return;
    if (threadIdx.x < kFilterQueries) shared.queries[threadIdx.x] = query_terms(query_begin + threadIdx.x);
    const uint32_t steps = (end - begin + kRows - 1) / kRows * panels;
    Place next{begin, 0, 0, 0};
    for (uint32_t i = 0; i + 1 < kStages; ++i) fetch(next);
    Place place{begin, 0, 0, 0};
    for (uint32_t step = 0; step < steps; ++step) {
      wait_copies<kStages - 2>();
      __syncthreads();  // the panel is there, and the stage before it has been read by all
      fetch(next);
      multiply(shared.stages[place.stage]);
      if (place.panel + 1 == panels) mark(place);
      advance(place);
    }
    wait_copies<0>();
  }

 private:
  /// A panel of a tile, and where it and the tile's terms are in shared memory.
  struct Place {
    uint32_t row;
    uint32_t panel;
    uint32_t stage;
    uint32_t tile;
  };

  __device__ void advance(Place& place) const {
    place.stage = place.stage + 1 == kStages ? 0 : place.stage + 1;
    if (++place.panel < panels) return;
    place.panel = 0;
    place.row += kRows;
    place.tile = place.tile + 1 == kStages ? 0 : place.tile + 1;
  }

  /// A row's pieces stand side by side, in an order that changes with every row, so that the eight rows of a matrix are
  /// in different banks.
  static __device__ uint32_t at(uint32_t vector, uint32_t piece) {
    return vector * kPieces + (piece ^ (vector % kPieces));
  }

  __device__ void fetch(Place& next) {
    if (next.row < end) {
      Stage& stage = shared.stages[next.stage];
      const uint32_t piece = threadIdx.x % kPieces;
      const uint32_t pass = (next.panel >= args.panels ? 1 : 0) + (next.panel >= 2 * args.panels ? 1 : 0);
      const uint32_t byte = (next.panel - pass * args.panels) * kFilterPanelBytes + piece * 16;
      const uint32_t first = threadIdx.x / kPieces;
      const FilterVectors queries = Products::queries(args, pass);
#pragma unroll
      for (uint32_t i = 0; i < kFilterQueries / kStep; ++i) {
        const uint32_t query = query_begin + first + i * kStep;
        const bool there = query < args.query_count && byte < queries.bytes;
        copy_piece(&stage.queries[at(first + i * kStep, piece)],
                   queries.first + (there ? uint64_t{query} * queries.stride + byte : 0), there);
      }
      const FilterVectors rows = Products::rows(args, pass);
#pragma unroll
      for (uint32_t i = 0; i < kRows / kStep; ++i) {
        const uint32_t row = next.row + first + i * kStep;
        const bool there = row < end && byte < rows.bytes;
        copy_piece(&stage.rows[at(first + i * kStep, piece)],
                   rows.first + (there ? uint64_t{row} * rows.stride + byte : 0), there);
      }
      if (next.panel == 0 && threadIdx.x < kRows) {
        const uint32_t row = next.row + threadIdx.x;
        copy_piece(reinterpret_cast<uint4*>(&shared.terms[next.tile][threadIdx.x]),
                   args.row_terms + (row < end ? row : 0), row < end);
      }
      advance(next);
    }
    commit_copies();
  }

  /// What is multiplied next is read before the products before it, which hide that.
  __device__ void multiply(const Stage& stage) {
    constexpr uint32_t kSteps = kPieces / 2;  // of 32 bytes, which an instruction multiplies
    constexpr uint32_t kPairs = kAcross / 2;
    uint32_t left[2][kStrips][4];
    uint32_t right[2][4];
    read_left(stage, 0, left[0]);
    read_right(stage, 0, 0, right[0]);
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
#pragma unroll
      for (uint32_t pair = 0; pair < kPairs; ++pair) {
        const uint32_t number = step * kPairs + pair;
        if (number + 1 < kSteps * kPairs)
          read_right(stage, (number + 1) / kPairs, (number + 1) % kPairs, right[(number + 1) % 2]);
        if (pair == 0 && step + 1 < kSteps) read_left(stage, step + 1, left[(step + 1) % 2]);
        const uint32_t(&words)[4] = right[number % 2];
#pragma unroll
        for (uint32_t strip = 0; strip < kStrips; ++strip) {
          Products::multiply(sums[strip][2 * pair], left[step % 2][strip], {words[0], words[1]});
          Products::multiply(sums[strip][2 * pair + 1], left[step % 2][strip], {words[2], words[3]});
        }
      }
    }
  }

  __device__ void read_left(const Stage& stage, uint32_t step, uint32_t (&left)[kStrips][4]) const {
#pragma unroll
    for (uint32_t strip = 0; strip < kStrips; ++strip)
      load_matrices(left[strip],
                    &stage.queries[at(warp_query + 16 * strip + lane % 16, 2 * step + lane / 16)]);
  }

  /// Twice eight rows.
  __device__ void read_right(const Stage& stage, uint32_t step, uint32_t pair, uint32_t (&right)[4]) const {
    load_matrices(right,
                  &stage.rows[at(warp_row + 16 * pair + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2)]);
  }

  /// Marks the pairs of a tile that may be near, and clears its sums. Rows behind the last get any mark.
  __device__ void mark(const Place& place) {
    const float4* rows = shared.terms[place.tile] + warp_row;
    float scale[kLaneQueries], share[kLaneQueries], room[kLaneQueries];
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      const float4 query = shared.queries[warp_query + 8 * q + lane / 4];
      scale[q] = query.x;
      share[q] = query.y;
      room[q] = query.z;
    }
#pragma unroll
    for (uint32_t group = 0; group < kGroups; ++group) {
      uint32_t marks[kLaneQueries] = {};
#pragma unroll
      for (uint32_t bit = 0; bit < 8; ++bit) {
        const uint32_t across = group * 4 + bit / 2;
        const float4 row = rows[8 * across + lane % 4 * 2 + bit % 2];
#pragma unroll
        for (uint32_t q = 0; q < kLaneQueries; ++q) {
          typename Products::Sum& sum = sums[q / 2][across][q % 2 * 2 + bit % 2];
          const float excess = fmaf(-share[q], row.y, fmaf(scale[q], static_cast<float>(sum), row.x));
          // Where something is no number, the pair may be near.
          if (!(excess > room[q] * row.z)) marks[q] |= 1u << bit;
          sum = 0;
        }
      }
      write(marks, (place.row + warp_row) / 32 + group);
    }
  }

  /// Joins the marks of four lanes to words, each of which lanes write for two of the queries.
  __device__ void write(uint32_t (&marks)[kLaneQueries], uint32_t word) const {
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      uint32_t joined = marks[q] << (lane % 4 * 8);
      joined |= __shfl_xor_sync(kAllLanes, joined, 1);
      joined |= __shfl_xor_sync(kAllLanes, joined, 2);
      const uint32_t query = query_begin + warp_query + 8 * q + lane / 4;
      if (lane % 4 == q % 4 && query < args.query_count)
        args.marks[uint64_t{query} * args.mark_words + word] = joined;
    }
  }

  /// A pair may be near unless scale * sum + row.term - share * row.length > room * row.scale.
  __device__ float4 query_terms(uint32_t query) const {
    if (query >= args.query_count) return {0, 0, 0, 0};
    const uint32_t bound = args.bounds[query];
    const float farthest = bound == UINT32_MAX ? INFINITY : distance_of(Key{bound} << 32);
    const float rounded = float_error(args.dim);
    const float limit = farthest + fabsf(farthest) * rounded + kTiny;
    const float wrong = Products::error(args, careful);
    const float scale = Products::scale(args, query);
    if (args.metric == ANN_METRIC_COSINE) {
      const float length = length_or_nothing(static_cast<float>(args.query_norms[query]));
      return {-scale, (wrong + limit - 1 + rounded) * length, 0, 0};
    }
    const float square = Products::square(args, query);
    const float length = sqrtf(square) * (1 + rounded);
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return {-scale, (wrong + rounded) * length, limit, 0};
    return {-2 * scale, 2 * wrong * length, limit - square * (1 - rounded), 0};
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda

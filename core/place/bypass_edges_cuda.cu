// Edges past hidden rows: bypass_edges_cuda.h gives the reason.
//
//   row       whose edges a warp copies
//   hidden    a row that is to be left out, and one of them to which the row has an edge
//   next      the nearest to the row of hidden's edges, none that is hidden, the row's own or there already, nor
//             farther than the row's own list reaches, and known: known_by other neighbours of the row lead there, too;
//             where there is none, or the row and the hidden one share too few neighbours, the row's first edge
//             once more
//
// Without that reach a walk that has come to one neighbour of a hidden row knows the others. Where rows have few
// common neighbours no list would ever have had those edges: with 1M rows of 30 intrinsic dimensions searches that
// were promised 0.8 had 0.775. With both bounds (one NVIDIA H100, 1M rows, 10,000 queries, asked 0.9 to 0.999, without
// the second in brackets) 30 dimensions get 0.001 (0.007) less than asked at worst, two densities 0.003 (0.006), and
// 5,000 touching clusters 0.003 (0.006); words and image patches do not change.
//
// Bytes: all edges in and out, 0.5 GB at 1M rows of 64 edges, 0.15 ms on one NVIDIA H200. 1,024 hidden
// rows with 64 edges to each read 65,000 times 96 codes, 0.8 GB at 128 bytes. Each lane compares a row
// of its own, 16 bytes at a time: the reads of a warp are scattered, but there are few. Whether a row is known takes
// the edges of the row's neighbours, 16 KB, for the nearest one and those after it that are not, some 1 to 3 GB; it grows
// with the square of the degree, and is not gathered once a row, which would need a table for each warp.
// Operations: 4 dp4a and 4 subtractions for 16 bytes, nothing beside the reads.

#include "place/bypass_edges_cuda.h"

#include "graph/bypass_rule.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kPlacesOfLane = ANN_DEGREE_MAX / kWarp;

struct Args {
  BypassArgs given;
  CodeKind kind;
};

struct Bypass {
  const BypassArgs& args;
  const CodeKind kind;
  uint32_t row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  uint32_t* own = args.bypass.row(row);

  __device__ void run() {
    if (row >= args.graph.rows) return;
    const uint32_t* from = args.graph.fixed_row(row);
    uint32_t found = 0;  // lanes' bits: a hidden row in that part of the edges
    for (uint32_t first = 0; first < args.graph.stride; first += kWarp) {
      const uint32_t place = first + lane_number();
      const uint32_t target = place < args.graph.stride ? from[place] : kNoRow;
      if (place < args.graph.stride) own[place] = target;
      if (__any_sync(kAllLanes, is_hidden(target))) found |= 1u << first / kWarp;
    }
    __syncwarp();
    if (found == 0 || is_hidden(row)) return;
    const uint32_t farthest = farthest_of_list(from);
    for (uint32_t place = 0; place < args.graph.stride; ++place) {
      if ((found >> place / kWarp & 1) == 0 || !is_hidden(from[place])) continue;
      const uint32_t next = find_next(from[place], from, farthest);
      const uint32_t instead = next != kNoRow ? next : first_shown(from);
      if (lane_number() == 0 && instead != kNoRow) own[place] = instead;
      __syncwarp();
    }
  }

  __device__ bool is_hidden(uint32_t target) const { return BypassRule{args.hidden}.hides(target); }

  /// How far the row's own list reaches.
  __device__ uint32_t farthest_of_list(const uint32_t* from) const {
    uint32_t farthest = 0;
    for (uint32_t place = lane_number(); place < BypassRule::first_places(args.graph.stride);
         place += kWarp) {
      const uint32_t target = from[place];
      if (target != kNoRow && !is_hidden(target)) farthest = max(farthest, compare(target));
    }
    return __reduce_max_sync(kAllLanes, farthest);
  }

  /// The first edge to a row that is not hidden, or kNoRow.
  __device__ uint32_t first_shown(const uint32_t* from) const {
    for (uint32_t place = 0; place < args.graph.stride; ++place) {
      if (from[place] != kNoRow && !is_hidden(from[place])) return from[place];
    }
    return kNoRow;
  }

  /// kNoRow where there is none that is known, and not farther than `farthest`.
  __device__ uint32_t find_next(uint32_t hidden, const uint32_t* from, uint32_t farthest) const {
    const uint32_t* edges = args.graph.fixed_row(hidden);
    ListEntry candidates[kPlacesOfLane];
    uint32_t shared = 0;
#pragma unroll
    for (uint32_t part = 0; part < kPlacesOfLane; ++part) {
      const uint32_t place = part * kWarp + lane_number();
      const uint32_t target = place < args.graph.stride ? edges[place] : kNoRow;
      if (!BypassRule{args.hidden}.may_lead(row, target)) continue;
      if (is_there(target)) {
        ++shared;
        continue;
      }
      const uint32_t distance = compare(target);
      if (distance <= farthest) candidates[part] = {distance, target};
    }
    if (__reduce_add_sync(kAllLanes, shared) < BypassRule::shared_least(args.graph.stride)) return kNoRow;
    while (true) {
      ListEntry best;
#pragma unroll
      for (const ListEntry& candidate : candidates) {
        if (is_before(candidate, best)) best = candidate;
      }
      const uint32_t nearest = __reduce_min_sync(kAllLanes, best.distance);
      const uint32_t next = __reduce_min_sync(kAllLanes, best.distance == nearest ? best.row : kNoRow);
      if (next == kNoRow || is_known(from, next)) return next;
#pragma unroll
      for (ListEntry& candidate : candidates) {
        if (candidate.row == next) candidate = {};
      }
    }
  }

  static __device__ bool is_before(const ListEntry& a, const ListEntry& b) {
    return a.distance < b.distance || (a.distance == b.distance && a.row < b.row);
  }

  /// Whether rows that are not hidden, known_by of them, lead from `from`, the row's edges, to `target` in two steps.
  __device__ bool is_known(const uint32_t* from, uint32_t target) const {
    uint32_t by = 0;
    for (uint32_t place = 0; place < args.graph.stride; ++place) {
      const uint32_t between = from[place];
      if (between == kNoRow || is_hidden(between)) continue;
      const uint32_t* edges = args.graph.fixed_row(between);
      bool found = false;
      for (uint32_t other = lane_number(); other < args.graph.stride; other += kWarp)
        found |= edges[other] == target;
      by += __any_sync(kAllLanes, found) != 0 ? 1 : 0;
      if (by == args.known_by) return true;
    }
    return false;
  }

  __device__ bool is_there(uint32_t target) const {
    for (uint32_t place = 0; place < args.graph.stride; ++place) {
      if (own[place] == target) return true;
    }
    return false;
  }

  /// The distance of a row, in the bits of a float where codes are floats. Few rows are compared.
  __device__ uint32_t compare(uint32_t target) const {
    const uint4* a = reinterpret_cast<const uint4*>(args.codes + uint64_t{row} * args.stride);
    const uint4* b = reinterpret_cast<const uint4*>(args.codes + uint64_t{target} * args.stride);
    return kind == CodeKind::kFloat ? __float_as_uint(add_floats(a, b)) : add_bytes(a, b);
  }

  __device__ float add_floats(const uint4* a, const uint4* b) const {
    float sum = 0;
    for (uint32_t part = 0; part < args.stride / sizeof(uint4); ++part) {
      const uint4 x = a[part];
      const uint4 y = b[part];
      sum = add_square(x.x, y.x, sum);
      sum = add_square(x.y, y.y, sum);
      sum = add_square(x.z, y.z, sum);
      sum = add_square(x.w, y.w, sum);
    }
    return sum;
  }

  static __device__ float add_square(uint32_t x, uint32_t y, float sum) {
    const float difference = __uint_as_float(x) - __uint_as_float(y);
    return sum + difference * difference;
  }

  __device__ uint32_t add_bytes(const uint4* a, const uint4* b) const {
    uint32_t sum = 0;
    for (uint32_t part = 0; part < args.stride / sizeof(uint4); ++part) {
      const uint4 x = a[part];
      const uint4 y = b[part];
      const uint4 apart = {__vabsdiffu4(x.x, y.x), __vabsdiffu4(x.y, y.y), __vabsdiffu4(x.z, y.z),
                           __vabsdiffu4(x.w, y.w)};
      sum = add_products(apart, apart, sum);
    }
    return sum;
  }
};

__global__ void __launch_bounds__(kThreads) bypass(const __grid_constant__ Args args) {
  Bypass{args.given, args.kind}.run();
}

}  // namespace

void make_bypass_edges(const BypassArgs& args, CodeKind kind, const Stream& stream) {
  const uint32_t blocks = (args.graph.rows + kWarps - 1) / kWarps;
  if (blocks == 0) return;
  launch("bypass", bypass, blocks, kThreads, stream, Args{args, kind});
}

}  // namespace gannet::cuda

// GGNN's build on the GPU (section 5). graph/ggnn.h describes the build, ggnn.cpp is the twin; edges are equal.
//
//   paper                   here
//   merge, Algorithm 4      Merge: a warp searches for one row, with the lists of traverse/slack_warp_cuda.cuh
//   sym, Algorithm 5        Path: a warp looks for the way from one near neighbour back to its row, then Contend,
//                           Settle and Clear hand out places, FillUp writes rows
//   select, stats           the host (graph/ggnn_layers.h), which gets the distances to nearest neighbours
//
// Lists are double-buffered: queries of a merge read those of the merge before.
//
// Places of inverse links. All rows that want one propose to the nearest row met that has a free place; those
// nearest to it get its places. An atomic minimum of (distance, row) at each such row finds the nearest, which takes a
// place; the others compete again while places are left. That repeats at most k/2 times and needs no sort, and the
// outcome is that of the twin's sort whatever the schedule. A row that finds its choice full proposes to the
// next row met, when all others of the round have been settled.
//
// A sketch of one merge of the bottom, one row, k = 24, 128 columns, tau_b = .15. Bytes: 230 expansions in three
// layers, of 96 bytes of edges and 17 new rows of 128 bytes each, are 520 KB, of which the upper layers' 34,000 rows
// stay in the second cache. Operations of an expansion, in instructions of a warp: 120 to look proposals up, 130 to
// compare, 100 to admit two or three rows. So instructions are the bound and not memory: 80,000 a row, for which one
// H200 takes some
// 0.1 us. A path takes at most 20 expansions of k/2 edges and the links, and none where the neighbour has the row in
// its list.
//
// Measured on one NVIDIA H200, SIFT 1M as f32, k = 24, two refinements, from rows in host memory to a placed index, in
// seconds, with the share of ten true neighbours that lists have; beside it with lists in shared memory alone:
//
//   tau_b              .05    .10    .15    .20    .50
//   here                            2.33
//   in shared memory  1.67   2.67          5.04   6.69
//   C@10              .948   .969   .971   .971   .972
//
// C@10 is of the edges in the order of codes, which are lossy here; of rows of bytes it is .9968 at .15.
//
// Merges take 2.00 of the 2.33 s and links .25. Edges that are read ahead gain a build nothing: 2.25 s without.
//
// Bytes of device memory a row: 4 k edges, 4 k lists aside, 2 k inverse links, 4 of their number, 8 of the least
// proposal, 90 of rows met, 4 of the nearest distance; codes beside.

#include <algorithm>
#include <vector>

#include "backend/launch_items.cuh"
#include "distance/byte_teams_cuda.cuh"
#include "distance/float_pairs_cuda.cuh"
#include "graph/ggnn_cuda.h"
#include "graph/ggnn_layers.h"
#include "traverse/slack_warp_cuda.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kBlocksAtOnce = 32;  // of a multiprocessor, which has no more: 64 registers a thread
constexpr uint32_t kLinkWords = 1;      // of the best list of a path
constexpr uint32_t kPiece = 1u << 16;   // rows between two questions to the monitor: 200,000 merge for 30 ms

/// A layer as kernels read it.
struct LayerView {
  const uint32_t* first;   // [segments + 1]
  const uint32_t* below;   // [rows], null: the bottom
  const uint32_t* bottom;  // [rows], null: the bottom
  const uint32_t* edges;   // [rows, k] nearest first
  uint32_t rows;
  uint32_t segments;

  __device__ uint32_t bottom_row(uint32_t row) const { return bottom != nullptr ? __ldg(bottom + row) : row; }
  __device__ uint32_t segment_of(uint32_t row) const {
    uint32_t segment = static_cast<uint32_t>(uint64_t{row} * segments / rows);
    while (__ldg(first + segment) > row) --segment;
    while (__ldg(first + segment + 1) <= row) ++segment;
    return segment;
  }
};

/// A query in the making: a row of the bottom.
struct QueryRow {
  const uint8_t* code;
  uint32_t square;
};

__device__ QueryRow query_of(const CodesView& codes, uint32_t row) {
  return {codes.row(row), codes.wide() ? 0 : __ldg(codes.squares + row)};
}

/// A layer's rows compared with a query, by one warp.
struct LayerComparison {
  const CodesView& codes;
  const LayerView& layer;
  const QueryRow& query;
  const uint32_t* rows;

  __device__ const uint8_t* code(uint32_t place) const { return codes.row(layer.bottom_row(rows[place])); }

  template <uint32_t kTeam>
  __device__ void compare_bytes(uint32_t count, uint32_t* numbers) const {
    const ByteTeams<kTeam, ByteSum::kSquare> teams = {query.code, codes.stride, lane_number(), kWarp / kTeam};
    teams.compare(
        count, [&](uint32_t place) { return code(place); },
        [&](uint32_t place, uint32_t sum) { numbers[place] = sum + query.square; });
  }

  /// Wide codes.
  __device__ void compare_floats(uint32_t count, uint32_t* numbers) const {
    const auto own = [&](uint32_t, uint32_t column) { return floats_at<ANN_F32>(query.code, column); };
    for (uint32_t place = 0; place < count; ++place) {
      const uint8_t* const row[1] = {code(place)};
      const float sum = sum_float_pairs<ANN_F32, false>(row, own, codes.stride / 4);
      if (lane_number() == 0) numbers[place] = __float_as_uint(sum);
    }
  }
};

/// The distances of codes, those of the CPU, as numbers; by one warp. Apart from its callers, which have one kernel for
/// both kinds of codes.
__device__ __noinline__ void compare_codes(const CodesView& codes, const LayerView& layer,
                                           const QueryRow& query, const uint32_t* rows, uint32_t count,
                                           uint32_t* numbers) {
  const LayerComparison comparison = {codes, layer, query, rows};
  if (codes.wide()) return comparison.compare_floats(count, numbers);
  if (codes.stride <= 64) return comparison.compare_bytes<4>(count, numbers);
  comparison.compare_bytes<8>(count, numbers);
}

__device__ SquareKind kind_of(const CodesView& codes) {
  return codes.wide() ? SquareKind::kFloatBits : SquareKind::kInteger;
}

// --- Merging ---------------------------------------------------------------------------------------

struct MergeArgs {
  CodesView codes;
  LayerView layers[kGgnnLayersMax];
  uint32_t* lists;  // [rows, k] of the layer, aside
  float* nearest;   // [rows] where the layer is the bottom, else null
  SlackShape shape;
  Slack slack;
  uint32_t top;
  uint32_t number;  // of the layer
  uint32_t growth;
  uint32_t k;
  uint32_t first;  // row of the first block
};

template <class Lists>
struct MergeQuery {
  const MergeArgs& args;
  Lists& lists;
  QueryRow query;
  uint32_t self;

  __device__ void run(uint32_t row) {
    lists.begin();
    uint32_t segment = args.layers[args.number].segment_of(row);
    for (uint32_t above = args.number; above < args.top; ++above) segment /= args.growth;
    const LayerView& top = args.layers[args.top];
    const uint32_t end = __ldg(top.first + segment + 1);
    for (uint32_t first = __ldg(top.first + segment); first < end; first += lists.step())
      fetch(top, min(lists.step(), end - first), [&](uint32_t i) { return first + i; });
    for (uint32_t above = args.top; above > args.number; --above) {
      const LayerView& layer = args.layers[above - 1];
      lists.transfer(args.layers[above].below);
      for (uint32_t step = 0; step < kGgnnMergeSteps; ++step) {
        const uint32_t parent = lists.pop();
        if (parent == kNoRow) break;
        expand(layer, parent);
      }
    }
    write(row);
  }

 private:
  template <class Rows>
  __device__ void fetch(const LayerView& layer, uint32_t length, const Rows& rows) {
    lists.fetch(length, rows, comparison(layer), answers(layer));
  }

  __device__ void expand(const LayerView& layer, uint32_t parent) {
    const auto edges = [&](uint32_t from) { return layer.edges + uint64_t{from} * args.k; };
    lists.expand(parent, args.k, edges, comparison(layer), answers(layer));
  }

  __device__ auto comparison(const LayerView& layer) const {
    return [this, &layer](const uint32_t* found, uint32_t count, uint32_t* numbers) {
      compare_codes(args.codes, layer, query, found, count, numbers);
    };
  }

  /// All but the row itself.
  __device__ auto answers(const LayerView& layer) const {
    return [this, &layer](uint32_t found, uint32_t number) {
      return number != 0 || layer.bottom_row(found) != self;
    };
  }

  __device__ void write(uint32_t row) {
    uint32_t* list = args.lists + uint64_t{row} * args.k;
    lists.each_best(args.k, [&](uint32_t place, uint64_t key) {
      list[place] = key != RowKey::kNone ? RowKey::row(key) : kNoRow;
      if (place == 0 && args.nearest != nullptr)
        args.nearest[row] = key != RowKey::kNone ? __fsqrt_rn(lists.square(RowKey::distance(key))) : 0;
    });
  }
};

template <uint32_t kWords>
__global__ void __launch_bounds__(kWarp, kWords == 0 ? 1 : kBlocksAtOnce)
    merge_rows(const __grid_constant__ MergeArgs args) {
  extern __shared__ uint4 memory[];
  const uint32_t row = args.first + blockIdx.x;
  const uint32_t self = args.layers[args.number].bottom_row(row);
  with_slack_lists<kWords>(args.shape, kind_of(args.codes), args.slack, ggnn_step(args.k), memory,
                           [&]<class Lists>(Lists& lists) {
                             MergeQuery<Lists>{args, lists, query_of(args.codes, self), self}.run(row);
                           });
}

// --- Symmetric links ---------------------------------------------------------------------------------

enum class Turn : uint8_t { kDone, kWaits, kContends };

struct LinkCounts {
  uint32_t wanting;     // rows without a path, of this rank
  uint32_t waiting;     // of them, those that go on to the next row met
  uint32_t contending;  // those that want a place of the same row again
  uint32_t unused;
  unsigned long long links;
};

struct Propose;
struct Settle;
struct Clear;
struct Contend;
struct FillUp;

struct LinkArgs {
  using Steps = StepList<Propose, Settle, Clear, Contend, FillUp>;

  CodesView codes;
  LayerView layer;
  uint32_t* next;      // [rows, k] the lists that FillUp writes
  uint32_t* inverse;   // [rows, inverse_count]
  uint32_t* inverses;  // [rows] how many
  uint64_t* claims;    // [rows] the least proposal, UINT64_MAX between rounds
  uint32_t* wanting;   // [rows] rows without a path
  uint64_t* met;       // [rows, kGgnnLinkBest] the best rows of their walks, nearest first
  uint8_t* places;     // [rows] the row met that it is the turn of
  Turn* turns;         // [rows]
  LinkCounts* counts;
  SlackShape shape;
  Slack slack;
  uint32_t k;
  uint32_t nearest_count;
  uint32_t inverse_count;
  uint32_t rank;   // of the near neighbours that paths are looked for from
  uint32_t first;  // row of the first block
  bool midpoint;

  __device__ const uint32_t* edges_of(uint32_t row) const { return layer.edges + uint64_t{row} * k; }
  __device__ uint32_t* inverse_of(uint32_t row) const { return inverse + uint64_t{row} * inverse_count; }

  /// Whether a nearest neighbour or an inverse link of a row is another row; by one thread.
  __device__ bool leads_to(uint32_t from, uint32_t row) const {
    const uint32_t* edges = edges_of(from);
    for (uint32_t i = 0; i < nearest_count; ++i) {
      if (edges[i] == row) return true;
    }
    const uint32_t* links = inverse_of(from);
    for (uint32_t i = 0; i < inverses[from]; ++i) {
      if (links[i] == row) return true;
    }
    return false;
  }
};

template <class Lists>
struct PathQuery {
  const LinkArgs& args;
  Lists& lists;
  uint32_t* to_near;  // [step] shared: numbers of proposals to the neighbour
  uint32_t& radius;   // shared: of the neighbour to the row
  QueryRow row_code;
  QueryRow near_code;
  uint32_t row;

  /// Whether there is a path from the neighbour to the row.
  __device__ bool run(uint32_t near) {
    lists.begin();
    fetch(
        1, [&](uint32_t) { return near; },
        [&](const uint32_t* rows, uint32_t count, uint32_t* numbers) {
          compare_codes(args.codes, args.layer, row_code, rows, count, numbers);
          __syncwarp();
          if (lane_number() == 0) radius = numbers[0];
        });
    for (uint32_t step = 0; step < kGgnnLinkSteps; ++step) {
      const uint32_t parent = lists.pop();
      if (parent == kNoRow) break;
      if (leads_to_row(parent)) return true;
      fetch_links(parent);
    }
    return false;
  }

 private:
  template <class Rows, class Compare>
  __device__ void fetch(uint32_t length, const Rows& rows, const Compare& compare) {
    lists.fetch(length, rows, compare, [](uint32_t, uint32_t) { return true; });
  }

  /// LinkArgs::leads_to by all threads.
  __device__ bool leads_to_row(uint32_t from) const {
    bool found = false;
    for (uint32_t i = threadIdx.x; i < args.nearest_count; i += kWarp) found |= args.edges_of(from)[i] == row;
    for (uint32_t i = threadIdx.x; i < args.inverses[from]; i += kWarp)
      found |= args.inverse_of(from)[i] == row;
    return __any_sync(kAllLanes, found);
  }

  /// Shows the nearest neighbours and inverse links of a row, which may be among the former too.
  __device__ void fetch_links(uint32_t parent) {
    const uint32_t* edges = args.edges_of(parent);
    const uint32_t* links = args.inverse_of(parent);
    fetch(
        args.nearest_count + args.inverses[parent],
        [&](uint32_t i) {
          if (i < args.nearest_count) return edges[i];
          const uint32_t link = links[i - args.nearest_count];
          for (uint32_t j = 0; j < args.nearest_count; ++j) {
            if (edges[j] == link) return kNoRow;
          }
          return link;
        },
        [&](const uint32_t* rows, uint32_t count, uint32_t* numbers) { compare(rows, count, numbers); });
  }

  /// Distances to the row; kFarthest outside of the sphere.
  __device__ void compare(const uint32_t* rows, uint32_t count, uint32_t* numbers) {
    compare_codes(args.codes, args.layer, row_code, rows, count, numbers);
    if (!args.midpoint) return;
    compare_codes(args.codes, args.layer, near_code, rows, count, to_near);
    __syncwarp();
    for (uint32_t place = lane_number(); place < count; place += kWarp)
      if (!is_within_sphere(numbers[place], to_near[place])) numbers[place] = kFarthest;
  }

  /// Section 5.2.1, as the twin has it.
  __device__ bool is_within_sphere(uint32_t to_row_number, uint32_t to_near_number) const {
    if (!args.codes.wide())
      return 3 * uint64_t{to_row_number} + 2 * uint64_t{to_near_number} <= 3 * uint64_t{radius};
    const float left = __fadd_rn(__fmul_rn(3.0f, lists.square(to_row_number)),
                                 __fmul_rn(2.0f, lists.square(to_near_number)));
    return left <= __fmul_rn(3.0f, lists.square(radius));
  }
};

/// Adds the rows that a row has met on its way from a near neighbour to the wanting ones.
template <class Lists>
__device__ void want(const LinkArgs& args, const Lists& lists, uint32_t row) {
  uint32_t place = 0;
  if (threadIdx.x == 0) {
    place = atomicAdd(&args.counts->wanting, 1u);
    args.wanting[place] = row;
    args.places[place] = 0;
    args.turns[place] = Turn::kWaits;
  }
  place = __shfl_sync(kAllLanes, place, 0);
  lists.each_best(kGgnnLinkBest,
                  [&](uint32_t i, uint64_t key) { args.met[uint64_t{place} * kGgnnLinkBest + i] = key; });
}

__global__ void __launch_bounds__(kWarp, kBlocksAtOnce)
    look_for_paths(const __grid_constant__ LinkArgs args) {
  __shared__ uint32_t radius;
  extern __shared__ uint4 memory[];
  const uint32_t row = args.first + blockIdx.x;
  const uint32_t near = args.edges_of(row)[args.rank];
  if (near == kNoRow) return;
  {
    bool found = false;
    for (uint32_t i = threadIdx.x; i < args.nearest_count; i += kWarp) found |= args.edges_of(near)[i] == row;
    for (uint32_t i = threadIdx.x; i < args.inverses[near]; i += kWarp)
      found |= args.inverse_of(near)[i] == row;
    if (__any_sync(kAllLanes, found)) return;
  }
  const uint32_t step = ggnn_step(args.k);
  uint32_t* to_near = reinterpret_cast<uint32_t*>(memory);
  const QueryRow row_code = query_of(args.codes, args.layer.bottom_row(row));
  const QueryRow near_code = query_of(args.codes, args.layer.bottom_row(near));
  with_slack_lists<kLinkWords>(
      args.shape, kind_of(args.codes), args.slack, step, to_near + step, [&]<class Lists>(Lists& lists) {
        if (!PathQuery<Lists>{args, lists, to_near, radius, row_code, near_code, row}.run(near))
          want(args, lists, row);
      });
}

/// The key with which a wanting row competes, and the row whose place it wants.
struct Claim {
  uint64_t key;
  uint32_t target;
};

__device__ Claim claim_of(const LinkArgs& args, uint64_t item) {
  const uint64_t met = args.met[item * kGgnnLinkBest + args.places[item]];
  return {uint64_t{RowKey::distance(met)} << 32 | args.wanting[item], RowKey::row(met)};
}

__device__ void contend(const LinkArgs& args, uint64_t item) {
  const Claim claim = claim_of(args, item);
  atomicMin(reinterpret_cast<unsigned long long*>(args.claims + claim.target),
            static_cast<unsigned long long>(claim.key));
}

/// Begins a round: each waiting row looks for the next row met that has a free place. Where one leads to it already, or
/// where there is none, it gives up.
struct Propose {
  static constexpr uint32_t kLanes = 1;
  const LinkArgs& args;
  __device__ void run(uint64_t item) const {
    if (args.turns[item] != Turn::kWaits) return;
    const uint64_t* met = args.met + item * kGgnnLinkBest;
    args.turns[item] = Turn::kDone;
    for (uint32_t place = args.places[item]; place < kGgnnLinkBest && met[place] != RowKey::kNone; ++place) {
      const uint32_t target = RowKey::row(met[place]);
      if (args.leads_to(target, args.wanting[item])) return;
      if (args.inverses[target] == args.inverse_count) continue;
      args.places[item] = static_cast<uint8_t>(place);
      args.turns[item] = Turn::kContends;
      return contend(args, item);
    }
  }
};

/// The nearest of those that contend gets a place.
struct Settle {
  static constexpr uint32_t kLanes = 1;
  const LinkArgs& args;
  __device__ void run(uint64_t item) const {
    if (args.turns[item] != Turn::kContends) return;
    const Claim claim = claim_of(args, item);
    if (args.claims[claim.target] != claim.key) return;
    const uint32_t row = args.wanting[item];
    args.inverse_of(claim.target)[args.inverses[claim.target]++] = row;
    args.turns[item] = Turn::kDone;
  }
};

/// Forgets the least proposals. Winners are done, so the rows that they lead to are found by their keys.
struct Clear {
  static constexpr uint32_t kLanes = 1;
  const LinkArgs& args;
  __device__ void run(uint64_t item) const {
    const uint64_t met = args.met[item * kGgnnLinkBest + args.places[item]];
    if (met != RowKey::kNone) args.claims[RowKey::row(met)] = UINT64_MAX;
  }
};

/// The others contend again while the row has places.
struct Contend {
  static constexpr uint32_t kLanes = 1;
  const LinkArgs& args;
  __device__ void run(uint64_t item) const {
    if (args.turns[item] != Turn::kContends) return;
    if (args.inverses[claim_of(args, item).target] < args.inverse_count) {
      atomicAdd(&args.counts->contending, 1u);
      return contend(args, item);
    }
    args.turns[item] = Turn::kWaits;
    atomicAdd(&args.counts->waiting, 1u);
  }
};

/// Nearest neighbours, then inverse links, and where those leave places the next neighbours.
struct FillUp {
  static constexpr uint32_t kLanes = 1;
  const LinkArgs& args;
  __device__ void run(uint64_t item) const {
    const uint32_t row = static_cast<uint32_t>(item);
    const uint32_t* edges = args.edges_of(row);
    const uint32_t* links = args.inverse_of(row);
    const uint32_t used = args.inverses[row];
    uint32_t* out = args.next + item * args.k;
    uint32_t size = 0;
    const auto put = [&](uint32_t target) {
      if (target != kNoRow) out[size++] = target;
    };
    for (uint32_t i = 0; i < args.nearest_count; ++i) put(edges[i]);
    for (uint32_t i = 0; i < used; ++i) put(links[i]);
    uint32_t free = args.inverse_count - used;
    for (uint32_t i = args.nearest_count; i < args.k && free != 0; ++i) {
      bool is_link = edges[i] == kNoRow;
      for (uint32_t j = 0; j < used; ++j) is_link |= links[j] == edges[i];
      if (is_link) continue;
      put(edges[i]);
      --free;
    }
    while (size < args.k) out[size++] = kNoRow;
    if (used != 0) atomicAdd(&args.counts->links, static_cast<unsigned long long>(used));
  }
};

// --- The build ---------------------------------------------------------------------------------------

/// A layer in the making, here and there.
struct Layer {
  GgnnLayerRows rows;
  std::unique_ptr<DeviceArray<uint32_t>> first;
  std::unique_ptr<DeviceArray<uint32_t>> below;
  std::unique_ptr<DeviceArray<uint32_t>> bottom;
  std::unique_ptr<DeviceArray<uint8_t>> edges;  // [rows, k] uint32_t
};

class Build {
 public:
  Build(const CodesView& codes, const GgnnParams& params, SearchGraph& graph, const Stream& stream,
        const Execution& execution)
      : codes_(codes),
        params_(params),
        shape_(ggnn_shape(codes.rows, params)),
        graph_(graph),
        stream_(stream),
        execution_(execution),
        k_(params.k),
        counts_(1, stream) {}

  /// Algorithms 3 and 6.
  GgnnOnDevice run() {
    nearest_ = Array<float>(execution_.memory, codes_.rows);
    device_nearest_ = std::make_unique<DeviceArray<float>>(codes_.rows, stream_);
    next_ = make_lists(codes_.rows);
    add(ggnn_bottom(codes_.rows, shape_, execution_));
    passes_ = shape_.layers * (shape_.layers + 1) / 2 + params_.refinements * (shape_.layers - 1);
    for (uint32_t top = 0; top < shape_.layers; ++top) {
      if (top > 0) add(ggnn_select(layers_[top - 1].rows, top, shape_, params_, nearest_, mean_, execution_));
      for (uint32_t layer = top + 1; layer-- > 0;) pass(top, layer);
    }
    const uint32_t top = shape_.layers - 1;
    for (uint32_t turn = 0; turn < params_.refinements; ++turn) {
      for (uint32_t layer = top; layer-- > 0;) pass(top, layer);
    }
    hand_over();
    return {std::move(layers_[0].edges), links_};
  }

 private:
  std::unique_ptr<DeviceArray<uint8_t>> make_lists(uint32_t rows) const {
    return std::make_unique<DeviceArray<uint8_t>>(checked_product(rows, k_) * sizeof(uint32_t), stream_);
  }

  std::unique_ptr<DeviceArray<uint32_t>> send(const Array<uint32_t>& words) const {
    if (words.empty()) return nullptr;
    auto there = std::make_unique<DeviceArray<uint32_t>>(words.size(), stream_);
    copy_to_device(there->data(), words.data(), words.size() * sizeof(uint32_t), stream_, "sending a layer");
    return there;
  }

  void add(GgnnLayerRows&& rows) {
    Layer layer;
    layer.first = send(rows.first);
    layer.below = send(rows.below);
    layer.bottom = send(rows.bottom);
    layer.edges = make_lists(rows.rows);
    fill(layer.edges->data(), 0xff, checked_product(rows.rows, k_) * sizeof(uint32_t), stream_,
         "clearing device memory");
    layer.rows = std::move(rows);
    layers_.push_back(std::move(layer));
  }

  static uint32_t* words_of(const std::unique_ptr<DeviceArray<uint8_t>>& lists) {
    return reinterpret_cast<uint32_t*>(lists->data());
  }

  LayerView view(uint32_t number) const {
    const Layer& layer = layers_[number];
    const auto data = [](const auto& array) { return array != nullptr ? array->data() : nullptr; };
    return {data(layer.first),     data(layer.below), data(layer.bottom),
            words_of(layer.edges), layer.rows.rows,   layer.rows.segments()};
  }

  void pass(uint32_t top, uint32_t number) {
    const auto enter = [&](const char* phase, double done) {
      execution_.span((pass_ + done) / passes_, 1).enter(phase);
    };
    if (layers_[number].rows.rows != 0) {
      enter("merge", 0);
      merge(top, number);
      if (!params_.lists || pass_ + 1 != passes_) {
        enter("symmetric links", 0.8);
        link(number);
      }
    }
    ++pass_;
  }

  /// Starts a kernel with a block for each row, in pieces.
  template <class Args>
  void each_row(const char* name, void (*kernel)(Args), Args args, uint32_t rows, uint32_t bytes) const {
    for (uint32_t first = 0; first < rows; first += kPiece) {
      execution_.check();
      args.first = first;
      launch(name, kernel, std::min(kPiece, rows - first), kWarp, stream_, args, bytes);
      if (rows > kPiece) stream_.wait();
    }
  }

  void merge(uint32_t top, uint32_t number) {
    const uint32_t rows = layers_[number].rows.rows;
    MergeArgs args = {};
    args.codes = codes_;
    for (uint32_t i = 0; i < layers_.size(); ++i) args.layers[i] = view(i);
    args.lists = words_of(next_);
    args.nearest = number == 0 ? device_nearest_->data() : nullptr;
    args.shape = ggnn_merge_shape(k_);
    args.slack = ggnn_build_slack(params_, mean_);
    args.top = top;
    args.number = number;
    args.growth = shape_.growth;
    args.k = k_;
    const uint32_t words = slack_words(args.shape);
    each_row("merge_rows",
             words == 0   ? merge_rows<0>
             : words == 1 ? merge_rows<1>
                          : merge_rows<2>,
             args, rows, slack_bytes(args.shape, ggnn_step(k_), words));
    take_next(number);
    if (number != 0) return stream_.wait();
    copy_to_host(nearest_.data(), device_nearest_->data(), nearest_.size() * sizeof(float), stream_,
                 "fetching distances");
    stream_.wait();
    const GgnnNearest found = ggnn_measure(nearest_);
    mean_ = found.mean;
    max_ = found.max;
  }

  /// The lists written aside become those of a layer.
  void take_next(uint32_t number) {
    Layer& layer = layers_[number];
    if (number == 0) return layer.edges.swap(next_);
    copy_on_device(layer.edges->data(), next_->data(), uint64_t{layer.rows.rows} * k_ * sizeof(uint32_t),
                   stream_, "copying lists");
  }

  void link(uint32_t number) {
    const uint32_t rows = layers_[number].rows.rows;
    LinkArgs args = {};
    args.inverse_count = k_ / 2;
    if (args.inverse_count == 0) return;
    args.nearest_count = k_ - k_ / 2;
    const DeviceArray<uint32_t> inverse(checked_product(rows, args.inverse_count), stream_);
    const DeviceArray<uint32_t> inverses(rows, stream_);
    const DeviceArray<uint64_t> claims(rows, stream_);
    const DeviceArray<uint32_t> wanting(rows, stream_);
    const DeviceArray<uint64_t> met(checked_product(rows, kGgnnLinkBest), stream_);
    const DeviceArray<uint8_t> places(rows, stream_);
    const DeviceArray<Turn> turns(rows, stream_);
    fill(inverses.data(), 0, rows * sizeof(uint32_t), stream_, "clearing device memory");
    fill(claims.data(), 0xff, rows * sizeof(uint64_t), stream_, "clearing device memory");
    args.codes = codes_;
    args.layer = view(number);
    args.next = words_of(next_);
    args.inverse = inverse.data();
    args.inverses = inverses.data();
    args.claims = claims.data();
    args.wanting = wanting.data();
    args.met = met.data();
    args.places = places.data();
    args.turns = turns.data();
    args.counts = counts_.data();
    args.shape = ggnn_link_shape();
    args.slack = ggnn_build_slack(params_, mean_);
    args.k = k_;
    args.midpoint = params_.midpoint;
    const uint32_t step = ggnn_step(k_);
    const uint32_t bytes = slack_bytes(args.shape, step, kLinkWords) + step * sizeof(uint32_t);
    for (args.rank = 0; args.rank < args.nearest_count; ++args.rank) {
      clear_counts();
      each_row("look_for_paths", look_for_paths, args, rows, bytes);
      give_places(args, read_counts().wanting);
    }
    clear_counts();
    launch_items<FillUp>("fill_up", rows, args, stream_);
    take_next(number);
    links_ = static_cast<double>(read_counts().links) / rows;
  }

  void give_places(const LinkArgs& args, uint32_t items) {
    if (items == 0) return;
    for (bool waiting = true; waiting;) {
      launch_items<Propose>("propose", items, args, stream_);
      LinkCounts counts;
      do {
        clear_counts();
        launch_items<Settle>("settle", items, args, stream_);
        launch_items<Clear>("clear", items, args, stream_);
        launch_items<Contend>("contend", items, args, stream_);
        counts = read_counts();
        waiting_ += counts.waiting;
      } while (counts.contending != 0);
      waiting = waiting_ != 0;
      waiting_ = 0;
    }
  }

  void clear_counts() const {
    fill(counts_.data(), 0, sizeof(LinkCounts), stream_, "clearing device memory");
  }
  LinkCounts read_counts() const {
    execution_.check();
    LinkCounts counts;
    copy_to_host(&counts, counts_.data(), sizeof counts, stream_, "reading counters");
    stream_.wait();
    return counts;
  }

  void hand_over() {
    graph_.nearest_max = max_;
    graph_.nearest_mean = mean_;
    const GgnnLayerRows& top = layers_.back().rows;
    graph_.entries = Array<uint32_t>(execution_.memory, top.rows);
    for (uint32_t row = 0; row < top.rows; ++row) graph_.entries[row] = top.bottom_row(row);
    graph_.upper.clear();
    for (uint32_t number = 1; number < shape_.layers; ++number) {
      Layer& layer = layers_[number];
      GraphLayer upper;
      upper.rows = layer.rows.rows;
      upper.degree = k_;
      upper.make_fixed(execution_.memory);
      copy_to_host(upper.edges.data(), layer.edges->data(), upper.edges.size() * sizeof(uint32_t), stream_,
                   "fetching a layer");
      upper.base_rows = std::move(layer.rows.below);
      graph_.upper.push_back(std::move(upper));
    }
    stream_.wait();
  }

  const CodesView codes_;
  const GgnnParams params_;
  const GgnnShape shape_;
  SearchGraph& graph_;
  const Stream& stream_;
  const Execution& execution_;
  const uint32_t k_;
  std::vector<Layer> layers_;
  std::unique_ptr<DeviceArray<uint8_t>> next_;  // [rows, k] uint32_t, lists of a merge
  std::unique_ptr<DeviceArray<float>> device_nearest_;
  Array<float> nearest_;  // [rows] distance to the nearest neighbour
  DeviceArray<LinkCounts> counts_;
  float mean_ = 0;
  float max_ = 0;
  double links_ = 0;
  uint32_t waiting_ = 0;
  uint32_t pass_ = 0;
  uint32_t passes_ = 1;
};

}  // namespace

GgnnOnDevice build_ggnn(const CodesView& codes, const GgnnParams& params, SearchGraph& graph,
                        const Stream& stream, const Execution& execution) {
  return Build(codes, params, graph, stream, execution).run();
}

}  // namespace gannet::cuda

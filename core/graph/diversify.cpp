// TSDG's two stages and the ways beside them, row by row; diversify.h describes them.

#include "graph/diversify.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <vector>

#include "base/row_loops.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 64;
constexpr uint32_t kTileRows = 64;
constexpr double kPi = 3.14159265358979323846;

/// The buffers of one row, kept by a worker between rows.
struct Workspace {
  Workspace(const Codes& codes, uint32_t neighbors, const Allocator& memory)
      : block(memory, neighbors * codes.stride()),
        packed(memory, packed_bytes(neighbors, codes.stride())),
        tile(memory, kTileRows * round_up(neighbors, kPackRows)),
        code(memory, codes.stride()),
        rest(memory, neighbors),
        rest_ids(memory, neighbors),
        lambda(memory, neighbors),
        near(memory, neighbors),
        allocator(memory) {
    fit(neighbors);
  }

  /// Makes room for the candidates of a row; a hub has more of them than a row may keep.
  void fit(uint64_t candidates) {
    if (keys.size() >= candidates) return;
    ids = Array<uint32_t>(allocator, candidates);
    distances = Array<uint32_t>(allocator, candidates);
    keys = Array<uint64_t>(allocator, candidates);
  }

  Array<uint8_t> block;       // [neighbors, stride] the codes of a row's neighbours
  Array<uint8_t> packed;      // the same, packed
  Array<uint32_t> tile;       // [kTileRows, neighbors rounded up]
  Array<uint8_t> code;        // [stride] of the row
  Array<uint32_t> rest;       // [neighbors] places that nothing has occluded yet
  Array<uint32_t> rest_ids;   // [neighbors] their rows
  Array<uint32_t> lambda;     // [neighbors]
  Array<uint32_t> near;       // [neighbors] distances in order
  Array<uint32_t> ids;        // [candidates]
  Array<uint32_t> distances;  // [candidates]
  Array<uint64_t> keys;       // [candidates] distance << 32 | row, ascending
  Allocator allocator;
};

constexpr uint32_t row_of(uint64_t key) { return static_cast<uint32_t>(key); }
constexpr uint32_t distance_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

/// Lists of at most `stride` rows that phases hand on.
struct Lists {
  uint32_t* targets;        // [rows, stride]
  uint32_t stride;          // places of a list
  Array<uint32_t> lengths;  // [rows]

  uint32_t* list(uint64_t row) const { return targets + row * stride; }
};

/// One diversification.
class Diversifier {
 public:
  Diversifier(const Codes& codes, KnnGraph&& knn, const DiversifyParams& params, SearchGraph& graph,
              const Execution& execution)
      : codes_(codes),
        knn_(std::move(knn)),
        params_(params),
        graph_(graph),
        execution_(execution),
        rows_(graph.rows) {
    const uint32_t most = std::max({knn_.k, params.pool, candidates_max()});
    for (uint32_t worker = 0; worker < execution.threads; ++worker)
      spaces_.emplace_back(codes, most, execution.memory);
  }

  void run(bool repair) {
    execution_.span(0, 0.4).enter("diversify");
    prune_lists();
    execution_.span(0.4, 0.5).enter("reverse edges");
    turn_edges();
    execution_.span(0.5, 0.9).enter("occlusion factors");
    sort_rows();
    lists_ = {};
    knn_.neighbors = {};
    execution_.span(0.9, 1).enter("reachability");
    finish_diversified(std::move(sorted_), params_, repair, nullptr, graph_, execution_);
  }

 private:
  /// Edges of a row that factors are counted for.
  uint32_t candidates_max() const { return knn_.k + params_.reverse_max; }

  template <class Work>
  void each_row(double from, double to, const Work& work) {
    const Execution part = execution_.span(from, to);
    std::atomic<uint64_t> done = 0;
    parallel_for(part, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t row = begin; row < end; ++row) work(static_cast<uint32_t>(row), spaces_[worker]);
      part.advance(static_cast<double>(done += end - begin) / rows_);
    });
  }

  // --- Stage one --------------------------------------------------------------------------------

  void prune_lists() {
    // SSG reads the lists of a row's neighbours, so the edges it keeps must not lie in their place.
    const bool expands = params_.method == ANN_DIVERSIFY_SSG;
    const uint32_t stride = expands ? params_.degree : knn_.k;
    if (expands) kept_ = Array<uint32_t>(execution_.memory, checked_product(rows_, stride));
    lists_ = {expands ? kept_.data() : knn_.neighbors.data(), stride,
              Array<uint32_t>(execution_.memory, rows_)};
    std::atomic<uint64_t> given = 0;
    std::atomic<uint64_t> kept = 0;
    each_row(0, 0.4, [&](uint32_t row, Workspace& space) {
      const uint32_t length = list_length(row);
      const uint32_t candidates = expands ? expand(row, length, space) : copy_list(row, length, space);
      sort_candidates(row, candidates, candidates, space);
      const uint32_t left = prune(std::min(candidates, most_candidates()), space);
      for (uint32_t i = 0; i < left; ++i) lists_.list(row)[i] = row_of(space.keys[i]);
      lists_.lengths[row] = left;
      given.fetch_add(length, std::memory_order_relaxed);
      kept.fetch_add(left, std::memory_order_relaxed);
    });
    sorted_.counts.given = given;
    sorted_.counts.relaxed = kept;
  }

  uint32_t most_candidates() const { return params_.method == ANN_DIVERSIFY_SSG ? params_.pool : knn_.k; }

  uint32_t list_length(uint32_t row) const {
    const uint32_t* list = knn_.list(row);
    return static_cast<uint32_t>(std::find(list, list + knn_.k, kNoRow) - list);
  }

  uint32_t copy_list(uint32_t row, uint32_t length, Workspace& space) const {
    std::copy_n(knn_.list(row), length, space.ids.data());
    return length;
  }

  /// A row's neighbours and theirs, each once ("High dimensional similarity search with satellite system graph").
  uint32_t expand(uint32_t row, uint32_t length, Workspace& space) const {
    space.fit(uint64_t{length} * (knn_.k + 1));
    uint32_t count = copy_list(row, length, space);
    for (uint32_t i = 0; i < length; ++i) {
      const uint32_t neighbor = knn_.list(row)[i];
      const uint32_t there = list_length(neighbor);
      count = static_cast<uint32_t>(std::copy_n(knn_.list(neighbor), there, space.ids.data() + count) -
                                    space.ids.data());
    }
    std::sort(space.ids.data(), space.ids.data() + count);
    uint32_t* end = std::unique(space.ids.data(), space.ids.data() + count);
    end = std::remove(space.ids.data(), end, row);
    return static_cast<uint32_t>(end - space.ids.data());
  }

  /// The row's distances to space.ids, as keys of which the `most` smallest stand in front, ascending.
  void sort_candidates(uint32_t row, uint64_t count, uint64_t most, Workspace& space) const {
    codes_.gather(&row, 1, space.code.data());
    const auto make_keys = [&](uint64_t begin, uint64_t end) {
      codes_.distances(space.code.data(), space.ids.data() + begin, static_cast<uint32_t>(end - begin),
                       space.distances.data() + begin);
      for (uint64_t i = begin; i < end; ++i)
        space.keys[i] = uint64_t{space.distances[i]} << 32 | space.ids[i];
    };
    const uint64_t at_once = items_per_task(codes_.stride() / 4, kRowsAtOnce);
    if (count <= at_once)
      make_keys(0, count);
    else
      serial_for(execution_, count, at_once, make_keys);
    sort_smallest(space.keys.data(), count, most, execution_);
  }

  /// Leaves the keys that stay in front, and returns how many.
  uint32_t prune(uint32_t count, Workspace& space) const {
    gather(count, space);
    switch (params_.method) {
      case ANN_DIVERSIFY_DPG:
        return keep_least_occluded(count, (knn_.k + 1) / 2, space);
      case ANN_DIVERSIFY_SSG:
        return keep_unoccluded(count, space, [&](uint32_t i, uint32_t j, uint32_t between) {
          return is_within_angle(distance_of(space.keys[i]), distance_of(space.keys[j]), between);
        });
      case ANN_DIVERSIFY_VAMANA:
        set_bounds(count, 1, space);
        return keep_unoccluded(
            count, space, [&](uint32_t, uint32_t j, uint32_t between) { return between < space.near[j]; });
      default:
        set_bounds(count, 0, space);
        return keep_unoccluded(count, space, [&](uint32_t i, uint32_t j, uint32_t between) {
          return (distance_of(space.keys[i]) < space.near[j]) & (between < space.near[j]);
        });
    }
  }

  void gather(uint32_t count, Workspace& space) const {
    for (uint32_t i = 0; i < count; ++i) space.ids[i] = row_of(space.keys[i]);
    codes_.gather(space.ids.data(), count, space.block.data());
  }

  /// space.near[j]: distances below it times alpha are below that of j. RobustPrune (DiskANN) takes equal ones too:
  /// `more` is 1.
  void set_bounds(uint32_t count, uint32_t more, Workspace& space) const {
    const double square = double{params_.alpha} * params_.alpha;
    for (uint32_t j = 0; j < count; ++j) {
      const uint32_t distance = distance_of(space.keys[j]);
      const double bound = codes_.value_of(distance) / square;
      if (codes_.wide())
        space.near[j] = std::bit_cast<uint32_t>(static_cast<float>(bound)) + more;
      else
        space.near[j] = static_cast<uint32_t>(more != 0 ? std::floor(bound) + 1 : std::ceil(bound));
    }
  }

  /// Whether two neighbours stand in less than `angle` of each other, by the law of cosines. One at no distance
  /// stands in no direction.
  bool is_within_angle(uint32_t first, uint32_t second, uint32_t between) const {
    const double a = codes_.value_of(first);
    const double b = codes_.value_of(second);
    if (a == 0 || b == 0) return false;
    return a + b - codes_.value_of(between) > 2 * std::sqrt(a * b) * std::cos(params_.angle * kPi / 180);
  }

  /// Goes through the keys in order: the next one that is left is kept, and those after it go that it occludes. So
  /// each is compared with edges kept before it, until one occludes it.
  template <class Occludes>
  uint32_t keep_unoccluded(uint32_t count, Workspace& space, const Occludes& occludes) const {
    uint32_t left = count;
    for (uint32_t i = 0; i < count; ++i) space.rest[i] = i;
    uint32_t kept = 0;
    for (; kept < left; ++kept) {
      const uint32_t occluder = space.rest[kept];
      if (kept + 1 == most_kept()) return finish(kept + 1, space);
      const uint32_t after = left - kept - 1;
      for (uint32_t i = 0; i < after; ++i) space.rest_ids[i] = row_of(space.keys[space.rest[kept + 1 + i]]);
      codes_.distances(space.block.data() + occluder * codes_.stride(), space.rest_ids.data(), after,
                       space.distances.data());
      uint32_t end = kept + 1;
      for (uint32_t i = 0; i < after; ++i) {
        const uint32_t place = space.rest[kept + 1 + i];
        space.rest[end] = place;
        end += occludes(occluder, place, space.distances[i]) ? 0 : 1;
      }
      left = end;
    }
    return finish(kept, space);
  }

  uint32_t most_kept() const { return params_.method == ANN_DIVERSIFY_SSG ? params_.degree : UINT32_MAX; }

  /// Brings the keys of the first `kept` places of space.rest, which ascend, to the front.
  static uint32_t finish(uint32_t kept, Workspace& space) {
    for (uint32_t i = 0; i < kept; ++i) space.keys[i] = space.keys[space.rest[i]];
    return kept;
  }

  /// DPG keeps the half of each list that the fewest others occlude.
  uint32_t keep_least_occluded(uint32_t count, uint32_t most, Workspace& space) const {
    count_occluders(count, space);
    for (uint32_t i = 0; i < count; ++i) space.rest[i] = i;
    std::stable_sort(space.rest.data(), space.rest.data() + count,
                     [&](uint32_t a, uint32_t b) { return space.lambda[a] < space.lambda[b]; });
    const uint32_t kept = std::min(count, most);
    std::sort(space.rest.data(), space.rest.data() + kept);
    return finish(kept, space);
  }

  // --- Between the stages -----------------------------------------------------------------------

  /// For each row, those that have kept an edge to it.
  void turn_edges() {
    begins_ = Array<uint64_t>(execution_.memory, size_t{rows_} + 1);
    Array<std::atomic<uint32_t>> counts = filled_array<std::atomic<uint32_t>>(execution_, rows_, 0u);
    const auto each_edge = [&](const auto& visit) {
      parallel_for(execution_, rows_, rows_of_scattered(lists_.stride),
                   [&](uint64_t begin, uint64_t end, uint32_t) {
                     for (uint64_t row = begin; row < end; ++row) {
                       for (uint32_t i = 0; i < lists_.lengths[row]; ++i)
                         visit(static_cast<uint32_t>(row), lists_.list(row)[i]);
                     }
                   });
    };
    each_edge([&](uint32_t, uint32_t target) { counts[target].fetch_add(1, std::memory_order_relaxed); });
    place_by_counts(counts, begins_, execution_);
    sources_ = filled_array<uint32_t>(execution_, begins_[rows_], 0u);
    each_edge([&](uint32_t source, uint32_t target) {
      sources_[begins_[target] + counts[target].fetch_add(1, std::memory_order_relaxed)] = source;
    });
  }

  /// The keys of a row's edges, its own and the nearest of those to it, ascending. Whatever thread has noted a
  /// reverse edge first, keys are in one order.
  uint32_t join(uint32_t row, Workspace& space) const {
    const uint64_t incoming = begins_[size_t{row} + 1] - begins_[row];
    const uint32_t own = lists_.lengths[row];
    space.fit(std::max<uint64_t>(incoming, candidates_max()) + own);
    std::copy_n(sources_.data() + begins_[row], incoming, space.ids.data());
    const uint32_t taken = static_cast<uint32_t>(std::min<uint64_t>(incoming, params_.reverse_max));
    sort_candidates(row, incoming, taken, space);
    for (uint32_t i = 0; i < taken; ++i) space.ids[i] = row_of(space.keys[i]);
    std::copy_n(lists_.list(row), own, space.ids.data() + taken);
    sort_candidates(row, uint64_t{taken} + own, uint64_t{taken} + own, space);
    return static_cast<uint32_t>(std::unique(space.keys.data(), space.keys.data() + taken + own) -
                                 space.keys.data());
  }

  // --- Stage two --------------------------------------------------------------------------------

  void sort_rows() {
    // A row has at most as many edges as candidates; the gaps of rows with fewer are closed at the end.
    sorted_.places = Array<uint64_t>(execution_.memory, size_t{rows_} + 1);
    sorted_.places[0] = 0;
    serial_for(execution_, rows_, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t row = begin; row < end; ++row) {
        const uint64_t incoming = std::min<uint64_t>(begins_[row + 1] - begins_[row], params_.reverse_max);
        sorted_.places[row + 1] =
            sorted_.places[row] + std::min<uint64_t>(params_.degree, incoming + lists_.lengths[row]);
      }
    });
    sorted_.edges = Array<uint32_t>(execution_.memory, sorted_.places[rows_]);
    sorted_.prefixes = Array<uint16_t>(execution_.memory, checked_product(rows_, params_.levels));
    std::atomic<uint64_t> joined = 0;
    std::atomic<uint64_t> below = 0;
    each_row(0.5, 0.9, [&](uint32_t row, Workspace& space) {
      const uint32_t count = join(row, space);
      joined.fetch_add(count, std::memory_order_relaxed);
      below.fetch_add(write_row(row, count, space), std::memory_order_relaxed);
    });
    sorted_.counts.joined = joined;
    sorted_.counts.soft = below;
    begins_ = {};
    sources_ = {};
    kept_ = {};
  }

  /// Writes a row's edges by (lambda, distance), as far as factors and degree allow. Returns how many have a factor
  /// of at most lambda_0.
  uint32_t write_row(uint32_t row, uint32_t count, Workspace& space) {
    if (params_.levels > 1) {
      gather(count, space);
      count_occluders(count, space);
    } else {
      std::fill_n(space.lambda.data(), count, 0);
    }
    uint16_t* lengths = sorted_.prefixes.data() + uint64_t{row} * params_.levels;
    uint32_t* to = sorted_.edges.data() + sorted_.places[row];
    uint32_t below = 0;
    for (uint32_t level = 0; level < params_.levels; ++level) {
      for (uint32_t i = 0; i < count; ++i) {
        if (space.lambda[i] != level) continue;
        if (below < params_.degree) to[below] = row_of(space.keys[i]);
        ++below;
      }
      lengths[level] = static_cast<uint16_t>(std::min(below, params_.degree));
    }
    return below;
  }

  /// space.lambda: of each of the first keys, how many others occlude it (inequality 1). Needs them in space.block.
  void count_occluders(uint32_t count, Workspace& space) const {
    for (uint32_t i = 0; i < count; ++i) space.near[i] = distance_of(space.keys[i]);
    std::fill_n(space.lambda.data(), count, 0);
    const size_t stride = round_up(count, kPackRows);
    codes_.pack(space.block.data(), count, space.packed.data());
    for (uint32_t first = 0; first < count; first += kTileRows) {
      const uint32_t some = std::min(kTileRows, count - first);
      codes_.tile(space.block.data() + first * codes_.stride(), some, space.packed.data(), count,
                  space.tile.data(), stride);
      for (uint32_t i = 0; i < some; ++i) {
        const uint32_t* between = space.tile.data() + i * stride;
        const uint32_t nearer = space.near[first + i];
        const uint32_t* farther =
            std::upper_bound(space.near.data() + first + i, space.near.data() + count, nearer);
        for (uint32_t j = static_cast<uint32_t>(farther - space.near.data()); j < count; ++j)
          space.lambda[j] += between[j] < space.near[j] ? 1 : 0;
      }
    }
  }

  const Codes& codes_;
  KnnGraph knn_;
  const DiversifyParams& params_;
  SearchGraph& graph_;
  const Execution& execution_;
  uint32_t rows_;
  std::vector<Workspace> spaces_;
  Array<uint32_t> kept_;     // [rows, degree] of SSG
  Lists lists_ = {};         // kept by stage one
  Array<uint64_t> begins_;   // [rows + 1] into sources_
  Array<uint32_t> sources_;  // rows with an edge to a row
  SortedRows sorted_;
};

// --- Every row is reached -------------------------------------------------------------------------

uint32_t default_level(const DiversifyParams& params) {
  return std::min(params.levels, kOcclusionDefault) - 1;
}

/// The end of a diversification, for rows that the CPU or a device has sorted.
class Closing {
 public:
  Closing(SortedRows&& sorted, const DiversifyParams& params, SearchGraph& graph, const Execution& execution)
      : sorted_(std::move(sorted)),
        params_(params),
        level_(default_level(params)),
        graph_(graph),
        execution_(execution),
        rows_(graph.rows) {}

  /// Sorting by factors and cutting has made a directed graph of an undirected one: the edges that a search reads by
  /// default are repaired as a graph of fixed rows of its own (reachability.cpp), with room for an edge more each, and
  /// the changes are copied back.
  void repair() {
    SearchGraph read = read_by_default(sorted_, params_, graph_, execution_);
    read.make_fixed(execution_.memory);
    parallel_for(execution_, rows_, rows_at_once(read.degree), [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
        uint32_t* const edges = read.table().row(row);
        const uint32_t length = prefixes(row)[level_];
        std::copy_n(sorted_.edges.data() + sorted_.places[row], length, edges);
        std::fill(edges + length, edges + read.degree, kNoRow);
      }
    });
    read.repaired_edges = repair_reachability(read, execution_);
    take_over(read);
  }

  /// Rows as they are after the repair: new edges have the factor 0, those that they have replaced are gone, and
  /// edges that the default leaves out give way at the end.
  void take_over(const SearchGraph& repaired) {
    graph_.repaired_edges = repaired.repaired_edges;
    if (repaired.repaired_edges == 0) return;
    Array<uint64_t> places(execution_.memory, size_t{rows_} + 1);
    places[0] = 0;
    serial_for(execution_, rows_, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row)
        places[row + 1] = places[row] + std::min<uint64_t>(params_.degree, length(row) + repaired.degree);
    });
    Array<uint32_t> edges(execution_.memory, places[rows_]);
    parallel_for(execution_, rows_, rows_at_once(repaired.degree),
                 [&](uint64_t begin, uint64_t end, uint32_t) {
                   for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row)
                     take_over_row(row, repaired.row(row), edges.data() + places[row]);
                 });
    sorted_.edges = std::move(edges);
    sorted_.places = std::move(places);
  }

  /// One of these rows, with its lengths as they are then; `after`: the default's edges after the repair.
  void take_over_row(uint32_t row, const AdjacencyRow& after, uint32_t* to) {
    const uint32_t* before = sorted_.edges.data() + sorted_.places[row];
    uint16_t* lengths = prefixes(row);
    const uint32_t* read = before + lengths[level_];
    const uint32_t* end = std::find(after.begin(), after.end(), kNoRow);
    uint32_t added[ANN_DEGREE_MAX];
    uint32_t* added_end = added;
    for (const uint32_t* edge = after.begin(); edge != end; ++edge) {
      if (std::find(before, read, *edge) == read) *added_end++ = *edge;
    }
    uint32_t count = 0;
    uint32_t from = 0;
    for (uint32_t level = 0; level < params_.levels; ++level) {
      for (; from < lengths[level]; ++from) {
        const bool stays = level > level_ ? std::find(added, added_end, before[from]) == added_end
                                          : std::find(after.begin(), end, before[from]) != end;
        if (stays && count < params_.degree) to[count++] = before[from];
      }
      if (level == 0) {
        for (const uint32_t* edge = added; edge != added_end; ++edge) to[count++] = *edge;
      }
      lengths[level] = static_cast<uint16_t>(count);
    }
  }

  /// Closes the gaps between rows, and hands the graph over.
  void publish() {
    Array<uint64_t> offsets(execution_.memory, size_t{rows_} + 1);
    offsets[0] = 0;
    uint32_t longest = 2;
    serial_for(execution_, rows_, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
        offsets[row + 1] = offsets[row] + length(row);
        longest = std::max(longest, length(row));
      }
    });
    if (offsets[rows_] == sorted_.edges.size()) {
      graph_.edges = std::move(sorted_.edges);
    } else {
      graph_.edges = Array<uint32_t>(execution_.memory, offsets[rows_]);
      parallel_for(execution_, rows_, 4096, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (uint64_t row = begin; row < end; ++row)
          std::copy_n(sorted_.edges.data() + sorted_.places[row], offsets[row + 1] - offsets[row],
                      graph_.edges.data() + offsets[row]);
      });
    }
    graph_.offsets = std::move(offsets);
    graph_.prefixes = std::move(sorted_.prefixes);
    graph_.levels = params_.levels;
    graph_.degree = longest;
    graph_.diversified = sorted_.counts;
  }

 private:
  uint16_t* prefixes(uint32_t row) { return sorted_.prefixes.data() + uint64_t{row} * params_.levels; }
  uint32_t length(uint32_t row) { return prefixes(row)[params_.levels - 1]; }
  /// Each edge of a row is looked for among others of it.
  static uint64_t rows_at_once(uint32_t degree) {
    return items_per_task(uint64_t{degree} * degree / 8, kRowsAtOnce / 16);
  }

  SortedRows sorted_;
  const DiversifyParams& params_;
  uint32_t level_;
  SearchGraph& graph_;
  const Execution& execution_;
  uint32_t rows_;
};

}  // namespace

SearchGraph read_by_default(const SortedRows& rows, const DiversifyParams& params, const SearchGraph& graph,
                            const Execution& execution) {
  uint32_t longest = 0;
  serial_for(execution, graph.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row)
      longest = std::max<uint32_t>(longest, rows.prefixes[row * params.levels + default_level(params)]);
  });
  SearchGraph read;
  read.rows = graph.rows;
  read.degree = std::min(params.degree, longest + 1);
  read.entries = Array<uint32_t>::over(graph.entries.data(), graph.entries.size());
  return read;
}

void finish_diversified(SortedRows&& rows, const DiversifyParams& params, bool repair,
                        const SearchGraph* repaired, SearchGraph& graph, const Execution& execution) {
  Closing closing(std::move(rows), params, graph, execution);
  if (repaired != nullptr)
    closing.take_over(*repaired);
  else if (repair)
    closing.repair();
  closing.publish();
}

void diversify(const Codes& codes, KnnGraph&& knn, const DiversifyParams& params, bool repair,
               SearchGraph& graph, const Execution& execution) {
  Diversifier(codes, std::move(knn), params, graph, execution).run(repair);
}

DiversifyBytes diversify_bytes(uint64_t rows, uint64_t code_stride, uint64_t k, const DiversifyParams& params,
                               uint32_t threads) {
  const uint64_t kept = params.method == ANN_DIVERSIFY_SSG ? params.degree : k;
  const uint64_t neighbors = std::max<uint64_t>(k + params.reverse_max, params.pool);
  const uint64_t expanded = params.method == ANN_DIVERSIFY_SSG ? 16 * k * (k + 1) : 0;
  // A hub's incoming edges are sorted at once; all rows may have an edge to it.
  const uint64_t space =
      neighbors * (2 * code_stride + 4 * kTileRows + 64) + expanded + 16 * (rows + k) + 8192;
  const uint64_t graph = rows * (8 + 2 * uint64_t{params.levels} + 4 * uint64_t{params.degree}) + 64;
  const uint64_t lists =
      rows * (4 + 8 + 4 + 4 * kept) + (params.method == ANN_DIVERSIFY_SSG ? rows * 4 * kept : 0);
  const uint64_t repairing = rows * (4 * uint64_t{params.degree} + 5 * uint64_t{params.degree} + 30);
  return {threads * space + std::max(lists, repairing) + 2 * graph, graph};
}

uint64_t diversify_device_bytes(uint64_t rows, uint64_t k, const DiversifyParams& params) {
  const uint64_t some = std::min<uint64_t>(rows, kDiversifyRows);
  const uint64_t piece = some * (k * 4 + 4 + params.degree * 4ull + params.levels * 2ull);
  // SSG reads lists that the host gives of all rows.
  const uint64_t lists = params.method == ANN_DIVERSIFY_SSG ? rows * k * 4 : 0;
  // Kept edges forth and back, then sorted ones in their place and the table that the repair reads.
  return lists + piece + rows * (2 * k * 4 + 24) + rows * (params.degree * 8ull + 90);
}

}  // namespace gannet

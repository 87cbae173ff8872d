#include "search/tsdg.h"

#include <algorithm>
#include <bit>

#include "base/random.h"
#include "search/cagra.h"
#include "search/walk_steps.h"

namespace gannet {
namespace {

/// The common part of the three: random rows, and rows compared by their codes.
struct Common {
  const Codes& codes;
  const SearchGraph& graph;
  const TsdgPlan& plan;
  const Admission& admission;
  TsdgSpace& space;
  uint64_t content = 0;
  SearchCounts counts = {};

  void hash_query() {
    for (uint32_t place = 0; place < codes.stride() / sizeof(uint32_t); ++place) {
      uint32_t word;
      std::memcpy(&word, space.code.data() + place * sizeof word, sizeof word);
      content += content_of(word, place);
    }
  }

  /// Compares rows of space.candidates, for a list that is so long.
  void compare(uint32_t count, uint32_t list = 0) {
    counts.distances += count;
    space.compared(count, list);
    codes.distances(space.code.data(), space.candidates.data(), count, space.code_distances.data());
  }

  uint64_t key(uint32_t place) const {
    return RowKey::of(space.code_distances[place], space.candidates[place], false);
  }

  /// The random rows of a walk, in space.candidates; how many.
  uint32_t draw_seeds(uint32_t walk, uint32_t walks) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < kTsdgSeeds; ++i) {
      const uint32_t row = start_row(content, codes.rows(), walks * kTsdgSeeds, walk * kTsdgSeeds + i);
      if (row != kNoRow && admission.walks(row)) space.candidates[count++] = row;
    }
    return count;
  }

  uint64_t nearest_seed(uint32_t walk, uint32_t walks) {
    const uint32_t count = draw_seeds(walk, walks);
    compare(count);
    uint64_t nearest = RowKey::kNone;
    for (uint32_t i = 0; i < count; ++i) nearest = std::min(nearest, key(i));
    return nearest;
  }

  AdjacencyRow edges_of(uint32_t row) {
    ++counts.expansions;
    return graph.touched_row(row, plan.level);
  }
};

// --- Small batches ------------------------------------------------------------------------------

struct SmallSearch : Common {
  /// Leaves the keys of all walks in space.found; how many places.
  uint32_t run() {
    for (uint32_t walk = 0; walk < plan.walks; ++walk) {
      uint64_t* list = space.found.data() + walk * kTsdgList;
      std::fill_n(list, kTsdgList, RowKey::kNone);
      uint64_t u = nearest_seed(walk, plan.walks);
      if (u != RowKey::kNone && admission.answers(RowKey::row(u))) list[0] = u;
      for (uint32_t hop = 0; u != RowKey::kNone && hop < plan.hops_max; ++hop) {
        uint64_t temp[kTsdgList];
        compare_edges(RowKey::row(u), temp);
        std::sort(temp, temp + kTsdgList);
        u = temp[0];
        if (!update(list, temp)) break;
      }
    }
    return plan.walks * kTsdgList;
  }

 private:
  void compare_edges(uint32_t row, uint64_t* temp) {
    std::fill_n(temp, kTsdgList, RowKey::kNone);
    uint32_t places[ANN_DEGREE_MAX];
    uint32_t count = 0;
    uint32_t place = 0;
    for (const uint32_t target : edges_of(row)) {
      if (target == kNoRow) break;
      if (admission.walks(target)) {
        places[count] = place % kTsdgList;
        space.candidates[count++] = target;
      }
      ++place;
    }
    compare(count);
    for (uint32_t i = 0; i < count; ++i) temp[places[i]] = std::min(temp[places[i]], key(i));
  }

  /// False where nothing new has entered.
  bool update(uint64_t* list, const uint64_t* temp) const {
    uint64_t taken[kTsdgTaken];
    uint32_t count = 0;
    for (uint32_t i = 0; i < kTsdgTaken && temp[i] != RowKey::kNone; ++i) {
      const bool is_new = !std::binary_search(list, list + kTsdgList, temp[i]);
      if (is_new && admission.answers(RowKey::row(temp[i]))) taken[count++] = temp[i];
    }
    bool improved = false;
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t& last = list[kTsdgList - 1 - i];
      if (taken[i] >= last) break;
      last = taken[i];
      improved = true;
    }
    std::sort(list, list + kTsdgList);
    return improved;
  }
};

// --- Large batches ------------------------------------------------------------------------------

struct LargeSearch : Common {
  uint32_t size = 0;    // of R
  uint32_t queued = 0;  // rows in C

  uint32_t run() {
    std::fill_n(space.queue_sizes.data(), plan.segments, 0);
    std::fill_n(space.expanded.data(), plan.segments * kTsdgSegment, kNoRow);
    std::fill_n(space.expanded_next.data(), plan.segments, 0);
    const uint64_t seed = nearest_seed(0, 1);
    if (seed == RowKey::kNone) return 0;
    show(seed);
    push(seed);
    for (uint32_t step = 0; queued > 0 && step < plan.hops_max; ++step) {
      const uint64_t u = pop();
      if (RowKey::distance(u) > bound()) break;
      expand(RowKey::row(u));
    }
    return size;
  }

 private:
  uint64_t* segment(uint32_t row) const { return space.queue.data() + row % plan.segments * kTsdgSegment; }

  /// The distance beyond which no row is expanded.
  uint32_t bound() const {
    if (size < plan.kept) return UINT32_MAX;
    const uint32_t last = RowKey::distance(space.found[size - 1]);
    const double factor = double{plan.delta} * plan.delta;
    if (codes.wide()) return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<float>(last) * factor));
    return static_cast<uint32_t>(std::min(last * factor, 4294967295.0));
  }

  void expand(uint32_t row) {
    uint32_t& next = space.expanded_next[row % plan.segments];
    space.expanded[row % plan.segments * kTsdgSegment + next] = row;
    next = (next + 1) % kTsdgSegment;
    uint32_t count = 0;
    for (const uint32_t target : edges_of(row)) {
      if (target == kNoRow) break;
      if (admission.walks(target) && !is_expanded(target) && !is_queued(target))
        space.candidates[count++] = target;
    }
    compare(count);
    for (uint32_t i = 0; i < count; ++i) {
      const bool improves = show(key(i));
      if (plan.only_nearer ? improves : space.code_distances[i] <= bound()) push(key(i));
    }
  }

  bool is_expanded(uint32_t row) const {
    const uint32_t* begin = space.expanded.data() + row % plan.segments * kTsdgSegment;
    return std::find(begin, begin + kTsdgSegment, row) != begin + kTsdgSegment;
  }
  bool is_queued(uint32_t row) const {
    const uint64_t* begin = segment(row);
    const uint64_t* end = begin + space.queue_sizes[row % plan.segments];
    return std::any_of(begin, end, [&](uint64_t key) { return RowKey::row(key) == row; });
  }

  /// Whether a row is nearer than the last of R, which takes it unless it has it or the row is no answer.
  bool show(uint64_t key) {
    uint64_t* list = space.found.data();
    if (size == plan.kept && (size == 0 || key >= list[size - 1])) return false;
    uint64_t* place = std::lower_bound(list, list + size, key);
    if (place != list + size && *place == key) return false;
    if (!admission.answers(RowKey::row(key))) return true;
    if (size < plan.kept) ++size;
    std::copy_backward(place, list + size - 1, list + size);
    *place = key;
    return true;
  }

  void push(uint64_t key) {
    uint64_t* list = segment(RowKey::row(key));
    uint32_t& length = space.queue_sizes[RowKey::row(key) % plan.segments];
    if (length == kTsdgSegment) {
      if (key >= list[length - 1]) return;
      --length;
      --queued;
    }
    uint64_t* place = std::lower_bound(list, list + length, key);
    std::copy_backward(place, list + length, list + length + 1);
    *place = key;
    ++length;
    ++queued;
  }

  uint64_t pop() {
    uint32_t nearest = kNoRow;
    for (uint32_t i = 0; i < plan.segments; ++i) {
      if (space.queue_sizes[i] == 0) continue;
      if (nearest == kNoRow || space.queue[i * kTsdgSegment] < space.queue[nearest * kTsdgSegment])
        nearest = i;
    }
    uint64_t* list = space.queue.data() + nearest * kTsdgSegment;
    const uint64_t key = list[0];
    std::copy(list + 1, list + space.queue_sizes[nearest], list);
    --space.queue_sizes[nearest];
    --queued;
    return key;
  }
};

// --- On the CPU ---------------------------------------------------------------------------------

struct BeamSearch : Common {
  /// Leaves the keys of the beam's rows that may be answered in space.found; how many.
  uint32_t run() {
    Beam beam(space.found.data(), plan.beam);
    const auto meet = [&](const uint32_t* rows, uint32_t count) {
      uint32_t fresh = space.visited.enter(rows, count, space.candidates.data());
      if (admission.held_out.words != nullptr || admission.masked != kNoRow)
        fresh = static_cast<uint32_t>(std::remove_if(space.candidates.data(), space.candidates.data() + fresh,
                                                     [&](uint32_t row) { return !admission.walks(row); }) -
                                      space.candidates.data());
      compare(fresh, beam.size());
      beam.insert(space.code_distances.data(), space.candidates.data(), fresh);
    };
    meet(graph.entries.data(), static_cast<uint32_t>(graph.entries.size()));
    uint32_t seeds[kTsdgSeeds];
    const uint32_t drawn = draw_seeds(0, 1);
    std::copy_n(space.candidates.data(), drawn, seeds);
    meet(seeds, drawn);
    for (uint32_t row = beam.pop(); row != kNoRow; row = beam.pop()) {
      const AdjacencyRow edges = edges_of(row);
      meet(edges.targets, edges.length);
    }
    uint32_t size = 0;
    for (uint32_t i = 0; i < beam.size(); ++i) {
      const uint64_t key = beam.key(i) & ~RowKey::kFlag;
      if (admission.answers(RowKey::row(key))) space.found[size++] = key;
    }
    return size;
  }
};

template <class Search>
uint32_t walk(const Common& common, SearchCounts& counts) {
  Search search{common};
  search.hash_query();
  const uint32_t places = search.run();
  counts = search.counts;
  return places;
}

uint32_t walk(const Common& common, SearchCounts& counts) {
  switch (common.plan.search) {
    case TsdgSearch::kSmall:
      return walk<SmallSearch>(common, counts);
    case TsdgSearch::kLarge:
      return walk<LargeSearch>(common, counts);
    default:
      return walk<BeamSearch>(common, counts);
  }
}

}  // namespace

TsdgSpace::TsdgSpace(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                     const Allocator& memory)
    : visited(memory, codes.rows()),
      values(memory, dataset.query_bytes()),
      code(memory, codes.stride()),
      candidates(memory, std::max<size_t>({graph.degree, graph.entries.size(), kTsdgSeeds})),
      code_distances(memory, candidates.size()),
      allocator(memory) {}

void TsdgSpace::fit(const TsdgPlan& plan) {
  const auto grow = [&]<class T>(Array<T>& items, size_t size) {
    if (items.size() < size) items = Array<T>(allocator, size);
  };
  const size_t places = std::max<size_t>({plan.kept, plan.walks * kTsdgList, plan.beam});
  grow(queue, plan.segments * kTsdgSegment);
  grow(queue_sizes, plan.segments);
  grow(expanded, plan.segments * kTsdgSegment);
  grow(expanded_next, plan.segments);
  grow(rows, places);
  grow(distances, places);
  grow(neighbors, places);
  grow(found, std::max(places, Beam::room(plan.beam)));
}

uint64_t TsdgSpace::bytes() const {
  return visited.bytes() + values.bytes() + code.bytes() + candidates.bytes() + code_distances.bytes() +
         found.bytes() + queue.bytes() + queue_sizes.bytes() + expanded.bytes() + expanded_next.bytes() +
         rows.bytes() + distances.bytes() + neighbors.bytes();
}

uint32_t search_tsdg(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                     const PreparedQuery& query, const Admission& admission, uint32_t k, const TsdgPlan& plan,
                     TsdgSpace& space, SearchCounts* counts) {
  space.fit(plan);
  codes.encode_query(query, space.code.data());
  const VisitedCleared cleared(space.visited);
  SearchCounts walked;
  const uint32_t places = walk(Common{codes, graph, plan, admission, space}, walked);
  // Rows of several walks stand there several times, empty places at the end.
  uint64_t* keys = space.found.data();
  std::sort(keys, keys + places);
  const uint64_t* end = std::unique(keys, keys + places);
  if (end != keys && end[-1] == RowKey::kNone) --end;
  const uint32_t kept = std::min(static_cast<uint32_t>(end - keys), plan.kept);
  for (uint32_t i = 0; i < kept; ++i) space.rows[i] = RowKey::row(keys[i]);
  if (codes.lossless()) {
    for (uint32_t i = 0; i < kept; ++i) space.distances[i] = static_cast<float>(RowKey::distance(keys[i]));
  } else {
    walked.distances += kept;
    dataset.distances(query, space.rows.data(), 0, kept, space.distances.data());
  }
  counts->distances += walked.distances;
  counts->expansions += walked.expansions;
  for (uint32_t i = 0; i < kept; ++i) space.neighbors[i] = {space.distances[i], dataset.id(space.rows[i])};
  std::sort(space.neighbors.data(), space.neighbors.data() + kept);
  return std::min(k, kept);
}

}  // namespace gannet

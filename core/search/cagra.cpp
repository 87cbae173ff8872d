#include "search/cagra.h"

#include <algorithm>
#include <new>

#include "search/walk_steps.h"

namespace gannet {
namespace {

/// A distance as a number of the same order; -0 does not occur.
uint32_t ordered(float distance) {
  uint32_t bits;
  std::memcpy(&bits, &distance, sizeof bits);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

uint64_t content_of_query(const Dataset& dataset, const Codes& codes, const PreparedQuery& query,
                          const CagraPlan& plan, const CagraSpace& space) {
  const uint8_t* bytes = plan.stored ? static_cast<const uint8_t*>(query.values) : space.code.data();
  const uint32_t words =
      plan.stored ? dataset.dim() : static_cast<uint32_t>(codes.stride() / sizeof(uint32_t));
  uint64_t content = 0;
  for (uint32_t place = 0; place < words; ++place) {
    uint32_t word;
    std::memcpy(&word, bytes + place * sizeof word, sizeof word);
    content += content_of(word, place);
  }
  return content;
}

/// One search, as search/cagra.h describes it.
struct CagraSearch {
  const Dataset& dataset;
  const Codes& codes;
  const SearchGraph& graph;
  const PreparedQuery& query;
  const CagraPlan& plan;
  CagraSpace& space;
  const Admission& admission;
  SearchCounts counts = {};
  uint32_t count = 0;  // of candidates

  void run() {
    for (uint32_t i = 0; i < plan.lists; ++i)
      new (&space.beams[i]) Beam(space.keys.data() + i * Beam::room(plan.list), plan.list);
    start();
    for (uint32_t iteration = 0; iteration < plan.iterations_max; ++iteration) {
      bool any = false;
      for (uint32_t i = 0; i < plan.lists; ++i) any |= step(space.beams[i], iteration);
      if (!any) break;
    }
  }

 private:
  uint32_t candidates_max() const { return plan.width * graph.degree; }

  void start() {
    const uint64_t content = content_of_query(dataset, codes, query, plan, space);
    const uint32_t places = plan.lists * candidates_max();
    for (uint32_t i = 0; i < plan.lists; ++i) {
      for (uint32_t place = 0; place < candidates_max(); ++place)
        meet(start_row(content, codes.rows(), places, i * candidates_max() + place));
      compare(space.beams[i]);
    }
  }

  /// One iteration of one list; false where every row has been a parent.
  bool step(Beam& beam, uint32_t iteration) {
    uint32_t parents[kCagraWidthMax];
    uint32_t width = 0;
    while (width < plan.width) {
      const uint32_t row = beam.pop();
      if (row == kNoRow) break;
      parents[width++] = row;
    }
    if (width == 0) return false;
    if (plan.reset != 0 && iteration % plan.reset == 0) forget(beam);
    for (uint32_t i = 0; i < width; ++i) {
      for (const uint32_t target : graph.touched_row(parents[i])) meet(target);
    }
    counts.expansions += width;
    compare(beam);
    return true;
  }

  void meet(uint32_t row) {
    if (row != kNoRow && admission.walks(row) && space.visited.enter(row)) space.candidates[count++] = row;
  }

  void forget(const Beam& beam) {
    space.visited.clear();
    for (uint32_t i = 0; i < beam.size(); ++i) space.visited.enter(RowKey::row(beam.key(i)));
  }

  void compare(Beam& beam) {
    counts.distances += count;
    space.compared(count, beam.size());
    if (plan.stored) {
      dataset.distances(query, space.candidates.data(), 0, count, space.distances.data());
      for (uint32_t i = 0; i < count; ++i) space.code_distances[i] = ordered(space.distances[i]);
    } else {
      codes.distances(space.code.data(), space.candidates.data(), count, space.code_distances.data());
    }
    beam.insert(space.code_distances.data(), space.candidates.data(), count);
    count = 0;
  }
};

/// The nearest rows of all lists that may be returned, in order; how many.
uint32_t merge_lists(const CagraPlan& plan, const Admission& admission, CagraSpace& space) {
  uint32_t size = 0;
  for (uint32_t i = 0; i < plan.lists; ++i) {
    const Beam& beam = space.beams[i];
    for (uint32_t place = 0; place < beam.size(); ++place) {
      if (admission.answers(RowKey::row(beam.key(place)))) space.merged[size++] = beam.key(place);
    }
  }
  std::sort(space.merged.data(), space.merged.data() + size);
  return std::min(size, plan.kept);
}

}  // namespace

CagraSpace::CagraSpace(const Dataset& dataset, const Codes& codes, const Allocator& memory)
    : visited(memory, codes.rows()),
      values(memory, dataset.query_bytes()),
      code(memory, codes.stride()),
      allocator(memory) {}

void CagraSpace::fit(const CagraPlan& plan, uint32_t degree) {
  const auto grow = [&]<class T>(Array<T>& items, size_t size) {
    if (items.size() < size) items = Array<T>(allocator, size);
  };
  const size_t compared = size_t{plan.width} * degree;
  const size_t kept_in_lists = size_t{plan.lists} * plan.list;
  grow(candidates, compared);
  grow(code_distances, compared);
  grow(distances, std::max(compared, kept_in_lists));
  grow(rows, kept_in_lists);
  grow(keys, plan.lists * Beam::room(plan.list));
  grow(merged, kept_in_lists);
  grow(beams, plan.lists);
  grow(neighbors, kept_in_lists);
}

uint64_t CagraSpace::bytes() const {
  return visited.bytes() + values.bytes() + code.bytes() + candidates.bytes() + code_distances.bytes() +
         distances.bytes() + rows.bytes() + keys.bytes() + merged.bytes() + beams.bytes() + neighbors.bytes();
}

uint32_t search_cagra(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                      const PreparedQuery& query, const Admission& admission, uint32_t k,
                      const CagraPlan& plan, CagraSpace& space, SearchCounts* counts) {
  space.fit(plan, graph.degree);
  if (!plan.stored) codes.encode_query(query, space.code.data());
  const VisitedCleared cleared(space.visited);
  CagraSearch search{dataset, codes, graph, query, plan, space, admission};
  search.run();
  const uint32_t kept = merge_lists(plan, admission, space);
  for (uint32_t i = 0; i < kept; ++i) space.rows[i] = RowKey::row(space.merged[i]);
  if (codes.lossless()) {
    for (uint32_t i = 0; i < kept; ++i)
      space.distances[i] = static_cast<float>(RowKey::distance(space.merged[i]));
  } else {
    search.counts.distances += std::min(plan.kept, dataset.rows());
    dataset.distances(query, space.rows.data(), 0, kept, space.distances.data());
  }
  counts->distances += search.counts.distances;
  counts->expansions += search.counts.expansions;
  // Lower rows win equal distances, as on the device; the answers are then put in the order of ids.
  for (uint32_t i = 0; i < kept; ++i) space.neighbors[i] = {space.distances[i], space.rows[i]};
  const uint32_t found = std::min(k, kept);
  std::sort(space.neighbors.data(), space.neighbors.data() + kept);
  for (uint32_t i = 0; i < found; ++i)
    space.neighbors[i].id = dataset.id(static_cast<uint32_t>(space.neighbors[i].id));
  std::sort(space.neighbors.data(), space.neighbors.data() + found);
  return found;
}

}  // namespace gannet

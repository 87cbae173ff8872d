#include "graph/covering_heads.h"

#include <algorithm>
#include <bit>

#include "base/row_loops.h"
#include "graph/long_edges.h"

namespace gannet {
namespace {

constexpr uint32_t kHops = 2;      // at first,
constexpr uint32_t kHopsMost = 4;  // and where too many heads would be needed
constexpr uint32_t kWordBits = 32;
/// Heads whose neighbours are read between two questions to the monitor,
constexpr uint64_t kStepsAtOnce = 4096;
/// and in all: 25 to 50 times as many edges.
constexpr uint64_t kStepsMost = 1 << 20;

constexpr uint32_t words_of(uint32_t degree) { return (degree + kWordBits - 1) / kWordBits; }

/// Which edges of each head lead to one near it: with an edge back, and a third head to which both have such edges.
class HeadNeighbors {
 public:
  HeadNeighbors(const SearchGraph& graph, const Execution& execution)
      : graph_(graph),
        words_(words_of(graph.degree)),
        numbers_(filled_array<uint32_t>(execution, graph.rows, kNoRow)),
        mutual_(filled_array<uint32_t>(execution, graph.heads.size() * words_, 0u)),
        near_(filled_array<uint32_t>(execution, graph.heads.size() * words_, 0u)) {
    serial_for(execution, graph.heads.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t head = begin; head < end; ++head)
        numbers_[graph.heads[head]] = static_cast<uint32_t>(head);
    });
    for_each_head(execution, [&](uint32_t head) { mark_mutual(head); });
    for_each_head(execution, [&](uint32_t head) { mark_near(head); });
  }

  /// Calls visit(number of a neighbour) for each of a head.
  template <class Visit>
  void each(uint32_t head, const Visit& visit) const {
    any_of(near_, head, [&](uint32_t, uint32_t neighbor) {
      visit(neighbor);
      return false;
    });
  }

 private:
  template <class Mark>
  void for_each_head(const Execution& execution, const Mark& mark) const {
    const uint64_t grain = items_per_task(uint64_t{graph_.degree} * graph_.degree, kRowsAtOnce);
    parallel_for(execution, graph_.heads.size(), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t head = begin; head < end; ++head) mark(static_cast<uint32_t>(head));
    });
  }

  /// Whether test(rank, number of the target) holds for an edge that has the mark; asked up to the first.
  template <class Test>
  bool any_of(const Array<uint32_t>& marks, uint32_t head, const Test& test) const {
    const uint32_t* targets = graph_.row(graph_.heads[head]).targets;
    for (uint32_t word = 0; word < words_; ++word) {
      for (uint32_t left = marks[uint64_t{head} * words_ + word]; left != 0; left &= left - 1) {
        const uint32_t rank = word * kWordBits + static_cast<uint32_t>(std::countr_zero(left));
        if (test(rank, numbers_[targets[rank]])) return true;
      }
    }
    return false;
  }

  void set(Array<uint32_t>& marks, uint32_t head, uint32_t rank) {
    marks[uint64_t{head} * words_ + rank / kWordBits] |= 1u << rank % kWordBits;
  }

  /// The first that reads these rows.
  void mark_mutual(uint32_t head) {
    const uint32_t number = graph_.heads[head];
    const AdjacencyRow row = graph_.touched_row(number);
    for (uint32_t rank = 0; rank < row.length && row.targets[rank] != kNoRow; ++rank) {
      const uint32_t target = row.targets[rank];
      if (numbers_[target] == kNoRow) continue;
      const AdjacencyRow back = graph_.touched_row(target);
      if (std::find(back.begin(), back.end(), number) != back.end()) set(mutual_, head, rank);
    }
  }

  void mark_near(uint32_t head) {
    uint32_t neighbors[ANN_DEGREE_MAX];
    uint32_t count = 0;
    any_of(mutual_, head, [&](uint32_t, uint32_t neighbor) {
      neighbors[count++] = neighbor;
      return false;
    });
    const auto is_neighbor = [&](uint32_t, uint32_t other) {
      return std::find(neighbors, neighbors + count, other) != neighbors + count;
    };
    any_of(mutual_, head, [&](uint32_t rank, uint32_t neighbor) {
      if (any_of(mutual_, neighbor, is_neighbor)) set(near_, head, rank);
      return false;
    });
  }

  const SearchGraph& graph_;
  uint32_t words_;
  Array<uint32_t> numbers_;  // [rows] of heads, kNoRow of others
  Array<uint32_t> mutual_;   // [heads, words] a bit an edge: the target has one back
  Array<uint32_t> near_;     // [heads, words] likewise: and they share a neighbour
};

/// Chooses heads one after the other, each of which covers those within some steps.
class Cover {
 public:
  Cover(const HeadNeighbors& neighbors, uint32_t heads, const Execution& execution)
      : neighbors_(neighbors),
        execution_(execution),
        front_(execution.memory, heads),
        reached_(execution.memory, heads),
        covered_(execution.memory, heads) {}

  /// Writes their numbers; false where they are more than there is room for, or take too many steps.
  bool choose(uint32_t hops, Array<uint32_t>& chosen, uint32_t& count) {
    count = 0;
    serial_for(execution_, covered_.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      std::fill(reached_.data() + begin, reached_.data() + end, kNoRow);
      std::fill(covered_.data() + begin, covered_.data() + end, uint8_t{0});
    });
    for (uint32_t head = 0; head < covered_.size(); ++head) {
      if (covered_[head] != 0) continue;
      if (count == chosen.size() || steps_ > kStepsMost) return false;
      chosen[count++] = head;
      cover_from(head, hops);
    }
    return true;
  }

 private:
  void cover_from(uint32_t head, uint32_t hops) {
    uint32_t begin = 0;
    uint32_t end = 0;
    const auto reach = [&](uint32_t other) {
      if (reached_[other] == head) return;
      reached_[other] = head;
      covered_[other] = 1;
      front_[end++] = other;
    };
    reach(head);
    for (uint32_t hop = 0; hop < hops; ++hop) {
      for (const uint32_t step_end = end; begin < step_end; ++begin) {
        if (steps_++ % kStepsAtOnce == 0) execution_.check();
        neighbors_.each(front_[begin], reach);
      }
    }
  }

  const HeadNeighbors& neighbors_;
  const Execution& execution_;
  Array<uint32_t> front_;    // [heads] those that one reaches, in order of steps
  Array<uint32_t> reached_;  // [heads] the head from which each was reached last
  Array<uint8_t> covered_;   // [heads]
  uint64_t steps_ = 0;
};

}  // namespace

Array<uint32_t> covering_heads(const SearchGraph& graph, const Execution& execution) {
  const auto heads = static_cast<uint32_t>(graph.heads.size());
  if (!graph.is_fixed() || heads <= graph.entries.size()) return {};
  const HeadNeighbors neighbors(graph, execution);
  Cover cover(neighbors, heads, execution);
  Array<uint32_t> chosen(execution.memory, std::min(heads, kCoveringMost));
  uint32_t count = 0;
  uint32_t hops = kHops;
  while (!cover.choose(hops, chosen, count)) {
    if (++hops > kHopsMost) return {};
  }
  Array<uint32_t> rows(execution.memory, count);
  for (uint32_t i = 0; i < count; ++i) rows[i] = graph.heads[chosen[i]];
  return rows;
}

uint64_t covering_heads_bytes(uint64_t rows, uint32_t degree) {
  const uint64_t heads = rows / kHeadShare;
  return rows * sizeof(uint32_t) + heads * (2 * words_of(degree) * sizeof(uint32_t) + 9) +
         2 * kCoveringMost * sizeof(uint32_t) + 8 * kAlignment;
}

}  // namespace gannet

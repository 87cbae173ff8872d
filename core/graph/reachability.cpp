// Which rows a search can reach, and edges for those that it cannot.

#include <algorithm>

#include "base/random.h"
#include "graph/search_graph.h"

namespace gannet {
namespace {

constexpr uint64_t kEntryStream = 0x656e747279;  // "entry"

/// The breadth-first tree from the entry points: who is reached, and which edges it uses.
class Tree {
 public:
  Tree(SearchGraph& graph, const Allocator& memory)
      : graph_(graph),
        reached_(Array<uint8_t>::zeroed(memory, graph.rows)),
        used_(Array<uint8_t>::zeroed(memory, graph.edges.size())),
        queue_(memory, graph.rows) {
    for (const uint32_t entry : graph.entries) enter(entry);
    grow();
  }

  bool reached(uint32_t row) const { return reached_[row] != 0; }
  uint32_t size() const { return tail_; }
  uint32_t in_order(uint32_t place) const { return queue_[place]; }

  /// Hangs `lost` below `parent`, if that has a place free or outside the tree.
  bool attach(uint32_t parent, uint32_t lost) {
    const uint64_t begin = uint64_t{parent} * graph_.degree;
    uint32_t place = kNoRow;
    for (uint32_t i = 0; i < graph_.degree; ++i) {
      if (used_[begin + i] == 0) place = i;
      if (graph_.edges[begin + i] == kNoRow) break;  // the first free place keeps holes at the end
    }
    if (place == kNoRow) return false;
    graph_.edges[begin + place] = lost;
    used_[begin + place] = 1;
    enter(lost);
    grow();
    return true;
  }

 private:
  void enter(uint32_t row) {
    if (reached_[row] != 0) return;
    reached_[row] = 1;
    queue_[tail_++] = row;
  }

  void grow() {
    for (; head_ < tail_; ++head_) {
      const uint64_t begin = uint64_t{queue_[head_]} * graph_.degree;
      for (uint32_t i = 0; i < graph_.degree; ++i) {
        const uint32_t target = graph_.edges[begin + i];
        if (target == kNoRow) break;
        if (reached_[target] != 0) continue;
        used_[begin + i] = 1;
        enter(target);
      }
    }
  }

  SearchGraph& graph_;
  Array<uint8_t> reached_;  // [rows]
  Array<uint8_t> used_;     // [rows, degree] whether the tree uses the edge
  Array<uint32_t> queue_;   // [rows] rows in the order in which they were reached
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

}  // namespace

Array<uint32_t> choose_entries(uint32_t rows, uint32_t count, uint64_t seed,
                               const Allocator& memory) {
  Array<uint32_t> entries(memory, std::min(rows, count));
  random_strata(rows, entries.size(), seed, kEntryStream, entries.data());
  return entries;
}

uint32_t repair_reachability(SearchGraph& graph, const Execution& execution) {
  if (graph.rows == 0) return 0;
  Tree tree(graph, execution.memory);
  uint32_t spent = 0;
  uint32_t donor = 0;  // rows before this place of the tree's order have no place to give
  // Rows whose own list leads back into the tree come first: they are hung where they belong. What
  // remains is islands; one row of an island is hung anywhere, and the others may then follow.
  while (tree.size() < graph.rows) {
    const uint32_t size_before = tree.size();
    uint32_t lost = kNoRow;
    for (uint32_t row = 0; row < graph.rows && tree.size() < graph.rows; ++row) {
      if (row % 65536 == 0) execution.check();
      if (tree.reached(row)) continue;
      const uint32_t* list = graph.row(row);
      bool attached = false;
      for (uint32_t i = 0; i < graph.degree && list[i] != kNoRow && !attached; ++i)
        attached = tree.reached(list[i]) && tree.attach(list[i], row);
      spent += attached ? 1 : 0;
      if (!attached && lost == kNoRow) lost = row;
    }
    if (tree.size() != size_before) continue;
    while (!tree.attach(tree.in_order(donor), lost)) ++donor;
    ++spent;
  }
  return spent;
}

uint64_t count_unreachable(const SearchGraph& graph, const Allocator& memory) {
  Array<uint8_t> reached = Array<uint8_t>::zeroed(memory, graph.rows);
  Array<uint32_t> queue(memory, graph.rows);
  uint32_t tail = 0;
  const auto enter = [&](uint32_t row) {
    if (reached[row] == 0) {
      reached[row] = 1;
      queue[tail++] = row;
    }
  };
  for (const uint32_t entry : graph.entries) enter(entry);
  for (uint32_t head = 0; head < tail; ++head) {
    const uint32_t* list = graph.row(queue[head]);
    for (uint32_t i = 0; i < graph.degree && list[i] != kNoRow; ++i) enter(list[i]);
  }
  return graph.rows - tail;
}

}  // namespace gannet

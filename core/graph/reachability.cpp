// Which rows a search can reach, and edges for those that it cannot.

#include <algorithm>
#include <bit>

#include "base/random.h"
#include "base/row_loops.h"
#include "graph/search_graph.h"

namespace gannet {
namespace {

constexpr uint64_t kEntryStream = 0x656e747279;  // "entry"

/// The breadth-first tree from the entry points: the rows that it reaches, and the edges that it uses.
class Tree {
 public:
  Tree(SearchGraph& graph, const Execution& execution)
      : table_(graph.table()),
        execution_(execution),
        asked_rows_(items_per_task(graph.degree, kRowsAtOnce)),
        reached_(filled_array<uint8_t>(execution, graph.rows, uint8_t{0})),
        used_(filled_array<uint8_t>(execution, graph.edges.size(), uint8_t{0})),
        queue_(execution.memory, graph.rows) {
    for (const uint32_t entry : graph.entries) enter(entry);
    grow();
  }

  bool reached(uint32_t row) const { return reached_[row] != 0; }
  uint32_t size() const { return tail_; }
  uint32_t in_order(uint32_t place) const { return queue_[place]; }

  /// Attaches `child` to `parent`, if that has a place free or outside the tree.
  bool attach(uint32_t parent, uint32_t child) {
    const UsedRow edges = row(parent);
    uint32_t place = kNoRow;
    for (uint32_t i = 0; i < table_.degree; ++i) {
      if (edges.used[i] == 0) place = i;
      if (edges.targets[i] == kNoRow) break;  // the first free place keeps holes at the end
    }
    if (place == kNoRow) return false;
    edges.targets[place] = child;
    edges.used[place] = 1;
    enter(child);
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
      if (head_ + kAhead < tail_) prefetch_row(queue_[head_ + kAhead]);
      if (head_ % asked_rows_ == asked_rows_ - 1) execution_.check();
      const UsedRow edges = row(queue_[head_]);
      for (uint32_t i = 0; i < table_.degree; ++i) {
        const uint32_t target = edges.targets[i];
        if (target == kNoRow) break;
        if (reached_[target] != 0) continue;
        edges.used[i] = 1;
        enter(target);
      }
    }
  }

  /// The rows of the queue lie anywhere, and their edges are little work each.
  void prefetch_row(uint32_t number) const {
    constexpr size_t kLine = 64;
    const char* const edges = reinterpret_cast<const char*>(table_.row(number));
    for (size_t byte = 0; byte < table_.degree * sizeof(uint32_t); byte += kLine)
      __builtin_prefetch(edges + byte);
  }

  static constexpr uint32_t kAhead = 8;  // rows of the queue whose edges are on their way

  struct UsedRow {
    uint32_t* targets;
    uint8_t* used;
  };
  UsedRow row(uint32_t number) {
    uint32_t* targets = table_.row(number);
    return {targets, used_.data() + (targets - table_.edges)};
  }

  EdgeTable table_;
  const Execution& execution_;
  uint64_t asked_rows_;     // between two questions to the monitor
  Array<uint8_t> reached_;  // [rows]
  Array<uint8_t> used_;     // [rows, degree] whether the tree uses the edge
  Array<uint32_t> queue_;   // [rows] rows in the order in which they were reached
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

/// The repair, row by row in ascending order, pass after pass. A row that could not be attached can be attached only
/// once a row of its list has been reached, so later passes retry these rows alone:
/// `pending` has them. Trying all of them in every pass would take as many passes as there are islands.
class Repair {
 public:
  Repair(SearchGraph& graph, Tree& tree, const Execution& execution)
      : graph_(graph),
        tree_(tree),
        execution_(execution),
        pending_(Array<uint64_t>::zeroed(execution.memory, graph.rows / 64 + 1)),
        begins_(filled_array<uint64_t>(execution, size_t{graph.rows} + 1, 0u)) {
    list_dependents();
    serial_for(execution, graph.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
        if (!tree.reached(row)) insert_pending(row);
      }
    });
  }

  /// Rows whose own list leads back into the tree come first: they are attached to their neighbours. Islands
  /// remain; one row of an island is attached to any row, and the others may then follow.
  uint32_t run() {
    uint32_t edges_added = 0;
    uint32_t parent = 0;       // rows before this place of the tree's order have no free place
    uint32_t unreachable = 0;  // rows before this one are reached by now
    uint32_t tried = 0;
    for (uint32_t row = 0; tree_.size() < graph_.rows; ++tried) {
      if (tried % 65536 == 0) execution_.check();
      const uint32_t size_before = tree_.size();
      if (pending_count_ != 0) {
        row = next_pending(row);
        erase_pending(row);
        if (tree_.reached(row) || !attach_by_list(row)) continue;
      } else {
        while (tree_.reached(unreachable)) ++unreachable;
        while (!tree_.attach(tree_.in_order(parent), unreachable)) ++parent;
        row = 0;
      }
      ++edges_added;
      for (uint32_t place = size_before; place < tree_.size(); ++place)
        insert_dependents(tree_.in_order(place));
    }
    return edges_added;
  }

 private:
  template <class Visit>
  void each_unreachable_edge(const Visit& visit) {
    const auto visit_row = [&](uint32_t row) {
      if (tree_.reached(row)) return;
      for (const uint32_t target : graph_.row(row)) {
        if (target == kNoRow) break;
        if (!tree_.reached(target)) visit(row, target);
      }
    };
    serial_for(execution_, graph_.rows, items_per_task(graph_.degree, kRowsAtOnce),
               [&](uint64_t begin, uint64_t end) {
                 for (uint64_t row = begin; row < end; ++row) visit_row(static_cast<uint32_t>(row));
               });
  }

  /// For each unreachable row the unreachable rows that have it in their list.
  void list_dependents() {
    each_unreachable_edge([&](uint32_t, uint32_t target) { ++begins_[target]; });
    serial_for(execution_, graph_.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t row = begin; row < end; ++row) begins_[row + 1] += begins_[row];
    });
    dependents_ = Array<uint32_t>(execution_.memory, begins_[graph_.rows]);
    each_unreachable_edge([&](uint32_t row, uint32_t target) { dependents_[--begins_[target]] = row; });
  }

  void insert_dependents(uint32_t row) {
    for (uint64_t i = begins_[row]; i < begins_[row + 1]; ++i) {
      if (!tree_.reached(dependents_[i])) insert_pending(dependents_[i]);
    }
  }

  bool attach_by_list(uint32_t row) {
    for (const uint32_t target : graph_.row(row)) {
      if (target == kNoRow) break;
      if (tree_.reached(target) && tree_.attach(target, row)) return true;
    }
    return false;
  }

  void insert_pending(uint32_t row) {
    const uint64_t bit = uint64_t{1} << row % 64;
    pending_count_ += (pending_[row / 64] & bit) == 0 ? 1 : 0;
    pending_[row / 64] |= bit;
  }
  void erase_pending(uint32_t row) {
    pending_[row / 64] &= ~(uint64_t{1} << row % 64);
    --pending_count_;
  }

  /// The first pending row from `row` on, or from the start; there is one.
  uint32_t next_pending(uint32_t row) const {
    uint64_t word = pending_[row / 64] & (UINT64_MAX << row % 64);
    uint64_t place = row / 64;
    while (word == 0) {
      place = place + 1 < pending_.size() ? place + 1 : 0;
      word = pending_[place];
    }
    return static_cast<uint32_t>(64 * place + static_cast<uint64_t>(std::countr_zero(word)));
  }

  SearchGraph& graph_;
  Tree& tree_;
  const Execution& execution_;
  Array<uint64_t> pending_;     // [rows / 64 + 1] bits
  Array<uint64_t> begins_;      // [rows + 1] into dependents
  Array<uint32_t> dependents_;  // unreachable rows, by the unreachable row in their list
  uint64_t pending_count_ = 0;
};

}  // namespace

Array<uint32_t> choose_entries(uint32_t rows, uint32_t count, uint64_t seed, const Allocator& memory) {
  Array<uint32_t> entries(memory, std::min(rows, count));
  random_strata(rows, entries.size(), seed, kEntryStream, entries.data());
  return entries;
}

uint32_t repair_reachability(SearchGraph& graph, const Execution& execution) {
  Tree tree(graph, execution);
  if (tree.size() == graph.rows) return 0;
  return Repair(graph, tree, execution).run();
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
    for (const uint32_t target : graph.row(queue[head])) {
      if (target == kNoRow) break;
      enter(target);
    }
  }
  return graph.rows - tail;
}

uint64_t repair_bytes(uint64_t rows, uint32_t degree) {
  const uint64_t tree = sizeof(uint8_t) + sizeof(uint32_t);  // reached, and the queue
  const uint64_t used = degree * sizeof(uint8_t);
  const uint64_t pending_and_begins = 1 + sizeof(uint64_t);
  const uint64_t dependents = degree * sizeof(uint32_t);
  return rows * (tree + used + pending_and_begins + dependents);
}

/// The tree of reachability.cu, and parallel attachment for the case that nearly all rows are unreachable.
uint64_t repair_device_bytes(uint64_t rows) {
  const uint64_t claim = sizeof(uint64_t);
  const uint64_t place_order_offset = 3 * sizeof(uint32_t);
  const uint64_t unreachable = sizeof(uint32_t);
  const uint64_t parallel =
      6 * sizeof(uint32_t) + 3 * sizeof(uint64_t);  // roots to overwritten; overwritten_at, keys, sorted
  const uint64_t sorting = sizeof(uint64_t) + 1;    // proposals in transit, and counts
  return rows * (claim + place_order_offset + unreachable + parallel + sorting);
}

}  // namespace gannet

#include "graph/product_edges.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "base/parallel_sort.h"
#include "base/row_loops.h"
#include "graph/product_merge.h"
#include "traverse/beam.h"
#include "traverse/visited.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 64;
constexpr uint32_t kLongest = 16;  // one row in this many is long

/// The lists that a round of neighbours' neighbours reads.
struct Round {
  uint32_t near;  // rows by the edges of the graph
  uint32_t own;   // rows of the list itself
};
constexpr Round kRounds[] = {{8, 0}, {4, 4}};
constexpr uint32_t kLookedAt = 8;   // rows whose lists one round reads at most
constexpr uint32_t kListRead = 32;  // entries of each list that are read
constexpr uint32_t kBeamMin = 64;
constexpr uint32_t kWave = 3;       // one row in this many walks, and guides others
constexpr uint32_t kGuides = 8;     // whose lists another row reads at most,
constexpr uint32_t kGuidesMin = 2;  // or else it walks itself

/// Rows of the beam for a list of k.
constexpr uint32_t beam_for(uint32_t k) { return std::max(k + k / 3, kBeamMin); }

struct Workspace {
  Workspace(const Dataset& dataset, const Codes& codes, uint32_t degree, uint32_t entries, uint32_t beam,
            const Allocator& memory)
      : visited(memory, codes.rows()),
        values(memory, dataset.query_bytes()),
        code(memory, codes.walk_query_bytes()),
        candidates(memory, std::max({degree, entries, beam + kLookedAt * kListRead})),
        distances(memory, candidates.size()),
        keys(memory, Beam::room(beam)) {}

  Visited visited;
  Array<uint8_t> values;
  Array<uint8_t> code;
  Array<uint32_t> candidates;
  Array<uint32_t> distances;
  Array<uint64_t> keys;
};

/// The beams of all rows, ascending RowKeys, kNone behind.
class Beams {
 public:
  Beams(uint32_t rows, uint32_t length, const Execution& execution)
      : rows(rows), length(length), keys_(execution.memory, checked_product(rows, length)) {}

  const uint32_t rows;
  const uint32_t length;

  uint64_t* of(uint64_t row) { return keys_.data() + row * length; }
  const uint64_t* of(uint64_t row) const { return keys_.data() + row * length; }

 private:
  Array<uint64_t> keys_;  // [rows, length]
};

/// The first k of the beams of all rows, after each row is inserted into the lists of the rows in its own beam where it is
/// nearer than their k-th.
class MutualLists {
 public:
  MutualLists(const Beams& beams, uint32_t k, const Execution& execution)
      : beams_(beams),
        rows_(beams.rows),
        k_(k),
        execution_(execution),
        begins_(execution.memory, size_t{rows_} + 1) {
    Array<std::atomic<uint32_t>> counts = filled_array<std::atomic<uint32_t>>(execution, rows_, 0u);
    each_offer([&](uint32_t to, uint64_t) { counts[to].fetch_add(1, std::memory_order_relaxed); });
    place_by_counts(counts, begins_, execution);
    offers_ = Array<uint64_t>(execution.memory, begins_[rows_]);
    each_offer([&](uint32_t to, uint64_t key) {
      offers_[begins_[to] + counts[to].fetch_add(1, std::memory_order_relaxed)] = key;
    });
  }

  KnnGraph take() {
    KnnGraph lists{Array<uint32_t>(execution_.memory, checked_product(rows_, k_)), rows_, k_, 0};
    parallel_for(execution_, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t row = begin; row < end; ++row) merge(row, lists.neighbors.data() + row * k_);
    });
    return lists;
  }

 private:
  /// Calls visit(row, key) for each row that another one, whose key it gets, is inserted at.
  template <class Visit>
  void each_offer(const Visit& visit) {
    parallel_for(execution_, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t row = begin; row < end; ++row) {
        const uint64_t* const own = beams_.of(row);
        for (uint32_t i = 0; i < beams_.length && own[i] != RowKey::kNone; ++i) {
          const uint32_t other = RowKey::row(own[i]);
          const uint64_t key = RowKey::of(RowKey::distance(own[i]), static_cast<uint32_t>(row), false);
          const uint64_t* const first = beams_.of(other);
          if (key > first[k_ - 1]) continue;
          if (std::none_of(first, first + k_, [&](uint64_t known) { return RowKey::row(known) == row; }))
            visit(other, key);
        }
      }
    });
  }

  void merge(uint64_t row, uint32_t* list) {
    uint64_t* const first = offers_.data() + begins_[row];
    const uint64_t count = begins_[row + 1] - begins_[row];
    const uint64_t* const last = first + std::min<uint64_t>(count, k_);
    sort_smallest(first, count, std::min<uint64_t>(count, k_), execution_);
    const uint64_t* offer = first;
    const uint64_t* own = beams_.of(row);
    for (uint32_t i = 0; i < k_; ++i) {
      const uint64_t key = offer != last && *offer < *own ? *offer++ : *own++;
      list[i] = key == RowKey::kNone ? kNoRow : RowKey::row(key);
    }
  }

  const Beams& beams_;
  uint32_t rows_;
  uint32_t k_;
  const Execution& execution_;
  Array<uint64_t> begins_;  // [rows + 1]
  Array<uint64_t> offers_;  // RowKeys
};

/// The lists by product, from walks over the graph of near rows.
class ProductLists {
 public:
  ProductLists(const SearchGraph& graph, const Dataset& dataset, const Codes& codes, uint32_t k,
               const Execution& execution)
      : graph_(graph), dataset_(dataset), codes_(codes), k_(k), beam_(beam_for(k)) {
    spaces_.reserve(execution.threads);
    for (uint32_t worker = 0; worker < execution.threads; ++worker)
      spaces_.emplace_back(dataset, codes, graph.degree, static_cast<uint32_t>(graph.entries.size()), beam_,
                           execution.memory);
  }

  KnnGraph find_lists(const Execution& execution) {
    Beams beams(graph_.rows, beam_, execution);
    // What guides have found fills no long list.
    const uint32_t wave = 2 * k_ <= kGuides * kListRead ? kWave : 1;
    const auto is_guide = [wave](uint32_t row) { return row % wave == 0; };
    fill_beams(beams, is_guide, execution.span(0, 0.6),
               [&](uint32_t, Workspace& space, Beam& beam) { walk(space, beam); });
    fill_beams(beams, std::not_fn(is_guide), execution.span(0.6, 1),
               [&](uint32_t row, Workspace& space, Beam& beam) {
                 uint32_t asked = 0;
                 for (const uint32_t near : graph_.row(row)) {
                   if (near == kNoRow || asked == kGuides) break;
                   if (!is_guide(near)) continue;
                   meet_list(beams, near, space, beam);
                   ++asked;
                 }
                 if (asked < kGuidesMin || beam.size() < k_) walk(space, beam);
               });
    return MutualLists(beams, k_, execution).take();
  }

  KnnGraph look_through(KnnGraph&& lists, const Execution& execution) {
    constexpr double kParts = std::size(kRounds);
    double part = 0;
    for (const Round& round : kRounds) {
      Beams beams(graph_.rows, beam_, execution);
      fill_beams(
          beams, [](uint32_t) { return true; }, execution.span(part / kParts, (part + 1) / kParts),
          [&](uint32_t row, Workspace& space, Beam& beam) { look_further(row, round, lists, space, beam); });
      lists = MutualLists(beams, k_, execution).take();
      part += 1;
    }
    return lists;
  }

 private:
  /// Keeps the rows that fill(row, space, beam) leaves in the beam of each row as a query that is wanted.
  template <class Wants, class Fill>
  void fill_beams(Beams& beams, const Wants& is_wanted, const Execution& execution, const Fill& fill) {
    std::atomic<uint64_t> done = 0;
    parallel_for(execution, graph_.rows, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      Workspace& space = spaces_[worker];
      for (uint64_t row = begin; row < end; ++row) {
        if (!is_wanted(static_cast<uint32_t>(row))) continue;
        PreparedQuery query;
        dataset_.prepare(static_cast<const uint8_t*>(dataset_.view().row(row)), dataset_.element(),
                         space.values.data(), &query);
        codes_.encode_walk_query(query, space.code.data());
        Beam beam(space.keys.data(), beam_);
        space.visited.enter(static_cast<uint32_t>(row));
        fill(static_cast<uint32_t>(row), space, beam);
        space.visited.clear();
        uint64_t* const keys = beams.of(row);
        for (uint32_t i = 0; i < beam_; ++i)
          keys[i] = i < beam.size() ? beam.key(i) & ~RowKey::kFlag : RowKey::kNone;
      }
      execution.advance(static_cast<double>(done += end - begin) / graph_.rows);
    });
  }

  /// Compares the first rows of another one's beam.
  void meet_list(const Beams& beams, uint32_t other, Workspace& space, Beam& beam) const {
    uint32_t rows[kListRead];
    uint32_t count = 0;
    const uint64_t* const keys = beams.of(other);
    for (; count < std::min(kListRead, beam_) && keys[count] != RowKey::kNone; ++count)
      rows[count] = RowKey::row(keys[count]);
    meet(rows, count, space, beam);
  }

  /// Best first, as search/best_first.h has it.
  void walk(Workspace& space, Beam& beam) const {
    meet(graph_.entries.data(), static_cast<uint32_t>(graph_.entries.size()), space, beam);
    for (uint32_t row = beam.pop(); row != kNoRow; row = beam.pop()) {
      const AdjacencyRow edges = graph_.row(row);
      meet(edges.targets, edges.length, space, beam);
    }
  }

  void look_further(uint32_t row, const Round& round, const KnnGraph& lists, Workspace& space,
                    Beam& beam) const {
    meet(lists.list(row), k_, space, beam);
    const AdjacencyRow edges = graph_.row(row);
    for (uint32_t i = 0; i < std::min(round.near, edges.length) && edges.targets[i] != kNoRow; ++i)
      meet(lists.list(edges.targets[i]), std::min(k_, kListRead), space, beam);
    for (uint32_t i = 0; i < std::min(round.own, k_) && lists.list(row)[i] != kNoRow; ++i)
      meet(lists.list(lists.list(row)[i]), std::min(k_, kListRead), space, beam);
  }

  /// Compares those of `rows` that have not been met.
  void meet(const uint32_t* rows, uint32_t count, Workspace& space, Beam& beam) const {
    const uint32_t fresh = space.visited.enter(rows, count, space.candidates.data());
    for (uint32_t i = 0; i < fresh; ++i) {
      const uint8_t* code = codes_.walk_row(space.candidates[i]);
      for (size_t byte = 0; byte < std::min<size_t>(codes_.walk_stride(), 512); byte += 64)
        __builtin_prefetch(code + byte);
    }
    codes_.walk_distances(space.code.data(), space.candidates.data(), fresh, space.distances.data());
    beam.insert(space.distances.data(), space.candidates.data(), fresh);
  }

  const SearchGraph& graph_;
  const Dataset& dataset_;
  const Codes& codes_;
  uint32_t k_;
  uint32_t beam_;
  std::vector<Workspace> spaces_;
};

/// Product edges, as many a row as the graph has, of lists as prune_by_rank leaves them, into a graph of near rows.
void merge_product_edges(SearchGraph& graph, const Array<uint32_t>& pruned, const Execution& execution) {
  const EdgeTable table = graph.table();
  Array<uint32_t> scratch(execution.memory, size_t{graph.degree} * execution.threads);
  parallel_for(execution, graph.rows, 1024, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t* const near = scratch.data() + size_t{graph.degree} * worker;
    for (uint64_t row = begin; row < end; ++row) {
      uint32_t* const edges = table.row(static_cast<uint32_t>(row));
      std::copy_n(edges, graph.degree, near);
      merge_product_row(near, pruned.data() + row * graph.degree, graph.degree, edges);
    }
  });
}

/// The i-th of `count` ranks below `ranks` that grow as powers, by roots alone, which are the same on all machines.
uint32_t geometric(uint32_t ranks, uint32_t i, uint32_t count) {
  double power = 1;
  double root = ranks;
  for (uint32_t share = 2 * i; share != 0 && root > 1; share = share % count * 2) {
    root = std::sqrt(root);
    if (share >= count) power *= root;
    if (root < 1.0001) break;
  }
  return static_cast<uint32_t>(power);
}

}  // namespace

Array<uint32_t> choose_entries_by_product(const Dataset& dataset, uint32_t count, uint64_t seed,
                                          const Execution& execution) {
  const uint32_t rows = dataset.rows();
  const uint32_t spread = std::min(rows, count - count / 4 * 3);
  const uint32_t even = count / 2;
  const uint32_t longest = count / 4;
  const Array<uint32_t> anywhere = choose_entries(rows, spread, seed, execution.memory);
  Array<double> lengths(execution.memory, rows);
  parallel_for(execution, rows, 1024, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      double squares = 0;
      for (uint32_t column = 0; column < dataset.dim(); ++column) {
        const double value = element_to_float(dataset.view().row(row), dataset.element(), column);
        squares += value * value;
      }
      lengths[row] = squares;
    }
  });
  Array<uint32_t> order(execution.memory, rows);
  parallel_for(execution, rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::iota(order.data() + begin, order.data() + end, static_cast<uint32_t>(begin));
  });
  const auto longer = [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b] || (lengths[a] == lengths[b] && a < b);
  };
  const uint32_t strata = std::min(rows, std::max(count, rows / kLongest));
  parallel_sort(order, longer, execution);
  std::vector<uint32_t> chosen(anywhere.begin(), anywhere.end());
  for (uint64_t i = 0; i < even && strata > 0; ++i)
    chosen.push_back(order[static_cast<size_t>(i * strata / even)]);
  uint32_t rank = 0;
  for (uint32_t i = 0; i < longest && rank < strata; ++i) {
    chosen.push_back(order[rank]);
    rank = std::max(rank + 1, geometric(strata, i + 1, longest));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  Array<uint32_t> entries(execution.memory, chosen.size());
  std::copy(chosen.begin(), chosen.end(), entries.begin());
  return entries;
}

KnnGraph lists_by_product(const SearchGraph& graph, const Dataset& dataset, const Codes& codes, uint32_t k,
                          const Execution& execution) {
  ProductLists lists(graph, dataset, codes, k, execution);
  return lists.look_through(lists.find_lists(execution.span(0, 0.6)), execution.span(0.6, 1));
}

void add_product_edges(SearchGraph& graph, const Dataset& dataset, const Codes& codes, uint32_t k,
                       const Execution& execution) {
  Array<uint32_t> pruned;
  {
    const KnnGraph lists = lists_by_product(graph, dataset, codes, k, execution.span(0, 0.9));
    pruned = prune_by_rank(lists, Pruning::near(graph.degree), execution.span(0.9, 1));
  }
  merge_product_edges(graph, pruned, execution);
}

uint64_t product_edges_bytes(uint64_t rows, uint32_t dim, uint32_t k, uint32_t degree, uint32_t threads) {
  const uint64_t beam = beam_for(k);
  const uint64_t query = 16ull * dim + 4096;
  const uint64_t space = rows / 8 + 8192 * 4 + query + (beam + degree + 1024) * 32;
  const uint64_t mutual =
      2 * beam * sizeof(uint64_t) + 12;  // beams, at most as many offers, and their counts and begins
  return rows * (mutual + (2ull * k + degree) * sizeof(uint32_t)) + threads * space +
         (uint64_t{threads} * 8 + 16) * kAlignment;
}

}  // namespace gannet

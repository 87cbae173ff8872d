#include "graph/long_edges.h"

// Compiled in, as in storage/format.cpp.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/random.h"
#include "base/row_loops.h"
#include "graph/head_edges.h"
#include "graph/start_edges.h"
#include "knn/cells.h"
#include "knn/exact_knn.h"

namespace gannet {
namespace {

constexpr uint32_t kHeadsCompared = 4096;  // all pairs of so few are compared

/// Rows by their codes: a table of row numbers with open places.
class CodeTable {
 public:
  /// With room for `rows` of them.
  CodeTable(const Codes& codes, uint32_t rows, const Execution& execution)
      : codes_(codes), places_(filled_array<uint32_t>(execution, room(rows), kNoRow)) {}

  /// Bytes that a table of so many rows takes.
  static uint64_t bytes(uint64_t rows) { return room(rows) * sizeof(uint32_t); }

  /// The row that was entered with the code of this one, or kNoRow.
  uint32_t find(uint32_t row, uint32_t hash) const { return places_[place_of(row, hash)]; }

  /// The same, which is the row itself if there was none.
  uint32_t enter(uint32_t row, uint32_t hash) {
    uint32_t& place = places_[place_of(row, hash)];
    if (place == kNoRow) place = row;
    return place;
  }

  static uint32_t hash_of(const Codes& codes, uint32_t row) {
    return static_cast<uint32_t>(XXH3_64bits(codes.row(row), codes.stride()));
  }

 private:
  static size_t room(uint64_t rows) { return std::bit_ceil(rows * 2 + 2); }

  size_t place_of(uint32_t row, uint32_t hash) const {
    const size_t last = places_.size() - 1;
    size_t place = hash & last;
    while (places_[place] != kNoRow && !are_copies(row, places_[place])) place = (place + 1) & last;
    return place;
  }

  bool are_copies(uint32_t row, uint32_t other) const {
    return std::memcmp(codes_.row(row), codes_.row(other), codes_.stride()) == 0;
  }

  const Codes& codes_;
  Array<uint32_t> places_;
};

/// The hash of each row's code, which is most of the work where copies are looked for.
void hash_codes(const Codes& codes, Array<uint32_t>& hashes, const Execution& execution) {
  parallel_for(execution, codes.rows(), kRowsAtOnce / 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row)
      hashes[row] = CodeTable::hash_of(codes, row);
  });
}

/// Writes for each row the first row with its code in the place of its hash; returns how many codes there are.
uint32_t find_copies(const Codes& codes, Array<uint32_t>& first, const Execution& execution) {
  CodeTable table(codes, codes.rows(), execution);
  uint32_t distinct = 0;
  serial_for(execution, codes.rows(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
      first[row] = table.enter(row, first[row]);
      distinct += first[row] == row ? 1 : 0;
    }
  });
  return distinct;
}

/// Leaves of the first rows of each code those that cover the others. `of` comes with the first row of each row's
/// code and goes with its head.
void cover(const SearchGraph& graph, Array<uint32_t>& of, const Execution& execution) {
  Array<uint32_t> coverer = filled_array<uint32_t>(execution, graph.rows, kNoRow);
  const auto cover_from = [&](uint32_t row) {
    if (of[row] != row || coverer[row] != kNoRow) return;
    coverer[row] = row;
    for (const uint32_t target : graph.row(row)) {
      if (target == kNoRow) break;
      uint32_t& its = coverer[of[target]];
      if (its == kNoRow) its = row;
    }
  };
  serial_for(execution, graph.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row) cover_from(static_cast<uint32_t>(row));
  });
  parallel_for(execution, graph.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) of[row] = coverer[of[row]];
  });
}

/// Lists of k among heads, by their codes.
KnnGraph find_lists(const Codes& heads, uint32_t k, uint64_t seed, const Execution& execution) {
  return heads.rows() <= kHeadsCompared ? exact_knn(heads, k, execution)
                                        : cells_knn(heads, {k, 16, 16, 0.001f, seed}, execution);
}

/// The graph over heads alone, in numbers of heads.
SearchGraph graph_of_heads(const Codes& all, const Array<uint32_t>& rows, uint32_t degree, uint64_t seed,
                           const Execution& execution) {
  const Codes codes(all, rows.data(), static_cast<uint32_t>(rows.size()), execution.memory);
  return graph_of_lists(find_lists(codes, std::min(kHeadLists, codes.rows() - 1), seed, execution), degree,
                        choose_entries(codes.rows(), kEntriesMax, seed, execution.memory), execution);
}

/// The rows that are their own heads, ascending.
Array<uint32_t> own_heads(const Array<uint32_t>& of, const Execution& execution) {
  const auto each_head = [&](const auto& visit) {
    serial_for(execution, of.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
        if (of[row] == row) visit(row);
      }
    });
  };
  uint32_t count = 0;
  each_head([&](uint32_t) { ++count; });
  Array<uint32_t> rows(execution.memory, count);
  count = 0;
  each_head([&](uint32_t row) { rows[count++] = row; });
  return rows;
}

/// Codes and the hash of each, [rows].
struct HashedCodes {
  HashedCodes(const Codes& of, const Execution& execution) : codes(of), hashes(execution.memory, of.rows()) {
    hash_codes(codes, hashes, execution);
  }
  const Codes& codes;
  Array<uint32_t> hashes;
};

void write_edges(const Heads& heads, const SearchGraph& upper, SearchGraph& graph,
                 const Execution& execution) {
  const EdgeTable table = graph.table();
  const uint64_t grain = items_per_task(uint64_t{graph.degree} * graph.degree / 8, kRowsAtOnce / 64);
  Array<uint32_t> merged(execution.memory, checked_product(execution.threads, graph.degree));
  const auto share = [&](uint32_t* edges, const AdjacencyRow& to_heads, uint32_t* shared) {
    share_row(edges, graph.degree, to_heads.targets, to_heads.length, heads.rows.data(), shared);
    std::copy_n(shared, graph.degree, edges);
  };
  parallel_for(execution, heads.rows.size(), grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    for (uint32_t i = static_cast<uint32_t>(begin); i < end; ++i)
      share(table.row(heads.rows[i]), upper.row(i), merged.data() + size_t{worker} * graph.degree);
  });
  parallel_for(execution, graph.rows, kRowsAtOnce / 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t head = heads.of[row];
      if (head != row) lead_back(table.row(static_cast<uint32_t>(row)), graph.degree, head);
    }
  });
}

}  // namespace

Heads choose_heads(const Codes& codes, const SearchGraph& graph, const Execution& execution) {
  Heads heads;
  heads.of = Array<uint32_t>(execution.memory, graph.rows);
  hash_codes(codes, heads.of, execution);
  if (find_copies(codes, heads.of, execution) > graph.rows / kHeadShare) cover(graph, heads.of, execution);
  heads.rows = own_heads(heads.of, execution);
  return heads;
}

bool add_long_edges(const Codes& codes, SearchGraph& graph, uint64_t seed, const Execution& execution) {
  if (graph.degree < kSharedDegreeLeast || !graph.is_fixed()) return false;
  Heads heads = choose_heads(codes, graph, execution);
  const uint32_t count = static_cast<uint32_t>(heads.rows.size());
  if (count < 2 || count > graph.rows / kHeadShare) return false;
  {
    const SearchGraph upper = graph_of_heads(codes, heads.rows, graph.degree / 2, seed, execution);
    write_edges(heads, upper, graph, execution);
  }
  start_at_heads(graph, std::move(heads.rows), seed, execution.memory);
  spread_start_edges(codes, graph, execution);
  graph.repaired_edges += repair_reachability(graph, execution);
  return true;
}

uint64_t long_edges_bytes(uint64_t rows, size_t stride, uint32_t degree, uint32_t threads) {
  const uint64_t heads = rows / kHeadShare;
  const uint32_t k = kHeadLists;
  const uint32_t edges = degree / 2;
  const uint64_t by_cells =
      heads <= kHeadsCompared ? 0 : cells_knn_bytes(heads, stride, {k, 16, 16, 0.001f, 1}, threads);
  const uint64_t finding =
      std::max(exact_knn_bytes(std::min<uint64_t>(heads, kHeadsCompared), stride, k, threads), by_cells);
  const uint64_t shaping =
      std::max({heads * k * sizeof(uint32_t) + prune_bytes(heads, k, stride, Pruning::near(edges), threads),
                reverse_edges_bytes(heads, edges), repair_bytes(heads, edges)});
  const uint64_t upper = heads * (stride + edges * sizeof(uint32_t)) + std::max(finding, shaping);
  const uint64_t numbers = (rows + heads) * sizeof(uint32_t);
  const uint64_t spreading = start_edges_bytes(heads, stride, degree, threads);
  return numbers + std::max({CodeTable::bytes(rows), upper, spreading, repair_bytes(rows, degree)});
}

uint64_t draw_queries_bytes(uint64_t rows) {
  return CodeTable::bytes(rows) + 3 * rows * sizeof(uint32_t) + 8 * kAlignment;
}

void start_at_heads(SearchGraph& graph, Array<uint32_t> heads, uint64_t seed, const Allocator& memory) {
  graph.entries = choose_entries(static_cast<uint32_t>(heads.size()), kEntriesMax, seed, memory);
  for (uint32_t& entry : graph.entries) entry = heads[entry];
  if (heads.size() > kEntryPoints) graph.heads = std::move(heads);
}

namespace {

constexpr uint32_t kQueriesLeast = 32;  // that hide their copies, or see them: fewer say too little
constexpr uint32_t kFewShare = 8;       // of the rows at least one in so many has copies, and few

bool is_head(const SearchGraph& graph, uint32_t row) {
  return std::binary_search(graph.heads.begin(), graph.heads.end(), row);
}

/// Whether another row's way back leads to this head. The head of a row is at its last edge, or, where it
/// was a near row already, it is the first head in the row that covers it, as a rule the one of least number.
bool leads_on(const SearchGraph& graph, uint32_t head) {
  for (const uint32_t target : graph.row(head)) {
    if (target == kNoRow) break;
    if (is_head(graph, target)) continue;
    uint32_t last = kNoRow;
    bool has = false;
    bool has_lesser = false;
    for (const uint32_t back : graph.row(target)) {
      if (back == kNoRow) break;
      last = back;
      has |= back == head;
      has_lesser |= back < head && is_head(graph, back);
    }
    if (last == head || (has && !has_lesser)) return true;
  }
  return false;
}

void avoid_heads(const SearchGraph& graph, Array<uint32_t>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t end = i + 1 < rows.size() ? rows[i + 1] : graph.rows;
    uint32_t row = rows[i];
    while (row < end && is_head(graph, row) && leads_on(graph, row)) ++row;
    if (row < end) rows[i] = row;
  }
}

/// Calls visit(row, like) for every row that has the code of another one, `like`, of `rows`; from many threads. Of
/// equal codes among `rows` the first is that one.
template <class Visit>
void each_copy(const HashedCodes& all, const Array<uint32_t>& rows, const Execution& execution,
               const Visit& visit) {
  const Codes& codes = all.codes;
  CodeTable table(codes, static_cast<uint32_t>(rows.size()), execution);
  for (const uint32_t row : rows) table.enter(row, all.hashes[row]);
  parallel_for(execution, codes.rows(), kRowsAtOnce / 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
      const uint32_t like = table.find(row, all.hashes[row]);
      if (like != kNoRow && like != row) visit(row, like);
    }
  });
}

size_t count_of(const DrawnRows& drawn, CopiesOf kind) {
  return static_cast<size_t>(std::count(drawn.kinds.begin(), drawn.kinds.end(), kind));
}

/// Drawn rows, ascending, and the copies of each.
struct CountedCopies {
  CountedCopies(const HashedCodes& codes, const Array<uint32_t>& drawn, const Execution& execution)
      : rows(drawn),
        counts(Array<uint32_t>::zeroed(execution.memory, drawn.size())),
        first(execution.memory, drawn.size()) {
    for (size_t place = 0; place < first.size(); ++place) first[place] = static_cast<uint32_t>(place);
    each_copy(codes, rows, execution, [&](uint32_t row, uint32_t like) {
      const uint32_t of = place_of(like);
      std::atomic_ref<uint32_t>(counts[of]).fetch_add(1, std::memory_order_relaxed);
      const uint32_t own = place_of(row);
      if (own < rows.size() && rows[own] == row) first[own] = of;
    });
  }

  uint32_t place_of(uint32_t row) const {
    return static_cast<uint32_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  }
  uint32_t copies(size_t place) const { return counts[first[place]]; }
  bool is_first(size_t place) const { return first[place] == place; }
  size_t alone() const {
    size_t alone = 0;
    for (size_t place = 0; place < first.size(); ++place) alone += copies(place) == 0 ? 1 : 0;
    return alone;
  }
  size_t with_few() const {
    size_t with_few = 0;
    for (size_t place = 0; place < first.size(); ++place)
      with_few += copies(place) != 0 && copies(place) <= kCopiesMost ? 1 : 0;
    return with_few;
  }

  const Array<uint32_t>& rows;
  Array<uint32_t> counts;  // [rows] of the first of equal codes among them: rows with its code, drawn or not
  Array<uint32_t> first;   // [rows] place of that first
};

/// Which of drawn rows stand for queries where most have copies.
struct StandingRows {
  const CountedCopies& drawn;
  uint64_t seed;
  uint64_t stream;

  CopiesOf kind(size_t place) const {
    if (drawn.copies(place) == 0) return CopiesOf::kNone;
    if (drawn.copies(place) > kCopiesMost) return CopiesOf::kMany;
    const uint32_t first = drawn.rows[drawn.first[place]];
    return random_below(2, seed, stream + 2, first) == 0 ? CopiesOf::kHidden : CopiesOf::kSeen;
  }
  /// A row with the code of another that hides its copies is one of them.
  bool stands(size_t place) const { return drawn.is_first(place) || kind(place) != CopiesOf::kHidden; }
  uint32_t hidden_with(size_t place) const {
    return kind(place) == CopiesOf::kHidden ? drawn.copies(place) : 0;
  }
};

/// A choice of them, spread over all, that are with the copies which they hide at most `most` rows.
DrawnRows choose_standing(const StandingRows& of, uint64_t most, const Allocator& memory) {
  const Array<uint32_t>& rows = of.drawn.rows;
  uint64_t standing = 0;
  uint64_t hidden = 0;
  for (size_t place = 0; place < rows.size(); ++place) {
    if (!of.stands(place)) continue;
    ++standing;
    hidden += 1 + of.hidden_with(place);
  }
  const uint64_t wanted = hidden <= most ? standing : standing * most / hidden;
  DrawnRows chosen{Array<uint32_t>(memory, wanted), {}, Array<CopiesOf>(memory, wanted)};
  size_t taken = 0;
  uint64_t copies = 0;
  uint64_t seen = 0;
  uint64_t steps = 0;
  for (size_t place = 0; place < rows.size() && steps < wanted; ++place) {
    if (!of.stands(place) || seen++ != steps * standing / wanted) continue;
    ++steps;
    // Of those that are chosen more may have copies than of all.
    if (taken + 1 + copies + of.hidden_with(place) > most) continue;
    chosen.kinds[taken] = of.kind(place);
    chosen.rows[taken++] = rows[place];
    copies += of.hidden_with(place);
  }
  chosen.rows = Array<uint32_t>::front(chosen.rows, taken, memory);
  chosen.kinds = Array<CopiesOf>::front(chosen.kinds, taken, memory);
  chosen.copies = Array<uint32_t>(memory, copies);
  return chosen;
}

/// Finds the copies of those that hide them, for which there is room.
void find_hidden(const HashedCodes& codes, DrawnRows& drawn, const Execution& execution) {
  Array<uint32_t> hiding(execution.memory, count_of(drawn, CopiesOf::kHidden));
  size_t taken = 0;
  for (size_t i = 0; i < drawn.rows.size(); ++i)
    if (drawn.kinds[i] == CopiesOf::kHidden) hiding[taken++] = drawn.rows[i];
  std::atomic<size_t> next = 0;
  each_copy(codes, hiding, execution, [&](uint32_t row, uint32_t) { drawn.copies[next.fetch_add(1)] = row; });
  std::sort(drawn.copies.begin(), drawn.copies.end());
}

}  // namespace

DrawnRows draw_queries(const Codes& codes, const SearchGraph& graph, uint32_t count, uint64_t most,
                       uint64_t seed, uint64_t stream, const Execution& execution) {
  DrawnRows drawn;
  drawn.rows = Array<uint32_t>(execution.memory, count);
  random_strata(graph.rows, count, seed, stream, drawn.rows.data());
  if (!graph.heads.empty()) avoid_heads(graph, drawn.rows);
  const HashedCodes hashed(codes, execution);
  const CountedCopies copies(hashed, drawn.rows, execution);
  if (2 * copies.alone() > count || kFewShare * copies.with_few() < count) return drawn;
  DrawnRows chosen = choose_standing({copies, seed, stream}, most, execution.memory);
  for (const CopiesOf kind : {CopiesOf::kHidden, CopiesOf::kSeen})
    drawn.have_copies |= count_of(chosen, kind) < kQueriesLeast;
  if (drawn.have_copies) return drawn;
  find_hidden(hashed, chosen, execution);
  return chosen;
}

bool have_both_kinds(const CopiesOf* kinds, uint32_t count) {
  const auto has = [&](CopiesOf kind) { return std::find(kinds, kinds + count, kind) != kinds + count; };
  return has(CopiesOf::kHidden) && has(CopiesOf::kSeen);
}

void shuffle(DrawnRows& drawn, uint64_t seed, uint64_t stream, const Allocator& memory) {
  const size_t count = drawn.rows.size();
  for (size_t i = count; i > 1; --i) {
    const size_t other = random_below(i, seed, stream, i);
    std::swap(drawn.rows[i - 1], drawn.rows[other]);
    if (!drawn.kinds.empty()) std::swap(drawn.kinds[i - 1], drawn.kinds[other]);
  }
  if (drawn.kinds.empty()) return;
  // The i-th of n of a kind goes where i / n of all are before it.
  constexpr size_t kKinds = 3;
  const auto kind_of = [](CopiesOf copies) {
    return static_cast<size_t>(copies == CopiesOf::kMany ? CopiesOf::kNone : copies);
  };
  uint64_t counts[kKinds] = {};
  for (const CopiesOf copies : drawn.kinds) ++counts[kind_of(copies)];
  struct Item {
    double part;
    uint32_t row;
    CopiesOf kind;
  };
  Array<Item> items(memory, count);
  uint64_t met[kKinds] = {};
  for (size_t i = 0; i < count; ++i) {
    const size_t kind = kind_of(drawn.kinds[i]);
    const double part = (static_cast<double>(met[kind]++) + 0.5) / static_cast<double>(counts[kind]);
    items[i] = {part, drawn.rows[i], drawn.kinds[i]};
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.part < b.part; });
  for (size_t i = 0; i < count; ++i) {
    drawn.rows[i] = items[i].row;
    drawn.kinds[i] = items[i].kind;
  }
}

}  // namespace gannet

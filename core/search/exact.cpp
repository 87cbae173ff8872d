#include "search/exact.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "search/row_bounds.h"
#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint32_t kSlice = 12;                  // queries of one call of a tile
constexpr uint32_t kGroupMax = 1024;             // queries that share a coded tile
constexpr uint32_t kDirectGroup = 16;            // queries that share a tile where no row is coded
constexpr uint32_t kDirectTile = 256;            // its rows
constexpr size_t kListBytes = size_t{16} << 20;  // of a group's lists, except one
constexpr uint64_t kWork = uint64_t{1} << 23;    // bytes compared, or items moved, between questions
constexpr uint64_t kTouched = 64;                // an entry of a list in memory that may have no page yet
constexpr size_t kSortedAtOnce = 1 << 15;

/// Asks the monitor whenever kWork has been done.
class Meter {
 public:
  explicit Meter(const Execution& execution) : execution_(execution) {}
  void add(uint64_t work) {
    done_ += work;
    if (done_ < kWork) return;
    done_ = 0;
    execution_.check();
  }

 private:
  const Execution& execution_;
  uint64_t done_ = 0;
};

/// Smaller first; counts its calls on a meter, so that long sorts can be ended.
struct Before {
  Meter* meter;
  bool operator()(const Neighbor& a, const Neighbor& b) const {
    meter->add(128);
    return a < b;
  }
};

/// Numbers in the order of distances, of which none is -0 or no number.
uint32_t key_of(float distance) {
  const uint32_t bits = std::bit_cast<uint32_t>(distance);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000);
}
float distance_of(uint32_t key) {
  return std::bit_cast<float>(key ^ (static_cast<uint32_t>(static_cast<int32_t>(~key) >> 31) | 0x80000000));
}

/// Entries of a list that keeps the nearest `kept` of all rows.
size_t list_room(uint32_t kept, uint32_t rows) {
  return std::min<size_t>(nearest_room(kept), size_t{rows} + kNearestPiece + 32);
}

/// The common state of the threads of one search.
struct Search {
  const Dataset& dataset;
  const QueryBlock& queries;
  const BatchAdmission& admission;
  const ResultsView& results;
  const Execution& execution;
  uint32_t kept;
  uint64_t group;           // queries of a task
  const RowBounds* bounds;  // null: every row is compared as stored
};

/// The workspace of a thread for a group.
struct Workspace {
  explicit Workspace(const Search& search)
      : room(list_room(search.kept, search.dataset.rows())),
        keys(search.execution.memory, checked_product(search.group, room)),
        rows(search.execution.memory, keys.size()),
        lists(search.execution.memory, search.group),
        answer(search.execution.memory, room) {
    const Allocator& memory = search.execution.memory;
    const uint32_t width = search.bounds != nullptr ? search.bounds->tile_rows() : kDirectTile;
    distances = Array<float>(memory, width);
    line = Array<uint32_t>(memory, width);
    if (search.bounds == nullptr) return;
    tile.emplace(*search.bounds, memory);
    codes = Array<uint8_t>(memory, search.group * search.bounds->stride());
    queries = Array<RowBounds::Query>(memory, search.group);
    apart = Array<uint32_t>::zeroed(memory, size_t{kSlice} * width);
    places = Array<uint32_t>(memory, width + size_t{kPackRows});
  }

  size_t room;
  Array<uint32_t> keys;      // [group, room] of the rows' distances
  Array<uint32_t> rows;      // [group, room]
  Array<NearestList> lists;  // [group] over these
  Array<Neighbor> answer;    // [room]
  Array<float> distances;    // [rows of a tile]
  Array<uint32_t> line;      // [rows of a tile] their keys

  // Only with bounds.
  std::optional<RowBounds::Tile> tile;
  Array<uint8_t> codes;             // [group, stride] of the queries
  Array<RowBounds::Query> queries;  // [group]
  Array<uint32_t> apart;            // [kSlice, rows of a tile] |X - Q|^2
  Array<uint32_t> places;           // [rows of a tile + kPackRows] rows that may be near
};

/// A group of queries against all rows.
class Group {
 public:
  Group(const Search& search, uint64_t begin, uint64_t end, Workspace& space)
      : search_(search),
        begin_(begin),
        count_(static_cast<uint32_t>(end - begin)),
        space_(space),
        meter_(search.execution) {
    for (uint32_t i = 0; i < count_; ++i)
      space.lists[i] = {space.keys.data() + i * space.room,
                        space.rows.data() + i * space.room,
                        search.kept,
                        0,
                        UINT32_MAX,
                        search.dataset.ids()};
  }

  void run() {
    if (search_.kept > 0) {
      if (search_.bounds != nullptr)
        compare_near();
      else
        compare_all();
    }
    for (uint32_t i = 0; i < count_; ++i) write(i);
  }

 private:
  bool usable(uint32_t i) const { return search_.queries.usable(begin_ + i); }

  /// The row that is left out of a query's answer alone.
  uint32_t masked(uint32_t i) const {
    return search_.admission.masked != nullptr ? search_.admission.masked[begin_ + i] : uint32_t{kNoRow};
  }
  /// Whether a row may not be in any answer.
  bool is_left_out(uint32_t row) const {
    return search_.admission.removed.holds(row) || search_.admission.held_out.holds(row);
  }
  bool leaves_none_out() const {
    return search_.admission.removed.empty() && search_.admission.held_out.empty();
  }

  /// Lists compare ids of a file that is read as it is needed.
  void touch_ids(uint32_t first, uint32_t count) const {
    if (search_.dataset.ids() == nullptr) return;
    for (uint32_t i = 0; i < count; ++i) search_.dataset.id(first + i);
  }

  void compare_all() {
    const Dataset& dataset = search_.dataset;
    const uint64_t row_bytes = dataset.view().dim * uint64_t{element_bytes(dataset.element())} + 64;
    for (uint32_t first = 0; first < dataset.rows(); first += kDirectTile) {
      const uint32_t rows = std::min(kDirectTile, dataset.rows() - first);
      touch_ids(first, rows);
      for (uint32_t i = 0; i < count_; ++i) {
        if (!usable(i)) continue;
        meter_.add(rows * row_bytes);
        dataset.distances(search_.queries[begin_ + i], nullptr, first, rows, space_.distances.data());
        uint32_t* line = space_.line.data();
        for (uint32_t j = 0; j < rows; ++j) line[j] = key_of(space_.distances[j]);
        // Unsigned: rows before this tile wrap round.
        if (masked(i) - first < rows) line[masked(i) - first] = UINT32_MAX;
        for (uint32_t j = 0; j < rows && !leaves_none_out(); ++j) {
          if (is_left_out(first + j)) line[j] = UINT32_MAX;
        }
        kernels().show_nearest(space_.lists[i], line, rows, first);
      }
    }
  }

  void compare_near() {
    const RowBounds& bounds = *search_.bounds;
    for (uint32_t i = 0; i < count_; ++i) {
      meter_.add(bounds.stride());
      bounds.code_query(search_.queries[begin_ + i], usable(i), *space_.tile,
                        space_.codes.data() + i * bounds.stride(), &space_.queries[i]);
    }
    const uint32_t all = search_.dataset.rows();
    for (uint32_t first = 0; first < all; first += bounds.tile_rows()) {
      const uint32_t rows = std::min(bounds.tile_rows(), all - first);
      touch_ids(first, rows);
      bounds.code_rows(first, rows, *space_.tile);
      meter_.add(rows * bounds.stride());
      for (uint32_t i = 0; i < count_; i += kSlice) compare_slice(first, rows, i);
    }
  }

  void compare_slice(uint32_t first, uint32_t rows, uint32_t begin) {
    const RowBounds& bounds = *search_.bounds;
    const uint32_t width = bounds.tile_rows();
    const uint32_t slice = std::min(kSlice, count_ - begin);
    meter_.add(slice * rows * (bounds.stride() / 4 + 8));
    kernels().code_tile(space_.codes.data() + begin * bounds.stride(), slice, space_.tile->packed(), rows,
                        bounds.stride(), bounds.columns(), space_.apart.data(), width);
    for (uint32_t i = begin; i < begin + slice; ++i) {
      if (usable(i)) show_near(first, rows, i, space_.apart.data() + size_t{i - begin} * width);
    }
  }

  /// Compares a query with those rows of a tile that may be near.
  void show_near(uint32_t first, uint32_t rows, uint32_t i, const uint32_t* apart) {
    const RowBounds& bounds = *search_.bounds;
    uint32_t* numbers = space_.places.data();
    uint32_t near = kernels().within_bound(apart, space_.tile->rows(), rows, space_.queries[i], numbers);
    if (near == 0) return;
    float* distances = space_.distances.data();
    if (bounds.exact()) {
      for (uint32_t j = 0; j < near; ++j)
        distances[j] = static_cast<float>(static_cast<int32_t>(apart[numbers[j]]));
    }
    for (uint32_t j = 0; j < near; ++j) numbers[j] += first;
    near = drop_left_out(numbers, distances, near);
    if (!bounds.exact()) {
      search_.dataset.distances(search_.queries[begin_ + i], numbers, 0, near, distances);
      meter_.add(near * uint64_t{bounds.stride()});
    }
    NearestList& list = space_.lists[i];
    const uint32_t limit = list.limit;
    for (uint32_t at = 0; at < near; at += kNearestPiece) {
      const uint32_t end = std::min(near, at + kNearestPiece);
      if (list.size + (end - at) > nearest_kept(list.k) + kNearestPiece) kernels().thin_out(list);
      for (uint32_t j = at; j < end; ++j) {
        const uint32_t key = key_of(distances[j]);
        list.distances[list.size] = key;
        list.places[list.size] = numbers[j];
        list.size += key < list.limit && numbers[j] != masked(i) ? 1 : 0;
      }
    }
    // Sooner than the room requires: a nearer bound saves comparisons.
    if (list.size > nearest_kept(list.k)) kernels().thin_out(list);
    if (list.limit < limit) bounds.set_limit(distance_of(list.limit - 1), &space_.queries[i]);
  }

  /// Leaves the rows that may be in an answer, with their distances; how many.
  uint32_t drop_left_out(uint32_t* rows, float* distances, uint32_t count) const {
    if (leaves_none_out()) return count;
    uint32_t kept = 0;
    for (uint32_t j = 0; j < count; ++j) {
      rows[kept] = rows[j];
      distances[kept] = distances[j];
      kept += is_left_out(rows[j]) ? 0 : 1;
    }
    return kept;
  }

  void write(uint32_t i) {
    const ResultsView& results = search_.results;
    const uint64_t query = begin_ + i;
    const uint32_t found = sort(space_.lists[i]);
    const Neighbor* answer = space_.answer.data();
    for (uint32_t at = 0; at < results.k; ++at) {
      meter_.add(kTouched);
      const uint64_t place = query * results.k + at;
      results.ids[place] = at < found ? answer[at].id : ANN_ID_NONE;
      if (results.distances != nullptr)
        results.distances[place] = at < found ? answer[at].distance : INFINITY;
    }
    if (results.counts != nullptr) results.counts[query] = found;
    if (results.status != nullptr)
      results.status[query] = usable(i) ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE};
  }

  /// Brings a list's nearest to `answer`, in order; how many.
  uint32_t sort(NearestList& list) {
    Neighbor* answer = space_.answer.data();
    for (uint32_t i = 0; i < list.size; ++i) {
      meter_.add(kTouched);
      answer[i] = {distance_of(list.distances[i]), search_.dataset.id(list.places[i])};
    }
    const uint32_t found = std::min(list.size, list.k);
    if (list.size <= kSortedAtOnce)
      std::partial_sort(answer, answer + found, answer + list.size);
    else
      std::sort(answer, answer + list.size, Before{&meter_});
    return found;
  }

  const Search& search_;
  uint64_t begin_;
  uint32_t count_;
  Workspace& space_;
  Meter meter_;
};

/// Queries of a task: enough to share the rows well, fewer where there are more threads or their lists are
/// long.
uint64_t group_size(uint64_t queries, uint32_t threads, uint32_t kept, uint32_t rows, uint64_t most) {
  const uint64_t list_bytes = list_room(kept, rows) * 2 * sizeof(uint32_t);
  const uint64_t share = (queries + threads - 1) / threads;
  return std::clamp<uint64_t>(std::min(share, kListBytes / list_bytes), 1, most);
}

}  // namespace

void search_exact(const Dataset& dataset, const QueryBlock& queries, const BatchAdmission& admission,
                  const ResultsView& results, const Execution& execution) {
  const ReadsInOrder in_order(dataset.vectors_touch());
  const uint32_t kept = std::min(results.k, dataset.rows());
  const uint32_t threads = std::max(1u, execution.threads);
  Search search{dataset, queries, admission, results, execution, kept, 0, nullptr};
  std::optional<RowBounds> bounds;
  search.group = group_size(queries.size(), threads, kept, dataset.rows(), kGroupMax);
  // Where most rows are reported, there is nothing to leave out.
  if (search.group >= RowBounds::fewest(dataset.element()) && kept < dataset.rows() / 2) {
    bounds.emplace(dataset, execution);
    search.bounds = &*bounds;
  } else {
    search.group = std::min<uint64_t>(search.group, kDirectGroup);
  }
  const uint64_t groups = (queries.size() + search.group - 1) / search.group;
  const uint32_t workers = static_cast<uint32_t>(std::min<uint64_t>(threads, groups));
  std::vector<Workspace> spaces;
  spaces.reserve(workers);
  for (uint32_t worker = 0; worker < workers; ++worker) spaces.emplace_back(search);
  std::atomic<uint64_t> done = 0;
  parallel_for(execution, queries.size(), search.group, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    Group(search, begin, end, spaces[worker]).run();
    execution.advance(static_cast<double>(done += end - begin) / static_cast<double>(queries.size()));
  });
}

}  // namespace gannet

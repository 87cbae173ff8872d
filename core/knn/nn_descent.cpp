#include "knn/nn_descent.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/random.h"
#include "base/row_loops.h"
#include "knn/products.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 64;
constexpr uint64_t kInitStream = 1;
constexpr uint64_t kReverseStream = 2;
constexpr uint32_t kSelf = UINT32_MAX;  // in place of a distance: a row and itself

/// The lists of all rows, safe to insert into from any thread.
///
/// The last key of a full list is repeated in `worst_`, where a candidate that cannot enter is
/// refused without taking the lock: it only ever falls, so a stale value refuses nothing wrongly.
class Lists {
 public:
  Lists(uint32_t rows, uint32_t k, const Execution& execution)
      : k_(k),
        keys_(filled_array<uint64_t>(execution, checked_product(rows, k), RowKey::kNone)),
        worst_(filled_array<std::atomic<uint64_t>>(execution, rows, RowKey::kNone)),
        locks_(filled_array<std::atomic<uint8_t>>(execution, rows, uint8_t{0})) {}

  /// Rows of a task that touches their lists once, each page perhaps for the first time.
  static uint64_t rows_at_once(uint32_t k) { return items_per_task(k, kRowsAtOnce); }

  uint64_t* list(uint32_t row) { return keys_.data() + uint64_t{row} * k_; }

  /// Inserts a neighbour of `row`, marked NEW or OLD, if it is not there and near enough.
  void insert(uint32_t row, uint32_t distance, uint32_t neighbor, bool fresh = true) {
    const uint64_t key = RowKey::of(distance, neighbor, fresh);
    if (key >= worst_[row].load(std::memory_order_relaxed)) return;
    while (locks_[row].exchange(1, std::memory_order_acquire) != 0) {
      while (locks_[row].load(std::memory_order_relaxed) != 0) {
      }
    }
    insert_locked(row, key);
    locks_[row].store(0, std::memory_order_release);
  }

 private:
  void insert_locked(uint32_t row, uint64_t key) {
    uint64_t* keys = list(row);
    // One neighbour always comes with one distance, so an equal key, flag aside, is a repetition.
    uint64_t* place = std::lower_bound(keys, keys + k_, key & ~RowKey::kFlag);
    if (place == keys + k_ || (*place | RowKey::kFlag) == (key | RowKey::kFlag)) return;
    std::copy_backward(place, keys + k_ - 1, keys + k_);
    *place = key;
    worst_[row].store(keys[k_ - 1], std::memory_order_relaxed);
  }

  uint32_t k_;
  Array<uint64_t> keys_;                // [rows, k] ascending
  Array<std::atomic<uint64_t>> worst_;  // [rows]
  Array<std::atomic<uint8_t>> locks_;   // [rows]
};

/// The samples of one kind, NEW or OLD: for each row up to p of its own, then reverse ones until there
/// are 2 p.
struct Samples {
  Samples(uint32_t rows, uint32_t p, const Allocator& memory)
      : p(p), rows(rows), entries(memory, checked_product(rows, 2 * p)) {}

  uint32_t* of(uint64_t row) { return entries.data() + row * 2 * p; }
  const uint32_t* of(uint64_t row) const { return entries.data() + row * 2 * p; }
  uint32_t count(uint64_t row, uint32_t most) const {
    return static_cast<uint32_t>(std::find(of(row), of(row) + most, kNoRow) - of(row));
  }

  uint32_t p;
  uint32_t rows;
  Array<uint32_t> entries;  // [rows, 2 p], kNoRow in unused places at the end
};

/// Everything that a thread needs for the rows that meet at one row.
struct Workspace {
  Workspace(uint32_t p, size_t stride, const Allocator& memory)
      : new_rows(memory, 2 * p),
        old_rows(memory, 2 * p),
        new_block(memory, 2 * p * stride),
        old_block(memory, 2 * p * stride),
        packed(memory, packed_bytes(2 * p, stride)),
        distances(memory, size_t{2} * p * round_up(2 * p, kPackRows)),
        places(memory, 2 * p) {}

  Array<uint32_t> new_rows;
  Array<uint32_t> old_rows;
  Array<uint8_t> new_block;   // [2 p, stride]
  Array<uint8_t> old_block;   // [2 p, stride]
  Array<uint8_t> packed;      // new_block or old_block as the right side of a tile
  Array<uint32_t> distances;  // [2 p, 2 p rounded up]
  Array<uint32_t> places;     // [2 p] of the nearest in each row or column
};

class NnDescent {
 public:
  /// `offsets`, [rows] or null, are added to the distances of codes (knn/products.h).
  NnDescent(const Codes& codes, const NnDescentParams& params, const Execution& execution,
            const TwoSets& sets, const uint32_t* offsets = nullptr)
      : codes_(codes),
        params_(params),
        execution_(execution),
        sets_(sets),
        offsets_of_rows_(offsets),
        rows_(codes.rows()),
        lists_(rows_, params.k, execution),
        new_(rows_, params.samples, execution.memory),
        old_(rows_, params.samples, execution.memory),
        offsets_(execution.memory, size_t{rows_} + 1),
        cursors_(execution.memory, rows_),
        sources_(filled_array<uint32_t>(execution, checked_product(rows_, params.samples), 0u)) {
    workspaces_.reserve(execution.threads);
    for (uint32_t worker = 0; worker < execution.threads; ++worker)
      workspaces_.emplace_back(params.samples, codes.stride(), execution.memory);
  }

  KnnGraph run() {
    if (sets_.first_rows == 0)
      start_with_random_rows();
    else
      start_with_two_sets();
    uint32_t round = 0;
    while (round < params_.iterations) {
      execution_.check();
      const uint64_t fresh = sample_own_entries();
      if (static_cast<double>(fresh) < static_cast<double>(params_.convergence) * rows_ * params_.k) break;
      ++round;
      sample_reverse(new_, 2 * round);
      sample_reverse(old_, 2 * round + 1);
      cross_match();
      // The last round is not known before it is over; most graphs take between 6 and 14.
      execution_.advance(static_cast<double>(round) / (round + 4));
    }
    return result(round);
  }

 private:
  /// Lines 1 to 5: p random rows each, all NEW.
  void start_with_random_rows() {
    parallel_for(execution_, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      Workspace& space = workspaces_[worker];
      for (uint64_t row = begin; row < end; ++row) {
        const uint32_t self = static_cast<uint32_t>(row);
        for (uint32_t i = 0; i < params_.samples; ++i) {
          // Drawn from the other rows: numbers from `self` on stand for the next row.
          const uint32_t drawn = static_cast<uint32_t>(
              random_below(rows_ - 1, params_.seed, kInitStream, row * params_.samples + i));
          space.new_rows[i] = drawn + (drawn >= self ? 1 : 0);
        }
        codes_.gather(&self, 1, space.new_block.data());
        codes_.distances(space.new_block.data(), space.new_rows.data(), params_.samples,
                         space.distances.data());
        add_offsets(&self, 1, space.new_rows.data(), params_.samples, space.distances.data(), 0);
        for (uint32_t i = 0; i < params_.samples; ++i)
          lists_.insert(self, space.distances[i], space.new_rows[i]);
      }
    });
  }

  /// Algorithm 3, lines 1 to 9.
  void start_with_two_sets() {
    const uint32_t drawn = params_.k - sets_.kept;
    parallel_for(execution_, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t item = begin; item < end; ++item) {
        const uint32_t row = static_cast<uint32_t>(item);
        const uint32_t* kept = sets_.neighbors + item * sets_.kept;
        const uint32_t count = static_cast<uint32_t>(std::find(kept, kept + sets_.kept, kNoRow) - kept);
        enter(row, count, false, workspaces_[worker], [&](uint32_t i) { return kept[i]; });
        enter(row, drawn, true, workspaces_[worker],
              [&](uint32_t i) { return sets_.drawn(row, i, drawn, rows_, params_.seed); });
      }
    });
  }

  /// Inserts `count` rows into a list, in groups that a workspace has room for.
  template <class RowOf>
  void enter(uint32_t self, uint32_t count, bool fresh, Workspace& space, const RowOf& row_of) {
    codes_.gather(&self, 1, space.new_block.data());
    for (uint32_t first = 0; first < count; first += params_.samples) {
      const uint32_t piece = std::min(params_.samples, count - first);
      for (uint32_t i = 0; i < piece; ++i) space.new_rows[i] = row_of(first + i);
      codes_.distances(space.new_block.data(), space.new_rows.data(), piece, space.distances.data());
      add_offsets(&self, 1, space.new_rows.data(), piece, space.distances.data(), 0);
      for (uint32_t i = 0; i < piece; ++i) lists_.insert(self, space.distances[i], space.new_rows[i], fresh);
    }
  }

  /// Line 8, a row's own part: its first p NEW and first p OLD entries; the NEW ones turn OLD
  /// (line 32: sampled ones only, the others wait for a later round). Returns how many NEW entries
  /// the lists held. Counting insertions as they happen would not do for the stop rule: a row that is
  /// inserted and pushed out in one round counts in one order of threads and not in another.
  uint64_t sample_own_entries() {
    std::atomic<uint64_t> fresh_total = 0;
    parallel_for(execution_, rows_, 1024, [&](uint64_t begin, uint64_t end, uint32_t) {
      uint64_t fresh_seen = 0;
      for (uint64_t row = begin; row < end; ++row) {
        uint64_t* list = lists_.list(static_cast<uint32_t>(row));
        uint32_t* fresh = new_.of(row);
        uint32_t* known = old_.of(row);
        uint32_t fresh_count = 0;
        uint32_t known_count = 0;
        for (uint32_t i = 0; i < params_.k && list[i] != RowKey::kNone; ++i) {
          if (RowKey::flag(list[i])) {
            ++fresh_seen;
            if (fresh_count == new_.p) continue;
            fresh[fresh_count++] = RowKey::row(list[i]);
            list[i] &= ~RowKey::kFlag;
          } else if (known_count < old_.p && meets(row, RowKey::row(list[i]))) {
            known[known_count++] = RowKey::row(list[i]);
          }
        }
        std::fill(fresh + fresh_count, fresh + 2 * new_.p, kNoRow);
        std::fill(known + known_count, known + 2 * old_.p, kNoRow);
      }
      fresh_total.fetch_add(fresh_seen, std::memory_order_relaxed);
    });
    return fresh_total.load();
  }

  /// Line 8, the reverse part: rows that sampled this row, until there are 2 p; chosen by hash where
  /// there are more.
  void sample_reverse(Samples& samples, uint64_t stream) {
    const uint32_t p = samples.p;
    parallel_for(execution_, rows_, kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t row = begin; row < end; ++row) new (&cursors_[row]) std::atomic<uint32_t>(0);
    });
    const auto each_sample = [&](const auto& visit) {
      parallel_for(execution_, rows_, rows_of_scattered(p), [&](uint64_t begin, uint64_t end, uint32_t) {
        for (uint64_t row = begin; row < end; ++row) {
          const uint32_t* own = samples.of(row);
          for (uint32_t i = 0; i < p && own[i] != kNoRow; ++i) visit(static_cast<uint32_t>(row), own[i]);
        }
      });
    };
    each_sample([&](uint32_t, uint32_t target) { cursors_[target].fetch_add(1, std::memory_order_relaxed); });
    place_by_counts(cursors_, offsets_, execution_);
    each_sample([&](uint32_t source, uint32_t target) {
      const uint32_t place = cursors_[target].fetch_add(1, std::memory_order_relaxed);
      sources_[offsets_[target] + place] = source;
    });
    parallel_for(execution_, rows_, 1024, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t row = begin; row < end; ++row) {
        uint32_t* first = sources_.data() + offsets_[row];
        uint32_t* last = sources_.data() + offsets_[row + 1];
        const auto order = [&](uint32_t source) {
          const uint64_t hash =
              random_word(params_.seed, kReverseStream + (stream << 8), row * rows_ + source);
          return hash >> 32 << 32 | source;
        };
        const uint64_t own = samples.count(row, p);
        const uint64_t most = 2 * p - own;
        const uint64_t count = static_cast<uint64_t>(last - first);
        if (count > most) {
          std::nth_element(first, first + most, last,
                           [&](uint32_t a, uint32_t b) { return order(a) < order(b); });
        }
        std::copy_n(first, std::min(count, most), samples.of(row) + own);
      }
    });
  }

  /// Whether an OLD entry of a row may meet its NEW ones.
  bool meets(uint64_t row, uint32_t known) const {
    return sets_.first_rows == 0 || sets_.same(static_cast<uint32_t>(row), known);
  }

  /// The samples of a row without repetitions, ascending; how many.
  static uint32_t collect(const Samples& samples, uint64_t row, uint32_t* out) {
    const uint32_t count = samples.count(row, 2 * samples.p);
    std::copy_n(samples.of(row), count, out);
    std::sort(out, out + count);
    return static_cast<uint32_t>(std::unique(out, out + count) - out);
  }

  /// Lines 9 to 33.
  void cross_match() {
    parallel_for(execution_, rows_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t row = begin; row < end; ++row) meet_at(row, workspaces_[worker]);
    });
  }

  void meet_at(uint64_t row, Workspace& space) {
    const uint32_t new_count = collect(new_, row, space.new_rows.data());
    if (new_count == 0) return;
    const uint32_t old_count = collect(old_, row, space.old_rows.data());
    const Kernels& loops = kernels();
    codes_.gather(space.new_rows.data(), new_count, space.new_block.data());

    // Lines 11 to 17: NEW with NEW. Lines 19 to 31: NEW with OLD, and OLD with NEW.
    uint32_t* distances = space.distances.data();
    const uint32_t* fresh = space.new_rows.data();
    const uint32_t* known = space.old_rows.data();
    const size_t width = round_up(new_count, kPackRows);
    codes_.pack(space.new_block.data(), new_count, space.packed.data());
    if (sets_.first_rows == 0) {
      codes_.tile(space.new_block.data(), new_count, space.packed.data(), new_count, distances, width);
      add_offsets(fresh, new_count, fresh, new_count, distances, width);
      for (uint32_t i = 0; i < new_count; ++i) distances[i * width + i] = kSelf;
      loops.nearest_in_rows(distances, width, new_count, new_count, space.places.data());
      for (uint32_t i = 0; i < new_count; ++i) {
        const uint32_t j = space.places[i];
        offer(fresh[i], distances[i * width + j], fresh[j]);
      }
    }
    if (old_count == 0) return;
    codes_.gather(known, old_count, space.old_block.data());
    codes_.tile(space.old_block.data(), old_count, space.packed.data(), new_count, distances, width);
    add_offsets(known, old_count, fresh, new_count, distances, width);
    mark_common(known, old_count, fresh, new_count, distances, width);
    loops.nearest_in_rows(distances, width, old_count, new_count, space.places.data());
    for (uint32_t i = 0; i < old_count; ++i) {
      const uint32_t j = space.places[i];
      offer(known[i], distances[i * width + j], fresh[j]);
    }
    loops.nearest_in_columns(distances, width, old_count, new_count, space.places.data());
    for (uint32_t j = 0; j < new_count; ++j) {
      const uint32_t i = space.places[j];
      offer(fresh[j], distances[i * width + j], known[i]);
    }
  }

  /// Makes distances of codes those of another measure.
  void add_offsets(const uint32_t* left, uint32_t left_count, const uint32_t* right, uint32_t right_count,
                   uint32_t* distances, size_t width) const {
    if (offsets_of_rows_ == nullptr) return;
    for (uint32_t i = 0; i < left_count; ++i)
      for (uint32_t j = 0; j < right_count; ++j)
        distances[i * width + j] += offsets_of_rows_[left[i]] + offsets_of_rows_[right[j]];
  }

  /// Rows that are on both sides must not meet themselves. Both lists ascend.
  static void mark_common(const uint32_t* left, uint32_t left_count, const uint32_t* right,
                          uint32_t right_count, uint32_t* distances, size_t width) {
    for (uint32_t i = 0, j = 0; i < left_count && j < right_count;) {
      if (left[i] == right[j]) distances[i * width + j] = kSelf;
      left[i] < right[j] ? ++i : ++j;
    }
  }

  /// Selective update: `row` learns of the nearest row that it met. Samples ascend, so of equally
  /// near rows the first is the one with the smallest number.
  void offer(uint32_t row, uint32_t distance, uint32_t neighbor) {
    if (distance != kSelf) lists_.insert(row, distance, neighbor);
  }

  KnnGraph result(uint32_t rounds) {
    KnnGraph graph{Array<uint32_t>(execution_.memory, checked_product(rows_, params_.k)), rows_, params_.k,
                   rounds};
    parallel_for(
        execution_, rows_, Lists::rows_at_once(params_.k), [&](uint64_t begin, uint64_t end, uint32_t) {
          for (uint64_t row = begin; row < end; ++row) {
            const uint64_t* list = lists_.list(static_cast<uint32_t>(row));
            for (uint32_t i = 0; i < params_.k; ++i)
              graph.neighbors[row * params_.k + i] = list[i] == RowKey::kNone ? kNoRow : RowKey::row(list[i]);
          }
        });
    return graph;
  }

  const Codes& codes_;
  const NnDescentParams& params_;
  const Execution& execution_;
  TwoSets sets_;
  const uint32_t* offsets_of_rows_;  // [rows], or null
  uint32_t rows_;
  Lists lists_;
  Samples new_;
  Samples old_;
  Array<uint64_t> offsets_;               // [rows + 1] of a row's reverse candidates in sources_
  Array<std::atomic<uint32_t>> cursors_;  // [rows]
  Array<uint32_t> sources_;               // [rows * p]
  std::vector<Workspace> workspaces_;     // [threads]
};

}  // namespace

KnnGraph nn_descent(const Codes& codes, const NnDescentParams& params, const Execution& execution,
                    const TwoSets& sets) {
  return NnDescent(codes, params, execution, sets).run();
}

KnnGraph nn_descent_by_products(const Codes& codes, const Array<uint32_t>& offsets,
                                const NnDescentParams& params, const Execution& execution) {
  return NnDescent(codes, params, execution, {}, offsets.data()).run();
}

uint64_t nn_descent_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads) {
  const uint64_t p = params.samples;
  const uint64_t lists = rows * (params.k * 8 + 9);
  const uint64_t samples = rows * p * 4 * 5;
  const uint64_t reverse = rows * 12 + 8;
  const uint64_t workspace = 6 * p * 4 + 4 * p * stride + packed_bytes(2 * static_cast<uint32_t>(p), stride) +
                             2 * p * round_up(2 * p, kPackRows) * 4 + 7 * kAlignment;
  return lists + samples + reverse + threads * workspace + rows * params.k * 4 + 16 * kAlignment;
}

uint64_t nn_descent_device_bytes(uint64_t rows, const NnDescentParams& params) {
  const uint64_t p = params.samples;
  const uint64_t keys = params.k * sizeof(uint64_t);
  const uint64_t worst_and_lock = sizeof(uint64_t) + sizeof(uint32_t);
  const uint64_t offers = kDescentOffers * sizeof(uint64_t) + sizeof(uint32_t);  // and how many
  // Of NEW and of OLD samples each:
  const uint64_t samples = 2 * p * sizeof(uint32_t);
  const uint64_t sources = p * sizeof(uint32_t);
  const uint64_t count_and_begin = sizeof(uint32_t) + sizeof(uint64_t);
  return rows * (keys + worst_and_lock + offers + 2 * (samples + sources + count_and_begin));
}

}  // namespace gannet

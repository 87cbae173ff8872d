// SlackCache: the cache of GGNN's queries ("GGNN: Graph-based GPU Nearest Neighbor Search", section 4.1), which its
// search and its build share. On a CUDA device search/ggnn_cuda.cu has the same lists in shared memory.
//
//   best     the nearest rows visited, sorted
//   queue    rows to be expanded, sorted ("prioq"); rows that do not fit are forgotten
//   visited  rows that have been expanded, a ring that forgets the oldest
//
// A row is known while it stands in one of the three, and is not compared again; afterwards it may be visited anew,
// which costs time and changes no answer, since no row stands twice in `best`. Rows are compared and expanded as
// long as they lie no farther than d_k + xi, with d_k the distance of place `bound` of `best` (any distance until
// that place is taken) and the slack xi = tau * min(d_1, nearest) in true distances (equation 2): `nearest` is the
// paper's d+_nn1, how far rows lie from their nearest neighbours. Numbers of comparisons are squares, so a number x
// is within the bound if x <= (sqrt(d_k) + tau * min(sqrt(d_1), nearest))^2, or x <= d_k, which rounding must not
// shut out. The authors of the paper compute with squares throughout: in their code x <= d_k + xi^2, which
// Slack::squares does too.
//
// The bound holds for all rows of one step, those of an edge list, and is drawn tighter between steps. The paper
// draws it between two rows of a step, which gives the same walk: a row that only the looser bound lets in is
// never expanded, and stands behind all that are.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/memory.h"
#include "traverse/row_key.h"

namespace gannet {

/// The meaning of the 32-bit results of comparisons, each a square of a distance up to a factor.
enum class SquareKind : uint32_t {
  kInteger,      // of codes of bytes
  kFloatBits,    // of wide codes
  kOrderedFloat  // of stored rows: the bits of a float, mapped to numbers of the same order
};

/// The number as a float.
inline float square_of(SquareKind kind, uint32_t number) {
  switch (kind) {
    case SquareKind::kInteger:
      return static_cast<float>(number);
    case SquareKind::kFloatBits:
      return std::bit_cast<float>(number);
    default:
      return std::bit_cast<float>((number & 0x80000000) != 0 ? number & 0x7fffffff : ~number);
  }
}

/// The lists of a query.
struct SlackShape {
  uint32_t best = 10;   // places
  uint32_t bound = 10;  // the place of `best`, from 1, whose distance is d_k
  uint32_t queue = 54;
  uint32_t visited = 384;
};

/// Rows that are inserted into the cache at a time: the edges of a row, and this many entry points.
constexpr uint32_t ggnn_step(uint32_t degree) {
  uint32_t step = 32;
  while (step < degree) step *= 2;
  return step;
}

/// How far beyond the last of its best rows a query goes.
struct Slack {
  float tau = 0;
  float nearest = 0;     // d+_nn1, as a root of the distances that comparisons give
  bool squares = false;  // xi^2 is added to d_k^2, else xi to d_k
};

/// The squared bound of a query whose k-th and best rows have these squares.
inline float squared_bound(float kth, float best, const Slack& slack) {
  const float xi = slack.tau * std::min(std::sqrt(best), slack.nearest);
  if (slack.squares) return std::max(kth, kth + xi * xi);
  const float bound = std::sqrt(kth) + xi;
  return std::max(kth, bound * bound);
}

class SlackCache {
 public:
  /// Makes room for a shape over `rows` rows.
  void fit(const SlackShape& shape, uint32_t rows, const Allocator& memory) {
    if (known_.size() < rows) known_ = Array<uint8_t>::zeroed(memory, rows);
    const auto grow = [&]<class T>(Array<T>& items, size_t size) {
      if (items.size() < size) items = Array<T>(memory, size);
    };
    grow(best_, size_t{shape.best});
    grow(queue_, size_t{shape.queue} * 2);
    grow(visited_, size_t{shape.visited});
    shape_ = shape;
  }
  uint64_t bytes() const { return known_.bytes() + best_.bytes() + queue_.bytes() + visited_.bytes(); }

  /// Begins a query.
  void begin(SquareKind kind, const Slack& slack) {
    kind_ = kind;
    slack_ = slack;
    best_size_ = queue_first_ = queue_size_ = visited_count_ = 0;
    bound_ = INFINITY;
  }

  /// Forgets everything, as the next query needs it.
  void clear() {
    for (uint32_t i = 0; i < best_size_; ++i) known_[RowKey::row(best_[i])] = 0;
    clear_queue();
    clear_visited();
    best_size_ = 0;
  }

  bool knows(uint32_t row) const { return known_[row] != 0; }

  /// Takes a row that it did not know, with the number of its comparison. One that is no answer is expanded all the
  /// same. Between two calls of settle() the bound stays.
  void take(uint32_t row, uint32_t number, bool answers = true) {
    if (!within(number)) return;
    const uint64_t key = RowKey::of(number, row, false);
    if (answers) insert_best(key);
    insert_queue(key);
  }

  /// Draws the bound tighter after a step.
  void settle() {
    if (best_size_ >= shape_.bound)
      bound_ = squared_bound(square_of(kind_, RowKey::distance(best_[shape_.bound - 1])),
                             square_of(kind_, RowKey::distance(best_[0])), slack_);
  }

  bool within(uint32_t number) const { return square_of(kind_, number) <= bound_; }

  /// The row to expand next; kNoRow where the query ends.
  uint32_t pop() {
    if (queue_size_ == 0 || !within(RowKey::distance(queue_[queue_first_]))) return kNoRow;
    const uint32_t row = RowKey::row(queue_[queue_first_++]);
    --queue_size_;
    known_[row] &= static_cast<uint8_t>(~kInQueue);
    uint32_t& place = visited_[visited_count_ % shape_.visited];
    if (visited_count_ >= shape_.visited) known_[place] &= static_cast<uint8_t>(~kInVisited);
    ++visited_count_;
    place = row;
    known_[row] |= kInVisited;
    return row;
  }

  uint32_t expanded() const { return visited_count_; }
  uint32_t size() const { return best_size_; }
  uint64_t key(uint32_t place) const { return best_[place]; }

  /// Takes the walk to another graph, in which row r has the number rename(r); numbers keep their order. The best
  /// rows and those of the queue are to be expanded there, distances stay, and visited rows are forgotten
  /// (section 5.1, "transform").
  template <class Rename>
  void transfer(const Rename& rename) {
    clear_visited();
    for (uint32_t i = 0; i < best_size_; ++i) {
      if ((known_[RowKey::row(best_[i])] & kInQueue) == 0) insert_queue(best_[i]);
    }
    const auto forget = [&](const uint64_t* keys, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) known_[RowKey::row(keys[i])] = 0;
    };
    const auto move = [&](uint64_t* keys, uint32_t count, uint8_t list) {
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t row = rename(RowKey::row(keys[i]));
        keys[i] = RowKey::of(RowKey::distance(keys[i]), row, false);
        known_[row] |= list;
      }
    };
    forget(best_.data(), best_size_);
    forget(queue_.data() + queue_first_, queue_size_);
    move(best_.data(), best_size_, kInBest);
    move(queue_.data() + queue_first_, queue_size_, kInQueue);
  }

 private:
  static constexpr uint8_t kInBest = 1;
  static constexpr uint8_t kInQueue = 2;
  static constexpr uint8_t kInVisited = 4;

  void insert_best(uint64_t key) {
    if (best_size_ == shape_.best) {
      if (key > best_[best_size_ - 1]) return;
      known_[RowKey::row(best_[--best_size_])] &= static_cast<uint8_t>(~kInBest);
    }
    insert(best_.data(), best_size_++, key);
    known_[RowKey::row(key)] |= kInBest;
  }

  void insert_queue(uint64_t key) {
    uint64_t* keys = queue_.data() + queue_first_;
    if (queue_size_ == shape_.queue) {
      if (key > keys[queue_size_ - 1]) return;
      known_[RowKey::row(keys[--queue_size_])] &= static_cast<uint8_t>(~kInQueue);
    } else if (queue_first_ + queue_size_ == 2 * shape_.queue) {
      std::memmove(queue_.data(), keys, queue_size_ * sizeof *keys);
      queue_first_ = 0;
      keys = queue_.data();
    }
    insert(keys, queue_size_++, key);
    known_[RowKey::row(key)] |= kInQueue;
  }

  static void insert(uint64_t* keys, uint32_t size, uint64_t key) {
    uint32_t place = size;
    for (; place > 0 && keys[place - 1] > key; --place) keys[place] = keys[place - 1];
    keys[place] = key;
  }

  void clear_queue() {
    for (uint32_t i = 0; i < queue_size_; ++i) known_[RowKey::row(queue_[queue_first_ + i])] = 0;
    queue_first_ = queue_size_ = 0;
  }

  void clear_visited() {
    for (uint32_t i = 0; i < std::min(visited_count_, shape_.visited); ++i)
      known_[visited_[i]] &= static_cast<uint8_t>(~kInVisited);
    visited_count_ = 0;
  }

  SlackShape shape_;
  SquareKind kind_ = SquareKind::kInteger;
  Slack slack_;
  float bound_ = INFINITY;
  uint32_t best_size_ = 0;
  uint32_t queue_first_ = 0;
  uint32_t queue_size_ = 0;
  uint32_t visited_count_ = 0;
  Array<uint64_t> best_;     // [best]
  Array<uint64_t> queue_;    // [2 * queue] from queue_first_ on
  Array<uint32_t> visited_;  // [visited] a ring
  Array<uint8_t> known_;     // [rows] which lists hold a row; zero between queries
};

}  // namespace gannet

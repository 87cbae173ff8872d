// SlackWarp: the cache of GGNN's queries (traverse/slack_cache.h) in the registers of one warp, for lists of up to 64
// rows, which those of the defaults are. traverse/slack_lists_cuda.cuh has lists of any length, with the same calls.
//
//   best, queue  sorted keys, number 32 r + l in the r-th register of lane l
//   rows         in shared memory: the rows of both lists as they were after the last step, and the ring of expanded rows
//
// A step of a query with a narrow bound admits one or two of some fifteen rows that it compares. So a row goes in by
// itself: new[i] = min(old[i], max(old[i - 1], key)), an exchange of each register and no search for its place. From
// six rows on they are sorted and merged, which costs as much as six.
//
// Each lane has a proposal and looks for it in the rows, which all lanes read alike, four at a time. Of the best list
// none is looked up as long as the other two must have them all: a best row was put into the queue, falls out of it
// behind `queue` nearer ones, of which one at most is no answer, and leaves it else for the ring, which forgets nothing
// before it is full.
//
// Instructions of a step with 24 edges, 40 rows in the queue and 30 in the ring, as a sketch: 110 to look up, 10 to
// pop, 90 for two rows into two lists, 40 for the bound; SlackLists takes some 400, 60, 400 and 50, and waits for a
// binary search in shared memory at each.
//
// Measured on one NVIDIA H200, SIFT 1M as f32, k 24, C@10 .958 of 10,000 queries, in M queries/s: .94 with SlackLists,
// 1.39 and 1.51 with these lists, 1.58 with edges read ahead and all rows of a step requested at once. A few queries
// are left at the end: with 200 steps at most instead of 400 it is 2.09 at .957.
#pragma once

#include "traverse/slack_cache.h"
#include "traverse/slack_lists_cuda.cuh"
#include "traverse/walk_steps.cuh"
#include "traverse/warp_sort_cuda.h"

namespace gannet::cuda {

inline constexpr uint32_t kSlackWarpRows = 64;  // of a list

template <uint32_t kBestWords>
class SlackWarp {
 public:
  /// The bytes in shared memory; `step` as for SlackLayout.
  static __host__ __device__ uint32_t bytes(const SlackShape& shape, uint32_t step) {
    return (kRingAt + (shape.visited + 3) / 4 * 4 + 2 * step) * sizeof(uint32_t);
  }

  __device__ SlackWarp(const SlackShape& shape, SquareKind kind, const Slack& slack, uint32_t step,
                       uint8_t* memory)
      : shape_(shape), kind_(kind), slack_(slack), step_(step), rows_(reinterpret_cast<uint32_t*>(memory)) {}

  /// Begins a query.
  __device__ void begin() {
#pragma unroll
    for (uint64_t& key : queue_) key = RowKey::kNone;
#pragma unroll
    for (uint64_t& key : best_) key = RowKey::kNone;
    best_size_ = queue_size_ = 0;
    bound_ = INFINITY;
    ahead_row_ = kNoRow;
    clear_ring();
    note_rows();
  }

  __device__ uint32_t step() const { return step_; }
  __device__ float square(uint32_t number) const { return square_as(kind_, number); }

  /// As SlackLists::fetch.
  template <class Rows, class Compare, class Answers>
  __device__ uint32_t fetch(uint32_t length, const Rows& rows, const Compare& compare,
                            const Answers& answers) {
    const uint32_t count = propose(length, rows);
    if (count == 0) return 0;
    uint32_t* numbers = this->numbers();
    compare(proposals(), count, numbers);
    __syncwarp();
    bool changed = false;
    for (uint32_t first = 0; first < count; first += kWarp) {
      const uint32_t place = first + lane_number();
      const uint32_t number = place < count ? numbers[place] : kFarthest;
      const bool enters = number != kFarthest && square(number) <= bound_;
      const uint32_t entering = __ballot_sync(kAllLanes, enters);
      if (entering == 0) continue;
      const uint32_t row = enters ? proposals()[place] : kNoRow;
      const uint64_t key = enters ? RowKey::of(number, row, false) : RowKey::kNone;
      const bool answer = enters && answers(row, number);
      admit(key, entering, __ballot_sync(kAllLanes, answer));
      changed = true;
    }
    if (changed) settle();
    __syncwarp();
    return count;
  }

  /// Takes the nearest row of the queue; kNoRow where the query ends.
  __device__ uint32_t pop() {
    if (queue_size_ == 0) return kNoRow;
    const uint64_t head = __shfl_sync(kAllLanes, queue_[0], 0);
    if (!(square(RowKey::distance(head)) <= bound_)) return kNoRow;
    const uint32_t last = kWarp - 1;
    const uint64_t carried = __shfl_sync(kAllLanes, queue_[1], 0);
    const uint64_t low = __shfl_down_sync(kAllLanes, queue_[0], 1);
    const uint64_t high = __shfl_down_sync(kAllLanes, queue_[1], 1);
    queue_[0] = lane_number() == last ? carried : low;
    queue_[1] = lane_number() == last ? RowKey::kNone : high;
    --queue_size_;
    note_expanded(RowKey::row(head));
    // Rows that were in the queue when it was noted and that the ring has forgotten are not known any more.
    if (noted_ - queue_size_ > shape_.visited) note_rows();
    return RowKey::row(head);
  }

  /// As SlackLists::expand. Edges of the row that stands next are read before those of the last one are compared, so
  /// that they are there if it is next indeed; rows of more than 32 edges wait for theirs.
  template <class Edges, class Compare, class Answers>
  __device__ uint32_t expand(uint32_t parent, uint32_t degree, const Edges& edges, const Compare& compare,
                             const Answers& answers) {
    if (degree > kWarp) {
      const uint32_t* row = edges(parent);
      return fetch(degree, [&](uint32_t i) { return __ldg(row + i); }, compare, answers);
    }
    const bool reads = lane_number() < degree;
    uint32_t edge = ahead_;
    if (parent != ahead_row_) edge = reads ? __ldg(edges(parent) + lane_number()) : kNoRow;
    ahead_row_ = queue_size_ != 0 ? RowKey::row(__shfl_sync(kAllLanes, queue_[0], 0)) : kNoRow;
    ahead_ = reads && ahead_row_ != kNoRow ? __ldg(edges(ahead_row_) + lane_number()) : kNoRow;
    return fetch(degree, [&](uint32_t) { return edge; }, compare, answers);
  }

  /// Takes the walk to the layer below, in which row r is below[r].
  __device__ void transfer(const uint32_t* below) {
    ahead_row_ = kNoRow;
    clear_ring();
    note_rows();
    uint64_t lacking[kBestWords];
#pragma unroll
    for (uint32_t word = 0; word < kBestWords; ++word) {
      const bool lacks =
          best_[word] != RowKey::kNone && !stands_in(queue_at(), queue_size_, RowKey::row(best_[word]));
      lacking[word] = lacks ? best_[word] : RowKey::kNone;
    }
#pragma unroll
    for (const uint64_t key : lacking) {
      const uint32_t entering = __ballot_sync(kAllLanes, key != RowKey::kNone);
      if (entering != 0) admit(key, entering, 0);
    }
#pragma unroll
    for (uint64_t& key : best_) rename(key, below);
#pragma unroll
    for (uint64_t& key : queue_) rename(key, below);
    __syncwarp();
    note_rows();
  }

  /// Calls each(place, key) for the first `count` places of the best list, at most as many as it has; kNone where
  /// there is no row.
  template <class Each>
  __device__ void each_best(uint32_t count, const Each& each) const {
#pragma unroll
    for (uint32_t word = 0; word < kBestWords; ++word) {
      const uint32_t place = word * kWarp + lane_number();
      if (place < count) each(place, best_[word]);
    }
  }

 private:
  static constexpr uint32_t kBestAt = kSlackWarpRows;
  static constexpr uint32_t kRingAt = kBestAt + kBestWords * kWarp;
  static constexpr uint32_t kFewRows = 5;  // that go in one by one

  __device__ uint32_t* queue_at() const { return rows_; }
  __device__ uint32_t* best_at() const { return rows_ + kBestAt; }
  __device__ uint32_t* ring_at() const { return rows_ + kRingAt; }
  __device__ uint32_t* proposals() const { return rows_ + kRingAt + (shape_.visited + 3) / 4 * 4; }
  __device__ uint32_t* numbers() const { return proposals() + step_; }

  /// The rows among rows(0 ... length - 1) that the cache does not know; how many.
  template <class Rows>
  __device__ uint32_t propose(uint32_t length, const Rows& rows) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < length; first += kWarp) {
      const uint32_t i = first + lane_number();
      const uint32_t row = i < length ? rows(i) : kNoRow;
      const bool is_new = !knows(row) && row != kNoRow;
      const uint32_t news = __ballot_sync(kAllLanes, is_new);
      const uint32_t place = count + __popc(news & lanes_before());
      if (is_new) proposals()[place] = row;
      count += __popc(news);
    }
    __syncwarp();
    return count;
  }

  /// Whether a row stands among `count` rows; those behind, up to a multiple of four, are other ones.
  static __device__ bool stands_in(const uint32_t* rows, uint32_t count, uint32_t row) {
    bool found = false;
#pragma unroll 4
    for (uint32_t i = 0; i < count; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(rows + i);
      found |= (four.x == row) | (four.y == row) | (four.z == row) | (four.w == row);
    }
    return found;
  }

  __device__ bool knows(uint32_t row) const {
    bool found = stands_in(queue_at(), noted_, row);
    found |= stands_in(ring_at(), min(expanded_, shape_.visited), row);
    if (shape_.queue <= shape_.best || expanded_ > shape_.visited)
      found |= stands_in(best_at(), best_size_, row);
    return found;
  }

  __device__ void clear_ring() { expanded_ = ring_place_ = 0; }

  /// Before a row gets its place, the first of four clears the others.
  __device__ void note_expanded(uint32_t row) {
    if (lane_number() == 0) {
      uint32_t* place = ring_at() + ring_place_;
      if (expanded_ < shape_.visited && ring_place_ % 4 == 0)
        *reinterpret_cast<uint4*>(place) = {row, kNoRow, kNoRow, kNoRow};
      else
        *place = row;
    }
    ring_place_ = ring_place_ + 1 == shape_.visited ? 0 : ring_place_ + 1;
    ++expanded_;
    __syncwarp();
  }

  /// Lays down the rows of both lists.
  __device__ void note_rows() {
#pragma unroll
    for (uint32_t word = 0; word < 2; ++word)
      queue_at()[word * kWarp + lane_number()] = RowKey::row(queue_[word]);
#pragma unroll
    for (uint32_t word = 0; word < kBestWords; ++word)
      best_at()[word * kWarp + lane_number()] = RowKey::row(best_[word]);
    noted_ = queue_size_;
    __syncwarp();
  }

  /// The bound for the next step (equation 2).
  __device__ void settle() {
    note_rows();
    if (best_size_ < shape_.bound) return;
    const uint32_t place = shape_.bound - 1;
    const uint64_t last = kBestWords == 2 && place >= kWarp ? best_[kBestWords - 1] : best_[0];
    const float kth = square(RowKey::distance(__shfl_sync(kAllLanes, last, place % kWarp)));
    const float first = square(RowKey::distance(__shfl_sync(kAllLanes, best_[0], 0)));
    bound_ = squared_bound_of(kth, first, slack_);
  }

  /// Brings the keys of some lanes into the queue, and those that are answers into the best list.
  __device__ void admit(uint64_t key, uint32_t entering, uint32_t answers) {
    const uint32_t count = __popc(entering);
    if (count <= kFewRows) {
      for (uint32_t left = entering; left != 0; left &= left - 1) {
        const uint32_t lane = __ffs(left) - 1;
        const uint64_t one = __shfl_sync(kAllLanes, key, lane);
        insert(queue_, one);
        if ((answers >> lane & 1) != 0) insert(best_, one);
      }
    } else {
      uint64_t sorted[1] = {key};
      sort_ascending(sorted);
      merge(queue_, sorted[0]);
      if (answers != 0) {
        if (answers != entering) {
          sorted[0] = (answers >> lane_number() & 1) != 0 ? key : RowKey::kNone;
          sort_ascending(sorted);
        }
        merge(best_, sorted[0]);
      }
    }
    cut(queue_, shape_.queue);
    cut(best_, shape_.best);
    queue_size_ = min(queue_size_ + count, shape_.queue);
    best_size_ = min(best_size_ + __popc(answers), shape_.best);
  }

  template <uint32_t kWords>
  static __device__ void insert(uint64_t (&list)[kWords], uint64_t key) {
    uint64_t before = __shfl_up_sync(kAllLanes, list[0], 1);
    if (lane_number() == 0) before = 0;
    if constexpr (kWords == 2) {
      const uint64_t carried = __shfl_sync(kAllLanes, list[0], kWarp - 1);
      uint64_t before_high = __shfl_up_sync(kAllLanes, list[1], 1);
      if (lane_number() == 0) before_high = carried;
      list[1] = min(list[1], max(before_high, key));
    }
    list[0] = min(list[0], max(before, key));
  }

  /// Merges sorted keys, one a lane, into a list and keeps the nearest.
  template <uint32_t kWords>
  static __device__ void merge(uint64_t (&list)[kWords], uint64_t sorted) {
    const uint64_t opposite = __shfl_sync(kAllLanes, sorted, kWarp - 1 - lane_number());
    list[kWords - 1] = min(list[kWords - 1], opposite);
    sort_bitonic(list);
  }

  template <uint32_t kWords>
  static __device__ void cut(uint64_t (&list)[kWords], uint32_t capacity) {
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) {
      if (word * kWarp + lane_number() >= capacity) list[word] = RowKey::kNone;
    }
  }

  static __device__ void rename(uint64_t& key, const uint32_t* below) {
    if (key != RowKey::kNone) key = RowKey::of(RowKey::distance(key), __ldg(below + RowKey::row(key)), false);
  }

  const SlackShape& shape_;
  const SquareKind kind_;
  const Slack& slack_;
  const uint32_t step_;
  uint32_t* const
      rows_;  // shared: [64] of the queue, [32 kBestWords] best, the ring, [step] proposals and numbers
  uint64_t queue_[2];
  uint64_t best_[kBestWords];
  float bound_;  // squared
  uint32_t queue_size_;
  uint32_t best_size_;
  uint32_t noted_;  // rows of the queue in shared memory, the one expanded since among them
  uint32_t expanded_;
  uint32_t ring_place_;
  uint32_t ahead_row_;  // whose edge is ahead_; kNoRow: none
  uint32_t ahead_;
};

/// The registers of a lane that best lists of a shape take; 0: SlackLists has to serve.
inline uint32_t slack_words(const SlackShape& shape) {
  if (shape.queue > kSlackWarpRows || shape.best > kSlackWarpRows) return 0;
  return shape.best <= kWarp ? 1 : 2;
}

/// Shared memory of a query, for lists of so many words.
inline uint32_t slack_bytes(const SlackShape& shape, uint32_t step, uint32_t words) {
  return words == 0   ? SlackLayout(shape, step).bytes()
         : words == 1 ? SlackWarp<1>::bytes(shape, step)
                      : SlackWarp<2>::bytes(shape, step);
}

/// Calls body(lists) with the lists of a block: of one warp, unless `kWords` is 0.
template <uint32_t kWords, class Body>
__device__ void with_slack_lists(const SlackShape& shape, SquareKind kind, const Slack& slack, uint32_t step,
                                 void* memory, const Body& body) {
  if constexpr (kWords == 0) {
    __shared__ SlackState state;
    SlackLists lists(shape, kind, slack, state, step, static_cast<uint8_t*>(memory));
    body(lists);
  } else {
    SlackWarp<kWords> lists(shape, kind, slack, step, static_cast<uint8_t*>(memory));
    body(lists);
  }
}

}  // namespace gannet::cuda

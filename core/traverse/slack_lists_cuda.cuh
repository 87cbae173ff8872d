// SlackLists: the cache of GGNN's queries (traverse/slack_cache.h) in the shared memory of one block, which the search
// and the build share.
//
//   best, queue, visited  the lists of traverse/slack_cache.h; the queue is a sorted ring, of which the head moves on
//                         when a row is expanded (figure 2), visited a ring of rows
//   proposals             rows that are to be compared, of which those that the cache knows are dropped
//   fresh                 keys of those within the bound, sorted, then merged into best and queue (Algorithm 2)
//
// Each thread has a proposal and compares it with all rows of the cache, which it reads four at a time, the same
// four as its neighbours, so that a warp's 32 proposals pass the cache once. Of the ring only the rows that a query
// has expanded so far are read. The paper has a thread for each row of the cache and takes proposal after proposal,
// which reads a cache of 448 rows in full for each of 24.
//
// A merge finds where each fresh key goes by binary search and moves rows of a list behind it, from the end on in
// pieces as long as the block, each read before it is written: the paper's parallel insertion for all keys of a
// step at once.
//
// Equal to the twin bit for bit: keys have an order of their own, and the bound is drawn by one lane from the same
// floats in the same order of operations, between steps.
//
// All threads of the block call each function; where it says so, only after a barrier, and it ends with one.
#pragma once

#include "traverse/slack_cache.h"
#include "traverse/walk_steps.cuh"
#include "traverse/warp_sort_cuda.h"

namespace gannet::cuda {

/// The parts of a block's shared memory, in this order.
struct SlackLayout {
  uint32_t best;     // keys, a multiple of 2
  uint32_t queue;    // keys, likewise
  uint32_t step;     // proposals, a power of two from 32 on
  uint32_t visited;  // rows, a multiple of 4

  __host__ __device__ SlackLayout(const SlackShape& shape, uint32_t proposals)
      : best((shape.best + 1) / 2 * 2),
        queue((shape.queue + 1) / 2 * 2),
        step(proposals),
        visited((shape.visited + 3) / 4 * 4) {}

  __host__ __device__ uint32_t queue_at() const { return best * 8; }
  __host__ __device__ uint32_t fresh_at() const { return queue_at() + queue * 8; }
  __host__ __device__ uint32_t visited_at() const { return fresh_at() + step * 8; }
  __host__ __device__ uint32_t proposals_at() const { return visited_at() + visited * 4; }
  __host__ __device__ uint32_t numbers_at() const { return proposals_at() + step * 4; }
  __host__ __device__ uint32_t bytes() const { return numbers_at() + step * 4; }
};

/// The small things of a query.
struct SlackState {
  float bound;  // squared
  uint32_t best_size;
  uint32_t queue_head;  // place of the nearest row
  uint32_t queue_size;
  uint32_t expanded;
  uint32_t count;      // of proposals that are not known
  uint32_t survivors;  // of them, within the bound
  uint32_t parent;
  uint32_t refused;  // of the survivors, those that are no answers
};

/// A sorted list of which place i lies `first` places on, round about.
struct Ring {
  uint64_t* keys;  // [capacity]
  uint32_t capacity;
  uint32_t first;

  __device__ uint64_t& at(uint32_t place) const {
    const uint32_t i = first + place;
    return keys[i < capacity ? i : i - capacity];
  }
};

/// Keys of a sorted list that are smaller than a key.
template <class List>
__device__ uint32_t smaller(const List& list, uint32_t size, uint64_t key) {
  uint32_t low = 0;
  uint32_t high = size;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (list.at(middle) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// The number of a comparison as a float.
__device__ inline float square_as(SquareKind kind, uint32_t number) {
  if (kind == SquareKind::kInteger) return __uint2float_rn(number);
  if (kind == SquareKind::kFloatBits) return __uint_as_float(number);
  return __uint_as_float((number & 0x80000000) != 0 ? number & 0x7fffffff : ~number);
}

/// squared_bound() with the same bits.
__device__ inline float squared_bound_of(float kth, float best, const Slack& slack) {
  const float xi = __fmul_rn(slack.tau, fminf(__fsqrt_rn(best), slack.nearest));
  if (slack.squares) return fmaxf(kth, __fadd_rn(kth, __fmul_rn(xi, xi)));
  const float bound = __fadd_rn(__fsqrt_rn(kth), xi);
  return fmaxf(kth, __fmul_rn(bound, bound));
}

struct SlackLists {
  const SlackShape& shape;
  SquareKind kind;
  const Slack& slack;
  SlackState& state;
  SlackLayout layout;
  uint64_t* best;       // [layout.best] kNone behind the rows
  uint64_t* queue;      // [layout.queue] kNone in places without a row
  uint64_t* fresh;      // [step]
  uint32_t* visited;    // [layout.visited] kNoRow in places without a row
  uint32_t* proposals;  // [step] rows, then the places of fresh keys
  uint32_t* numbers;    // [step] of the comparisons of proposals

  __device__ SlackLists(const SlackShape& given, SquareKind of, const Slack& how_far, SlackState& block_state,
                        uint32_t step, uint8_t* memory)
      : shape(given),
        kind(of),
        slack(how_far),
        state(block_state),
        layout(given, step),
        best(reinterpret_cast<uint64_t*>(memory)),
        queue(reinterpret_cast<uint64_t*>(memory + layout.queue_at())),
        fresh(reinterpret_cast<uint64_t*>(memory + layout.fresh_at())),
        visited(reinterpret_cast<uint32_t*>(memory + layout.visited_at())),
        proposals(reinterpret_cast<uint32_t*>(memory + layout.proposals_at())),
        numbers(reinterpret_cast<uint32_t*>(memory + layout.numbers_at())) {}

  /// Begins a query; ends with a barrier.
  __device__ void begin() {
    for (uint32_t i = threadIdx.x; i < layout.best; i += blockDim.x) best[i] = RowKey::kNone;
    for (uint32_t i = threadIdx.x; i < layout.queue; i += blockDim.x) queue[i] = RowKey::kNone;
    clear_visited();
    if (threadIdx.x == 0) {
      state.bound = INFINITY;
      state.best_size = state.queue_head = state.queue_size = state.expanded = 0;
      state.count = state.survivors = state.refused = 0;
    }
    __syncthreads();
  }

  __device__ void propose(uint32_t row) { proposals[atomicAdd(&state.count, 1u)] = row; }

  /// Takes a row of a comparison; the key of one that is no answer has the flag until it is in the queue.
  __device__ void survive(uint32_t number, uint32_t row, bool is_answer = true) {
    fresh[atomicAdd(&state.survivors, 1u)] = RowKey::of(number, row, !is_answer);
    if (!is_answer) atomicAdd(&state.refused, 1u);
  }

  /// Whether a row stands in the cache. All threads read the same words.
  __device__ bool knows(uint32_t row) const {
    const uint32_t half = row << 1;  // the lower half of its key
    bool found = false;
    for (uint32_t i = 0; i < layout.best; i += 2) {
      const uint4 two = *reinterpret_cast<const uint4*>(best + i);
      found |= two.x == half | two.z == half;
    }
    for (uint32_t i = 0; i < layout.queue; i += 2) {
      const uint4 two = *reinterpret_cast<const uint4*>(queue + i);
      found |= two.x == half | two.z == half;
    }
    const uint32_t filled = min(state.expanded, shape.visited);
    for (uint32_t i = 0; i < filled; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(visited + i);
      found |= four.x == row | four.y == row | four.z == row | four.w == row;
    }
    return found;
  }

  __device__ float square(uint32_t number) const { return square_as(kind, number); }

  /// Brings the fresh keys into the queue, and those that are answers into best, after a barrier; ends with one.
  __device__ void admit(uint32_t survivors) {
    sort_fresh(survivors);
    insert(Ring{queue, shape.queue, state.queue_head}, state.queue_size, survivors);
    const uint32_t answers = survivors - state.refused;
    if (answers != survivors) drop_refused(survivors);
    if (answers != 0) insert(Ring{best, shape.best, 0}, state.best_size, answers);
    if (threadIdx.x == 0) {
      state.best_size = min(state.best_size + answers, shape.best);
      state.queue_size = min(state.queue_size + survivors, shape.queue);
    }
  }

  /// The bound for the next step (equation 2), by one thread.
  __device__ void settle() {
    state.count = state.survivors = state.refused = 0;
    if (state.best_size < shape.bound) return;
    const float kth = square(RowKey::distance(best[shape.bound - 1]));
    state.bound = squared_bound_of(kth, square(RowKey::distance(best[0])), slack);
  }

  __device__ uint32_t step() const { return layout.step; }

  /// Algorithm 2 with rows(0 ... length - 1), of which kNoRow is none: those that the cache does not know are compared,
  /// and those within the bound enter it. compare(rows, count, numbers) is called by all threads and writes a number
  /// for each of `count` rows; one of kFarthest does not enter. answers(row, number) says whether a row may be one. How
  /// many were compared.
  template <class Rows, class Compare, class Answers>
  __device__ uint32_t fetch(uint32_t length, const Rows& rows, const Compare& compare,
                            const Answers& answers) {
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) {
      const uint32_t row = rows(i);
      if (row != kNoRow && !knows(row)) propose(row);
    }
    __syncthreads();
    const float bound = state.bound;
    const uint32_t count = state.count;
    compare(proposals, count, numbers);
    __syncthreads();
    for (uint32_t place = threadIdx.x; place < count; place += blockDim.x) {
      const uint32_t number = numbers[place];
      if (number != kFarthest && square(number) <= bound)
        survive(number, proposals[place], answers(proposals[place], number));
    }
    __syncthreads();
    if (const uint32_t survivors = state.survivors; survivors != 0) admit(survivors);
    __syncthreads();
    if (threadIdx.x == 0) settle();
    __syncthreads();
    return count;
  }

  /// The same with the `degree` edges of a row, which begin at edges(parent).
  template <class Edges, class Compare, class Answers>
  __device__ uint32_t expand(uint32_t parent, uint32_t degree, const Edges& edges, const Compare& compare,
                             const Answers& answers) {
    const uint32_t* row = edges(parent);
    return fetch(degree, [&](uint32_t i) { return __ldg(row + i); }, compare, answers);
  }

  /// Takes the nearest row of the queue, after a barrier; kNoRow where the query ends.
  __device__ uint32_t pop() {
    if (threadIdx.x == 0) {
      state.parent = kNoRow;
      uint64_t& head = queue[state.queue_head];
      if (state.queue_size != 0 && square(RowKey::distance(head)) <= state.bound) {
        state.parent = RowKey::row(head);
        head = RowKey::kNone;
        state.queue_head = state.queue_head + 1 == shape.queue ? 0 : state.queue_head + 1;
        --state.queue_size;
        visited[state.expanded % shape.visited] = state.parent;
        ++state.expanded;
      }
    }
    __syncthreads();
    return state.parent;
  }

  /// Calls each(place, key) for the first `count` places of the best list, at most as many as it has; kNone where
  /// there is no row.
  template <class Each>
  __device__ void each_best(uint32_t count, const Each& each) const {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
      each(i, i < state.best_size ? best[i] : RowKey::kNone);
  }

  /// Takes the walk to the layer below, in which row r is below[r], after a barrier; ends with one. The best list has
  /// at most as many places as a step.
  __device__ void transfer(const uint32_t* below) {
    if (threadIdx.x < kWarp) collect_expanded();
    __syncthreads();
    const uint32_t waiting = state.survivors;
    if (waiting != 0) insert(Ring{queue, shape.queue, state.queue_head}, state.queue_size, waiting);
    const uint32_t size = min(state.queue_size + waiting, shape.queue);
    const Ring ring{queue, shape.queue, state.queue_head};
    for (uint32_t i = threadIdx.x; i < state.best_size; i += blockDim.x) rename(best[i], below);
    for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) rename(ring.at(i), below);
    clear_visited();
    __syncthreads();
    if (threadIdx.x == 0) {
      state.queue_size = size;
      state.expanded = state.survivors = 0;
    }
    __syncthreads();
  }

 private:
  __device__ void clear_visited() {
    for (uint32_t i = threadIdx.x; i < layout.visited; i += blockDim.x) visited[i] = kNoRow;
  }

  static __device__ void rename(uint64_t& key, const uint32_t* below) {
    key = RowKey::of(RowKey::distance(key), __ldg(below + RowKey::row(key)), false);
  }

  /// Best rows that the queue lacks, in their order, as fresh keys; by one warp.
  __device__ void collect_expanded() {
    const Ring ring{queue, shape.queue, state.queue_head};
    uint32_t count = 0;
    for (uint32_t first = 0; first < state.best_size; first += kWarp) {
      const uint32_t i = first + lane_number();
      const uint64_t key = i < state.best_size ? best[i] : RowKey::kNone;
      bool lacks = key != RowKey::kNone;
      if (lacks) {
        const uint32_t place = smaller(ring, state.queue_size, key);
        lacks = place == state.queue_size || ring.at(place) != key;
      }
      const uint32_t lacking = __ballot_sync(kAllLanes, lacks);
      if (lacks) fresh[count + __popc(lacking & lanes_before())] = key;
      count += __popc(lacking);
    }
    if (lane_number() == 0) state.survivors = count;
  }

  /// Leaves those of the sorted fresh keys that are answers, in order; by one warp.
  __device__ void drop_refused(uint32_t count) {
    if (threadIdx.x < kWarp) {
      uint32_t left = 0;
      for (uint32_t first = 0; first < count; first += kWarp) {
        const uint32_t i = first + lane_number();
        const uint64_t key = i < count ? fresh[i] : RowKey::kNone;  // whose flag is set
        const uint32_t stays = __ballot_sync(kAllLanes, !RowKey::flag(key));
        __syncwarp();
        if (!RowKey::flag(key)) fresh[left + __popc(stays & lanes_before())] = key;
        left += __popc(stays);
      }
    }
    __syncthreads();
  }

  template <uint32_t kWords>
  __device__ void sort_words(uint32_t count) {
    uint64_t sorted[kWords];
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) {
      const uint32_t i = word * kWarp + lane_number();
      sorted[word] = i < count ? fresh[i] : RowKey::kNone;
    }
    sort_ascending(sorted);
    __syncwarp();
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) fresh[word * kWarp + lane_number()] = sorted[word];
  }

  __device__ void sort_fresh(uint32_t count) {
    if (threadIdx.x < kWarp) {
      if (count <= 32)
        sort_words<1>(count);
      else if (count <= 64)
        sort_words<2>(count);
      else if (count <= 128)
        sort_words<4>(count);
      else if (count <= 256)
        sort_words<8>(count);
      else
        sort_words<16>(count);
    }
    __syncthreads();
  }

  /// Merges the fresh keys into a list of `size` rows; keys that do not fit any more fall out at its end.
  __device__ void insert(const Ring& list, uint32_t size, uint32_t count) {
    const Ring sorted{fresh, layout.step, 0};
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
      proposals[i] = i + smaller(list, size, fresh[i]);
    __syncthreads();
    const uint32_t first = proposals[0];
    for (uint32_t end = size; end > first;) {
      const uint32_t begin = end > first + blockDim.x ? end - blockDim.x : first;
      const uint32_t place = begin + threadIdx.x;
      const bool moves = place < end;
      const uint64_t key = moves ? list.at(place) : 0;
      const uint32_t target = moves ? place + smaller(sorted, count, key) : 0;
      __syncthreads();
      if (moves && target < list.capacity) list.at(target) = key;
      __syncthreads();
      end = begin;
    }
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      if (proposals[i] < list.capacity) list.at(proposals[i]) = fresh[i] & ~RowKey::kFlag;
    }
    __syncthreads();
  }
};

}  // namespace gannet::cuda

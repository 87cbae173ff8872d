// The answer of a query in a caller's buffers, from the rows that a search found.
//
//   place      one neighbour of the query, of those that the caller wants
//   run        places with equal distances; the search orders them by row, callers see them by id
//
// A thread takes a place. In a run of several it counts the lesser ids of the run, which gives its place there:
// nothing where ids are row numbers, and short runs but for data of many equal rows.
#pragma once

#include "distance/metric_cuda.cuh"
#include "search/answers_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {

/// `Found` has row(place), nearest first and kNoRow behind the last, and distance(place) of a row.
template <class Found>
struct WriteAnswer {
  const AnswerArgs& args;
  Found found;  // args.k places
  uint64_t query;
  bool usable;  // whether the query is finite; else it has no neighbours

  __device__ void write(uint32_t place) const {
    if (place == 0 && args.results.status != nullptr)
      args.results.status[query] = usable ? int32_t{ANN_OK} : int32_t{ANN_NOT_FINITE};
    const uint32_t row = usable ? row_at(place) : kNoRow;
    if (args.results.counts != nullptr) {
      if (place == 0 && row == kNoRow) args.results.counts[query] = 0;
      const bool last = place + 1 == args.results.k || row_at(place + 1) == kNoRow;
      if (row != kNoRow && last) args.results.counts[query] = place + 1;
    }
    const uint64_t id = row == kNoRow ? ANN_ID_NONE : args.ids == nullptr ? row : args.ids[row];
    const uint64_t to = query * args.results.k + place_of(place, row, id);
    args.results.ids[to] = id;
    if (args.results.distances != nullptr)
      args.results.distances[to] = row == kNoRow ? INFINITY : found.distance(place);
  }

 private:
  __device__ uint32_t row_at(uint32_t place) const { return place < args.k ? found.row(place) : kNoRow; }

  /// Where the id stands among those at its distance.
  __device__ uint32_t place_of(uint32_t place, uint32_t row, uint64_t id) const {
    if (row == kNoRow || args.ids == nullptr) return place;
    const float distance = found.distance(place);
    uint32_t to = place;
    for (uint32_t at = place; at != 0 && found.distance(at - 1) == distance; --at)
      to -= args.ids[row_at(at - 1)] > id ? 1 : 0;
    for (uint32_t at = place + 1; row_at(at) != kNoRow && found.distance(at) == distance; ++at)
      to += args.ids[row_at(at)] < id ? 1 : 0;
    return to;
  }
};

/// Sorted keys of rows that were compared as stored.
struct FoundExactly {
  const Key* keys;

  __device__ uint32_t row(uint32_t place) const { return row_of(keys[place]); }  // kNoKey gives kNoRow
  __device__ float distance(uint32_t place) const { return distance_of(keys[place]); }
};

/// All places, by the threads of a block. Apart from its callers, whose registers it is not to take.
template <class Found>
__device__ __noinline__ void write_answer_by_block(const AnswerArgs& args, Found found, uint64_t query,
                                                   bool usable) {
  const WriteAnswer<Found> answer = {args, found, query, usable};
  for (uint32_t place = threadIdx.x; place < args.results.k; place += blockDim.x) answer.write(place);
}

}  // namespace gannet::cuda

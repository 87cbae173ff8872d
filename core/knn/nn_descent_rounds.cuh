// GNND on the GPU: Algorithm 1 on the host, launch by launch. `Update` is the way in which samples
// offer near rows to lists (nn_descent_steps.cuh); the library builds one, a test also others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/launch.h"
#include "backend/prefix_sums.h"
#include "base/execution.h"
#include "knn/nn_descent_steps.cuh"

namespace gannet::cuda::descent {

constexpr uint64_t kLaunchWork = uint64_t{1} << 35;  // bytes that a launch moves: some 15 ms

/// The library does not look at lists between rounds.
struct NoObserver {
  void operator()(uint32_t, const Args&, const Stream&) const {}
};

/// Members are in the order in which they take device memory.
template <class Update>
class NnDescent {
 public:
  /// `offset_most`: the largest offset added to any of the squares of `codes` (knn/products.h).
  NnDescent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors, uint32_t* distances,
            const Stream& stream, const Execution& execution, const TwoSets& sets = {},
            uint32_t offset_most = 0)
      : params_(params),
        execution_(execution),
        stream_(stream),
        offset_most_(offset_most),
        rows_(codes.rows),
        lists_(2 * uint64_t{rows_}),
        keys_(uint64_t{rows_} * params.k, stream),
        worst_(rows_, stream),
        locks_(rows_, stream),
        offers_(uint64_t{rows_} * kOffers, stream),
        offered_(rows_, stream),
        samples_(lists_ * 2 * params.samples, stream),
        counts_(lists_ + 1, stream),
        begins_(lists_ + 1, stream),
        sources_(lists_ * params.samples, stream),
        fresh_total_(1, stream),
        scratch_bytes_(sum_scratch_bytes(lists_ + 1)),
        scratch_(scratch_bytes_, stream) {
    args_.codes = codes;
    args_.keys = keys_.data();
    args_.worst = worst_.data();
    args_.locks = locks_.data();
    args_.offers = offers_.data();
    args_.offered = offered_.data();
    args_.samples = samples_.data();
    args_.counts = counts_.data();
    args_.begins = begins_.data();
    args_.sources = sources_.data();
    args_.fresh_total = fresh_total_.data();
    args_.neighbors = neighbors;
    args_.distances = distances;
    args_.sets = sets;
    args_.seed = params.seed;
    args_.rows = rows_;
    args_.k = params.k;
    args_.p = params.samples;
  }

  /// Returns the rounds that it took. `observe` sees the lists after each round.
  template <class Observer = NoObserver>
  uint32_t run(Observer&& observe = {}) {
    clear();
    if (args_.sets.first_rows == 0)
      launch_warps<StartWithRandomRows>("start_with_random_rows", rows_);
    else
      start_with_two_sets();
    uint32_t round = 0;
    while (round < params_.iterations) {
      execution_.check();
      const uint64_t fresh = sample_own();
      if (static_cast<double>(fresh) < static_cast<double>(params_.convergence) * rows_ * params_.k) break;
      args_.round = ++round;
      sample_reverse();
      expected_ = round == 1 ? 2.0 * params_.samples
                             : std::min(6.0 * params_.samples, 3.0 * static_cast<double>(fresh) / rows_);
      cross_match();
      observe(round, args_, stream_);
      // Nobody knows the last round before it is over; most graphs take between 6 and 14.
      execution_.advance(static_cast<double>(round) / (round + 4));
    }
    launch_items<WriteGraph>("write_graph", uint64_t{rows_} * params_.k);
    stream_.wait();
    return round;
  }

 private:
  void clear() {
    fill(keys_.data(), 0xff, uint64_t{rows_} * params_.k * sizeof(uint64_t), stream_, "clearing lists");
    fill(worst_.data(), 0xff, rows_ * sizeof(uint64_t), stream_, "clearing lists");
    fill(locks_.data(), 0, rows_ * sizeof(uint32_t), stream_, "clearing locks");
    fill(offered_.data(), 0, rows_ * sizeof(uint32_t), stream_, "clearing counts");
    fill(counts_.data(), 0, (lists_ + 1) * sizeof(uint32_t), stream_, "clearing counts");
  }

  void start_with_two_sets() {
    if (params_.k <= 64) return start<StartWithTwoSets<2>>();
    start<StartWithTwoSets<kListRegisters>>();
  }

  /// In launches short enough for the monitor.
  template <class Step>
  void start() {
    const uint64_t most = std::max<uint64_t>(kLaunchWork / (uint64_t{params_.k} * args_.codes.stride), 1024);
    for (uint64_t first = 0; first < rows_; first += most) {
      execution_.check();
      args_.first_row = static_cast<uint32_t>(first);
      args_.launch_rows = static_cast<uint32_t>(std::min<uint64_t>(most, rows_ - first));
      launch_warps<Step>("start_with_two_sets", args_.launch_rows);
      if (most < rows_) stream_.wait();
    }
  }

  uint64_t sample_own() {
    fill(fresh_total_.data(), 0, sizeof(uint64_t), stream_, "clearing a count");
    launch_warps<SampleOwn>("sample_own", rows_);
    unsigned long long fresh = 0;
    copy_to_host(&fresh, fresh_total_.data(), sizeof fresh, stream_, "fetching a count");
    stream_.wait();
    return fresh;
  }

  void sample_reverse() {
    sum_before(counts_.data(), begins_.data(), lists_ + 1, scratch_.data(), scratch_bytes_, stream_,
               "adding up the counts of reverse samples");
    const uint64_t blocks_of = ScatterReverse::kThreads / params_.samples;
    launch("scatter_reverse", kernel<ScatterReverse>, static_cast<uint32_t>((lists_ - 1) / blocks_of + 1),
           ScatterReverse::kThreads, stream_, args_);
    if (params_.samples <= 16)
      launch_warps<GatherSamples<32>>("gather_samples", lists_);
    else if (params_.samples <= 32)
      launch_warps<GatherSamples<64>>("gather_samples", lists_);
    else
      launch_warps<GatherSamples<128>>("gather_samples", lists_);
  }

  void cross_match() {
    if (params_.samples <= 16) return match_side<32>();
    if (params_.samples <= 32) return match_side<64>();
    if constexpr (Update::kSamplesMost > 32) match_side<128>();
  }

  /// Of long keys there is one variant, for the most samples: floats take fifty times as long as bytes, and long
  /// rows of bytes wait for the codes of those samples that are there.
  template <uint32_t kSide>
  void match_side() {
    using Short = CrossMatch<Update, kSide, int32_t, false>;
    constexpr uint32_t kSideMost = 2 * Update::kSamplesMost;
    if (args_.codes.wide()) return match<kSide, CrossMatch<Update, kSideMost, int64_t, true>>();
    if (Short::fits(args_.codes.stride, offset_most_)) return match<kSide, Short>();
    match<kSide, CrossMatch<Update, kSideMost, int64_t, false>>();
  }

  /// In launches short enough for the monitor, and in slices that do not overrun the places of offers:
  /// each slice makes lists better and so has fewer offers accepted, and is as large as all before it.
  /// The pairs to compare were fixed before, so slices do not matter to the result.
  template <uint64_t kSide, class Step>
  void match() {
    const uint64_t gathered = 2 * kSide * args_.codes.stride;
    const uint64_t summed = args_.codes.wide() ? gathered * kSide / 8 : 0;
    const uint64_t offered = 3 * kSide * 64;
    const uint64_t by_time = std::max<uint64_t>(kLaunchWork / (gathered + summed + offered), 1024);
    const uint64_t by_places =
        std::max<uint64_t>(static_cast<uint64_t>(rows_ * double{Update::kOffersAtFirst} / expected_), 1024);
    const bool is_long = by_time / 2 < rows_;
    for (uint64_t first = 0; first < rows_; first += args_.launch_rows) {
      execution_.check();
      args_.first_row = static_cast<uint32_t>(first);
      args_.launch_rows =
          static_cast<uint32_t>(std::min({by_time, std::max(by_places, first), rows_ - first}));
      launch_step<typename Update::Before>("before_meeting");
      launch_warps<Step>("cross_match", args_.launch_rows);
      launch_step<typename Update::After>("after_meeting");
      if (is_long) stream_.wait();
    }
  }

  template <class Step>
  void launch_step(const char* name) {
    if constexpr (!std::is_void_v<Step>) launch_warps<Step>(name, rows_);
  }

  template <class Step>
  void launch_warps(const char* name, uint64_t warps) {
    launch_items<Step>(name, warps * 32);
  }

  template <class Step>
  void launch_items(const char* name, uint64_t items) {
    const uint64_t blocks = (items + Step::kThreads - 1) / Step::kThreads;
    uint32_t shared_bytes = 0;
    if constexpr (requires { Step::shared_bytes(args_.k); }) shared_bytes = Step::shared_bytes(args_.k);
    launch(name, kernel<Step>, static_cast<uint32_t>(blocks), Step::kThreads, stream_, args_, shared_bytes);
  }

  const NnDescentParams& params_;
  const Execution& execution_;
  const Stream& stream_;
  uint32_t offset_most_;
  uint32_t rows_;
  uint64_t lists_;       // of samples: two a row
  double expected_ = 0;  // offers to a row in this round
  Args args_ = {};
  DeviceArray<uint64_t> keys_;                   // [rows, k]
  DeviceArray<uint64_t> worst_;                  // [rows]
  DeviceArray<uint32_t> locks_;                  // [rows]
  DeviceArray<uint64_t> offers_;                 // [rows, kOffers]
  DeviceArray<uint32_t> offered_;                // [rows]
  DeviceArray<uint32_t> samples_;                // [lists, 2 p]
  DeviceArray<uint32_t> counts_;                 // [lists + 1]
  DeviceArray<uint64_t> begins_;                 // [lists + 1]
  DeviceArray<uint32_t> sources_;                // [lists * p]
  DeviceArray<unsigned long long> fresh_total_;  // [1]
  uint64_t scratch_bytes_;
  DeviceArray<uint8_t> scratch_;
};

}  // namespace gannet::cuda::descent

#include "index/device_calibration.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "index/device_search.h"
#include "search/exact_cuda.h"
#include "search/queries.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x64657669636573;  // "devices"
constexpr uint32_t kSampleMax = 1024;
constexpr uint32_t kSampleMin = 256;  // fewer say too little: all of 12 found is no recall of 1
constexpr uint32_t kManyAnswers = 1000;
constexpr uint32_t kManySample = 64;  // for so many answers
constexpr uint32_t sample_size(uint32_t k) { return k < 100 ? kSampleMax : k < kManyAnswers ? 256 : kManySample; }
constexpr double kSlacks[] = {-0.10, -0.06, -0.03, 0,    0.01, 0.02, 0.03, 0.045, 0.06, 0.08,
                              0.10,  0.13,  0.16,  0.20, 0.25, 0.32, 0.40};
constexpr double kEnough = 0.9995;
constexpr double kPromiseMargin = 0.01;  // of recall, by which an answer may fall short
constexpr uint32_t kNoCap = 4096;  // a walk of two lists that goes on for longer runs in a desert

// The cap is this multiple of the mean, and a few more for means near zero.
constexpr double cap_factor(double recall) { return recall < 0.975 ? 1.5 : 2.1; }
constexpr double kCapMin = 4;

struct Outcome {
  double recall;      // mean
  double error;       // its standard error
  double expansions;  // mean
};

}  // namespace

/// The queries with their true neighbours, and where they are answered.
class DeviceCalibration::Sample {
 public:
  Sample(const Dataset& dataset, const Codes& codes, DeviceIndex& index, int32_t device,
         uint32_t count, uint32_t depth, uint64_t seed, const Execution& execution)
      : dataset_(dataset),
        codes_(codes),
        index_(index),
        execution_(execution),
        count_(count),
        depth_(depth),
        masked_(execution.memory, count),
        copied_(execution.memory, checked_product(count, row_bytes())),
        truth_(execution.memory, size_t{count} * depth) {
    random_strata(dataset.rows(), count, seed, kSampleStream, masked_.data());
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(copied_.data() + i * row_bytes(), dataset.view().row(masked_[i]), row_bytes());
    judge(device);
  }

  /// Brings the queries into a space for k answers.
  void use(uint32_t k) {
    k_ = k;
    space_.reset();  // to get the same one again
    space_ = std::make_unique<BorrowedSpace>(index_, count_, k);
    used_ = std::min({count_, (*space_)->capacity(), sample_size(k)});
    fill_space(dataset_, codes_, view(), 0, used_, **space_, execution_);
  }

  Outcome run(const WalkEffort& effort) {
    execution_.check();
    DeviceSpace& space = **space_;
    space.run(used_, effort, masked_.data(), false);
    double sum = 0;
    double squares = 0;
    for (uint32_t query = 0; query < used_; ++query) {
      const double recall = recall_of(query, space.distances() + size_t{query} * k_);
      sum += recall;
      squares += recall * recall;
    }
    const double mean = sum / used_;
    const double variance = std::max(0.0, squares / used_ - mean * mean);
    return {mean, std::sqrt(variance / std::max(1u, used_ - 1)),
            static_cast<double>(space.expansion_count()) / used_};
  }

 private:
  size_t row_bytes() const { return size_t{dataset_.dim()} * element_bytes(dataset_.element()); }
  MatrixView view() const {
    return {copied_.data(), count_, dataset_.dim(), dataset_.element(), row_bytes()};
  }

  /// Finds the true neighbours: one more than needed, since a masked row finds itself.
  void judge(int32_t device) {
    const Allocator& memory = execution_.memory;
    const QueryBlock block(dataset_, view(), memory);
    const size_t bytes = dataset_.query_bytes();
    Array<uint8_t> packed(memory, checked_product(count_, bytes));
    for (uint32_t i = 0; i < count_; ++i)
      std::memcpy(packed.data() + i * bytes, block[i].values, bytes);
    const uint32_t wide = depth_ + 1;
    Array<uint32_t> rows(memory, size_t{count_} * wide);
    Array<float> distances(memory, rows.size());
    cuda::ExactRequest request{device, dataset_.view(), dataset_.rows(), dataset_.metric(),
                               dataset_.norms(), nullptr, packed.data(), block.norms(), count_, wide,
                               rows.data(), distances.data()};
    index_.lend_rows(&request);
    cuda::search_exact(request, execution_);
    for (uint32_t query = 0; query < count_; ++query) {
      uint32_t kept = 0;
      for (uint32_t i = 0; i < wide && kept < depth_; ++i) {
        if (rows[size_t{query} * wide + i] == masked_[query]) continue;
        truth_[size_t{query} * depth_ + kept++] = distances[size_t{query} * wide + i];
      }
    }
  }

  /// A found row counts if it is no farther than the k-th true neighbour.
  double recall_of(uint32_t query, const float* found) const {
    const float farthest = truth_[size_t{query} * depth_ + k_ - 1];
    const auto hits = std::count_if(found, found + k_,
                                    [farthest](float distance) { return distance <= farthest; });
    return static_cast<double>(hits) / k_;
  }

  const Dataset& dataset_;
  const Codes& codes_;
  DeviceIndex& index_;
  const Execution& execution_;
  uint32_t count_;
  uint32_t depth_;
  uint32_t k_ = 0;
  uint32_t used_ = 0;  // of the queries, for this k
  Array<uint32_t> masked_;  // [count]
  Array<uint8_t> copied_;   // [count, row_bytes]
  Array<float> truth_;      // [count, depth] distances of the true neighbours
  std::unique_ptr<BorrowedSpace> space_;
};

void DeviceCalibration::measure(const Dataset& dataset, const Codes& codes, DeviceIndex& index,
                                int32_t device, uint64_t seed, const Execution& execution) {
  const uint32_t count = std::min(dataset.rows() / 4, kSampleMax);
  if (count < kSampleMin) return;
  execution.enter("calibrate");
  const auto known = [&](uint32_t k) { return dataset.rows() >= uint64_t{k} * 4 + 1; };
  const uint32_t few = codes.exact() ? 32 : 24;  // the most answers of a sorted list of 32 rows
  const uint32_t ks[] = {1, 10, few, 100};
  uint32_t depth = 0;
  for (const uint32_t k : ks) depth = known(k) ? k : depth;
  if (depth == 0) return;
  const uint32_t warps[kTables] = {1, 8, 16};
  {
    Sample sample(dataset, codes, index, device, count, depth, seed, execution);
    for (uint32_t i = 0; i < kTables; ++i) {
      tables_[i].warps = warps[i];
      for (const uint32_t k : ks) {
        const bool serves = warps[i] == 1    ? two_lists_serve(k, codes.exact())
                            : warps[i] == 16 ? k <= few && index.blocks_serve(k)
                                             : k != few && index.blocks_serve(k);
        if (serves && k <= depth) measure_curve(sample, k, &tables_[i]);
      }
    }
  }
  if (!known(kManyAnswers) || !index.blocks_serve(kManyAnswers)) return;
  Sample sample(dataset, codes, index, device, kManySample, kManyAnswers, seed, execution);
  measure_curve(sample, kManyAnswers, &tables_[1]);
}

void DeviceCalibration::measure_curve(Sample& sample, uint32_t k, Table* table) const {
  Curve* curve = &table->curves[table->count++];
  curve->k = k;
  sample.use(k);
  double best = 0;
  for (const double slack : kSlacks) {
    WalkEffort effort;
    effort.warps = table->warps;
    effort.slack = static_cast<float>(slack);
    effort.expansions_max = kNoCap;
    Outcome outcome = sample.run(effort);
    const double expansions = outcome.expansions;
    if (table->warps == 1) {
      const double cap = std::ceil(expansions * cap_factor(outcome.recall)) + kCapMin;
      effort.expansions_max = static_cast<uint32_t>(std::min<double>(cap, kNoCap));
      outcome = sample.run(effort);
    }
    best = std::max(best, outcome.recall - std::max(0.0, 2 * outcome.error - kPromiseMargin));
    curve->points[curve->count++] = {best, slack, static_cast<double>(effort.expansions_max)};
    // More slack than this only reads more rows: the filter and the graph bound the recall.
    if (outcome.recall >= kEnough || expansions > kNoCap / 4) break;
  }
}

/// The point where the curve reaches `recall`, between points in proportion.
bool DeviceCalibration::Curve::find(double recall, Point* point) const {
  uint32_t above = 0;
  while (above < count && points[above].recall < recall) ++above;
  if (above == count) return false;
  *point = points[above];
  if (above == 0) return true;
  const Point& below = points[above - 1];
  const double part = (recall - below.recall) / (points[above].recall - below.recall);
  point->slack = below.slack + part * (points[above].slack - below.slack);
  point->expansions_max =
      below.expansions_max + part * (points[above].expansions_max - below.expansions_max);
  return true;
}

/// Between curves in proportion to log k. Beyond the last one there is no telling.
bool DeviceCalibration::Table::find(uint32_t k, double recall, Point* point) const {
  uint32_t above = 0;
  while (above < count && curves[above].k < k) ++above;
  if (above == count) return false;
  if (!curves[above].find(recall, point)) return false;
  if (above == 0 || curves[above].k == k) return true;
  Point low;
  if (!curves[above - 1].find(recall, &low)) return false;
  const double part = std::log(static_cast<double>(k) / curves[above - 1].k) /
                      std::log(static_cast<double>(curves[above].k) / curves[above - 1].k);
  point->slack = low.slack + part * (point->slack - low.slack);
  point->expansions_max = low.expansions_max + part * (point->expansions_max - low.expansions_max);
  return true;
}

bool DeviceCalibration::find(uint32_t warps, uint32_t k, float recall, WalkEffort* effort) const {
  for (const Table& table : tables_) {
    Point point;
    if (table.warps != warps || !table.find(k, recall, &point)) continue;
    effort->warps = warps;
    effort->slack = static_cast<float>(point.slack);
    effort->expansions_max = static_cast<uint32_t>(std::ceil(point.expansions_max));
    effort->beam = 0;
    return true;
  }
  return false;
}

}  // namespace gannet

#include "index/calibration.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "search/exact.h"
#include "search/exact_device.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x73616d706c65;  // "sample"
constexpr uint32_t kSampleMax = 256;
constexpr uint32_t kWideSampleMax = 64;  // for k of 1,000, whose answers average more neighbours
constexpr uint32_t kKs[] = {1, 10, 100, 1000};
constexpr uint32_t kBeamMin = 16;
constexpr double kEnough = 0.9995;
constexpr double kGrowth = 1.35;  // from one beam to the next

struct Sample {
  const QueryBlock* queries;
  const uint32_t* masked;      // [count] or null
  uint32_t count;
  const float* truth;          // [count, truth_k] distances of the true neighbours
  uint32_t truth_k;
};

/// Mean share of the true neighbours found, and the standard error of that mean.
struct Recall {
  double mean;
  double error;
};

/// A found row counts if it is no farther than the k-th true neighbour: of rows at equal distance
/// any will do.
double query_recall(const Neighbor* found, uint32_t count, const float* truth, uint32_t k) {
  const float farthest = truth[k - 1];
  uint32_t hits = 0;
  for (uint32_t i = 0; i < count; ++i) hits += found[i].distance <= farthest ? 1 : 0;
  return static_cast<double>(hits) / k;
}

Recall measure_recall(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                      const Sample& sample, uint32_t count, uint32_t k, uint32_t beam,
                      std::vector<SearchSpace>& spaces, Array<double>& shares,
                      const Execution& execution) {
  parallel_for(execution, count, 8, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    SearchSpace& space = spaces[worker];
    for (uint64_t query = begin; query < end; ++query) {
      const uint32_t masked = sample.masked != nullptr ? sample.masked[query] : kNoRow;
      SearchCounts counts;
      const uint32_t found = search_best_first(dataset, codes, graph, (*sample.queries)[query],
                                               masked, k, beam, space, &counts);
      shares[query] = query_recall(space.neighbors.data(), found,
                                   sample.truth + query * sample.truth_k, k);
    }
  });
  double sum = 0;
  for (uint32_t query = 0; query < count; ++query) sum += shares[query];
  const double mean = sum / count;
  double variance = 0;
  for (uint32_t query = 0; query < count; ++query)
    variance += (shares[query] - mean) * (shares[query] - mean);
  return {mean, std::sqrt(variance / count / std::max(1u, count - 1))};
}

uint32_t truth_depth(uint64_t rows) {
  // A curve for k is of use where the rows hold k many times over.
  uint32_t depth = 0;
  for (const uint32_t k : kKs) {
    if (rows >= uint64_t{k} * 4 + 1) depth = k;
  }
  return depth;
}

}  // namespace

void Calibration::measure(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                          const MatrixView* given, uint64_t seed, int32_t device,
                          const Execution& execution) {
  const uint32_t depth = truth_depth(dataset.rows());
  const uint32_t count = static_cast<uint32_t>(
      std::min<uint64_t>(given != nullptr ? given->rows : dataset.rows() / 4, kSampleMax));
  if (depth == 0 || count == 0) return;
  const Allocator& memory = execution.memory;

  // The queries: a sample of the rows in their own order, copied together, or the caller's.
  Array<uint32_t> masked(memory, count);
  Array<uint8_t> copied(memory, given != nullptr ? 0 : checked_product(count, dataset.view().stride));
  MatrixView vectors{copied.data(), count, dataset.dim(), dataset.element(), dataset.view().stride};
  if (given != nullptr) {
    vectors = *given;
    vectors.rows = count;
  } else {
    random_strata(dataset.rows(), count, seed, kSampleStream, masked.data());
    const size_t row_bytes = size_t{dataset.dim()} * element_bytes(dataset.element());
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(copied.data() + i * dataset.view().stride, dataset.view().row(masked[i]), row_bytes);
  }
  const QueryBlock queries(dataset, vectors, memory);

  Array<uint64_t> truth_ids(memory, size_t{count} * depth);
  Array<float> truth(memory, size_t{count} * depth);
  const uint32_t* excluded = given != nullptr ? nullptr : masked.data();
  const ResultsView results{depth, truth_ids.data(), truth.data(), nullptr, nullptr};
  if (device >= ANN_DEVICE_CUDA)
    search_exact_on_device(dataset, queries, excluded, device, results, execution.span(0, 0.5));
  else
    search_exact(dataset, queries, excluded, results, execution.span(0, 0.5));
  const Sample sample{&queries, excluded, count, truth.data(), depth};

  std::vector<SearchSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(dataset, codes, graph, memory);
  Array<double> shares(memory, count);
  for (const uint32_t k : kKs) {
    if (k > depth) break;
    Curve& curve = curves_[curve_count_];
    curve.k = k;
    const uint32_t used = k == 1000 ? std::min(count, kWideSampleMax) : count;
    double best = 0;
    for (double length = k; curve.count < kPoints; length = std::ceil(length * kGrowth)) {
      const uint32_t beam = static_cast<uint32_t>(length);
      if (beam > ANN_BEAM_MAX) break;
      const Recall recall = measure_recall(dataset, codes, graph, sample, used, k, beam, spaces,
                                           shares, execution);
      if (k == 10) recall_max_ = std::max(recall_max_, static_cast<float>(recall.mean));
      best = std::max(best, recall.mean - recall.error);
      curve.points[curve.count++] = {beam, best};
      if (recall.mean >= kEnough || beam >= dataset.rows()) break;
    }
    ++curve_count_;
    execution.advance(0.5 + 0.5 * curve_count_ / kCurves);
  }
}

/// The beam at which the curve reaches `recall`, between points in proportion.
double Calibration::Curve::beam(double recall) const {
  if (points[0].recall >= recall) return points[0].beam;
  for (uint32_t i = 1; i < count; ++i) {
    if (points[i].recall < recall) continue;
    const double rise = points[i].recall - points[i - 1].recall;
    const double part = (recall - points[i - 1].recall) / rise;
    return points[i - 1].beam + part * (points[i].beam - points[i - 1].beam);
  }
  return points[count - 1].beam;
}

uint32_t Calibration::beam(uint32_t k, float recall) const {
  double length = 0;
  if (curve_count_ == 0) {
    length = 4.0 * k + 64;
    for (double miss = 0.05; miss > 1 - recall && length < ANN_BEAM_MAX; miss /= 2) length *= 2;
  } else {
    uint32_t above = 0;
    while (above < curve_count_ && curves_[above].k < k) ++above;
    if (above == curve_count_) {
      // Beyond the last curve the beam keeps its proportion to k.
      const Curve& last = curves_[curve_count_ - 1];
      length = last.beam(recall) / last.k * k;
    } else if (curves_[above].k == k || above == 0) {
      length = curves_[above].beam(recall);
    } else {
      const Curve& low = curves_[above - 1];
      const Curve& high = curves_[above];
      const double part = std::log(static_cast<double>(k) / low.k) /
                          std::log(static_cast<double>(high.k) / low.k);
      length = std::exp((1 - part) * std::log(low.beam(recall)) + part * std::log(high.beam(recall)));
    }
  }
  // A floor for queries that differ a little from the rows: it costs some microseconds.
  const double wanted = std::clamp(std::ceil(length), double{kBeamMin}, double{ANN_BEAM_MAX});
  return std::max(static_cast<uint32_t>(wanted), std::min<uint32_t>(k, ANN_BEAM_MAX));
}

uint64_t calibration_bytes(uint32_t dim, uint64_t rows, uint64_t threads) {
  const uint64_t depth = truth_depth(rows);
  const uint64_t count = std::min<uint64_t>(kSampleMax, rows / 4 + 1);
  const uint64_t beam = std::min<uint64_t>(ANN_BEAM_MAX, 2 * rows + 1024);
  const uint64_t space = rows / 8 + 8192 * 4 + dim * 5ull + 4096 + beam * 32;
  const uint64_t judge = 16 * depth * 16 + 2048;
  return count * (depth * 12 + dim * 8ull + 128) + threads * (space + judge) + 64 * kAlignment;
}

}  // namespace gannet

#include "tune/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "graph/long_edges.h"
#include "search/host_batch.h"
#include "search/exact.h"
#include "search/exact_by_codes.h"
#include "search/exact_device.h"
#include "tune/search_work.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x73616d706c65;  // "sample"
constexpr uint32_t kKs[KnobCurves::kCurves] = {1, 10, 100, 1000};
constexpr uint32_t kSampleMax[KnobCurves::kCurves] = {256, 256, 64, 16};
constexpr uint32_t kBeamMin = 16;
constexpr uint32_t kHeldOutShare = 4;  // one of so many rows at most
constexpr uint32_t kBeamPerK = 1000;   // no curve goes beyond this many times its k

constexpr double kLeeway = 0.01;      // that a promise leaves
constexpr double kAllOrNone = 0.015;  // standard error of the recall of ten answers, from which on it is so

/// Beams that are tried however little it takes to compare all rows, for those who name the walk.
constexpr uint32_t always_tried(uint32_t k) { return 4 * k + 64; }

constexpr double kGrowth = 1.35;     // from one beam to the next,
constexpr double kWideGrowth = 1.6;  // and beyond kWideBeam, where one for ten answers is rarely left
constexpr uint32_t kWideBeam = 300;

/// The queries with their true neighbours: the first few to the full depth, all to kKs[2].
struct Sample {
  MatrixView vectors;
  const QueryBlock* queries;  // of them
  const uint32_t* masked;     // [count] or null
  RowSetView held_out;        // of all of them: the copies of masked rows
  uint32_t count;
  uint32_t deep_count;
  uint32_t depth;
  uint32_t deep;
  uint32_t sizes[KnobCurves::kCurves];  // queries that judge each curve, no more than for the one before
  Array<float> truth;                   // [count, depth] distances of the true neighbours
  Array<float> deep_truth;              // [deep_count, deep]

  /// The distance of the k-th true neighbour.
  float farthest(uint32_t query, uint32_t k) const {
    return k <= depth ? truth[size_t{query} * depth + k - 1] : deep_truth[size_t{query} * deep + k - 1];
  }
};

/// Mean share of the true neighbours found, and the standard error of that mean.
struct Recall {
  double mean;
  double error;
};

Recall mean_of(const double* shares, uint32_t count) {
  double sum = 0;
  for (uint32_t query = 0; query < count; ++query) sum += shares[query];
  const double mean = sum / count;
  double variance = 0;
  for (uint32_t query = 0; query < count; ++query)
    variance += (shares[query] - mean) * (shares[query] - mean);
  return {mean, std::sqrt(variance / count / std::max(1u, count - 1))};
}

/// A found row counts if it is no farther than the k-th true neighbour: of rows at equal distance
/// any will do. Of the `compared` rows a search for k would see only its own share again.
double query_recall(const float* distances, uint32_t compared, uint32_t k, uint32_t beam, float farthest) {
  const uint32_t seen = std::min({compared, beam, rerank_count(k)});
  uint32_t hits = 0;
  for (uint32_t i = 0; i < seen; ++i) hits += distances[i] <= farthest ? 1 : 0;
  return static_cast<double>(std::min(hits, k)) / k;
}

/// Walks with one beam; shares[c * kSampleMax[0] + query] are the recalls for kKs[c], c in [low, high).
void walk_all(const Segment& segment, const Sample& sample, uint32_t low, uint32_t high, uint32_t beam,
              std::vector<SearchSpace>& spaces, Array<double>& shares, const Execution& execution) {
  const uint32_t count = sample.sizes[low];
  // One query at a time: the longest beams are for few, which are to keep all threads busy.
  parallel_for(execution, count, 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    SearchSpace& space = spaces[worker];
    for (uint32_t query = static_cast<uint32_t>(begin); query < end; ++query) {
      const uint32_t masked = sample.masked != nullptr ? sample.masked[query] : kNoRow;
      // The largest k that this query plays a part in.
      uint32_t last = high;
      while (last > low + 1 && query >= sample.sizes[last - 1]) --last;
      SearchCounts counts;
      const uint32_t compared =
          compare_best_first(segment.dataset, segment.codes, segment.graph, (*sample.queries)[query],
                             {{}, sample.held_out, masked}, kKs[last - 1], beam, space, &counts);
      for (uint32_t c = low; c < last; ++c)
        shares[c * size_t{kSampleMax[0]} + query] =
            query_recall(space.distances.data(), compared, kKs[c], beam, sample.farthest(query, kKs[c]));
    }
  });
}

/// The same on a device. There each k has walks of its own, since of lossy codes the device gives back
/// answers alone.
class DeviceWalks {
 public:
  DeviceWalks(const Segment& segment, const Sample& sample, DevicePlacement& placement,
              const Execution& execution)
      : segment_(segment), sample_(sample), placement_(placement), execution_(execution) {}

  void walk(uint32_t low, uint32_t high, uint32_t beam, Array<double>& shares) {
    for (uint32_t c = low; c < high; ++c) {
      const uint32_t count = sample_.sizes[c];
      DeviceWorkspace& space = workspace_of(c, count);
      execution_.check();
      space.run(count, BeamPlan{std::min(beam, segment_.rows())}, {sample_.masked, false}, false);
      for (uint32_t query = 0; query < count; ++query)
        shares[c * size_t{kSampleMax[0]} + query] =
            query_recall(space.distances() + size_t{query} * kKs[c], kKs[c], kKs[c], beam,
                         sample_.farthest(query, kKs[c]));
    }
  }

 private:
  DeviceWorkspace& workspace_of(uint32_t c, uint32_t count) {
    if (filled_[c] < count) {
      workspaces_[c] = nullptr;
      workspaces_[c] = std::make_unique<DeviceWorkspaceLease>(placement_, count, kKs[c]);
      fill_workspace(segment_, sample_.vectors, 0, count, **workspaces_[c], execution_);
      filled_[c] = count;
    }
    return **workspaces_[c];
  }

  const Segment& segment_;
  const Sample& sample_;
  DevicePlacement& placement_;
  const Execution& execution_;
  std::unique_ptr<DeviceWorkspaceLease> workspaces_[KnobCurves::kCurves];
  uint32_t filled_[KnobCurves::kCurves] = {};  // queries in each
};

uint32_t truth_depth(uint64_t rows) {
  // A curve for k is of use where the rows hold k many times over.
  uint32_t depth = 0;
  for (const uint32_t k : kKs) {
    if (rows >= uint64_t{k} * 4 + 1) depth = k;
  }
  return depth;
}

/// Distances of the k true neighbours of the first `count` queries, [count, k].
Array<float> nearest(const Dataset& dataset, const Codes& codes, const Sample& sample, uint32_t count,
                     uint32_t k, int32_t device, const DevicePlacement* placed, const Execution& execution) {
  Array<float> distances(execution.memory, size_t{count} * k);
  if (device >= ANN_DEVICE_CUDA && sample.held_out.empty()) {
    MatrixView first = sample.vectors;
    first.rows = count;
    Array<uint64_t> ids(execution.memory, distances.size());
    search_exact_on_device(dataset, QueryBlock(dataset, first, execution), sample.masked, device,
                           {k, ids.data(), distances.data(), nullptr, nullptr}, execution, placed);
  } else if (codes.scaled() != nullptr || !sample.held_out.empty()) {
    // One step for all rows does not tell the nearest, and comparing all rows as stored for each query would be slower.
    MatrixView first = sample.vectors;
    first.rows = count;
    Array<uint64_t> ids(execution.memory, distances.size());
    search_exact(dataset, QueryBlock(dataset, first, execution), {{}, sample.held_out, sample.masked},
                 {k, ids.data(), distances.data(), nullptr, nullptr}, execution);
  } else {
    nearest_by_codes(dataset, codes, *sample.queries, 0, count, sample.masked, k, distances.data(),
                     execution);
  }
  return distances;
}

void find_truth(const Dataset& dataset, const Codes& codes, Sample& sample, int32_t device,
                const DevicePlacement* placed, const Execution& execution) {
  sample.truth =
      nearest(dataset, codes, sample, sample.count, sample.depth, device, placed, execution.span(0, 0.2));
  execution.advance(0.2);
  if (sample.deep == sample.depth) return;
  sample.deep_truth = nearest(dataset, codes, sample, sample.deep_count, sample.deep, device, placed,
                              execution.span(0.2, 0.3));
  execution.advance(0.3);
}

}  // namespace

void Calibration::measure(const Segment& segment, int32_t device, DevicePlacement* placed,
                          const Execution& execution) {
  const Dataset& dataset = segment.dataset;
  const Codes& codes = segment.codes;
  const QuerySample& given = segment.queries;
  const uint64_t seed = segment.seed;
  const uint32_t deep = truth_depth(dataset.rows());
  const bool plays_rows = given.count() == 0;
  uint32_t count = std::min(plays_rows ? dataset.rows() / 4 : given.count(), kSampleMax[0]);
  if (deep == 0 || count == 0) return;
  const Allocator& memory = execution.memory;

  // The queries: a sample of the rows, copied together, or the caller's. Rows are shuffled, so that
  // the first of them are a fair sample too. The copies are packed, since borrowed rows may lie far apart.
  Array<uint32_t> masked(memory, plays_rows ? count : 0);
  RowSet held_out;
  const size_t row_bytes = size_t{dataset.dim()} * element_bytes(dataset.element());
  Array<uint8_t> copied(memory, plays_rows ? checked_product(count, row_bytes) : 0);
  MatrixView vectors{copied.data(), count, dataset.dim(), dataset.element(), row_bytes};
  if (!plays_rows) {
    vectors = given.first(count);
  } else {
    const DrawnRows drawn = draw_queries(codes, segment.graph, count, dataset.rows() / kHeldOutShare, seed,
                                         kSampleStream, execution);
    count = static_cast<uint32_t>(drawn.rows.size());
    std::copy(drawn.rows.begin(), drawn.rows.end(), masked.data());
    vectors.rows = count;
    if (!drawn.copies.empty()) held_out = RowSet(memory, dataset.rows());
    for (const uint32_t row : drawn.copies) held_out.insert(row);
    for (uint32_t i = count; i > 1; --i)
      std::swap(masked[i - 1], masked[random_below(i, seed, kSampleStream + 1, i)]);
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(copied.data() + i * row_bytes, dataset.view().row(masked[i]), row_bytes);
  }
  const QueryBlock queries(dataset, vectors, execution);
  Sample sample{vectors,
                &queries,
                plays_rows ? masked.data() : nullptr,
                held_out.view(),
                count,
                std::min(count, kSampleMax[KnobCurves::kCurves - 1]),
                std::min(deep, kKs[2]),
                deep,
                {},
                {},
                {}};
  for (uint32_t c = 0; c < KnobCurves::kCurves; ++c) sample.sizes[c] = std::min(count, kSampleMax[c]);
  find_truth(dataset, codes, sample, device, placed, execution);

  std::vector<SearchSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(dataset, codes, segment.graph, memory);
  Array<double> shares(memory, size_t{KnobCurves::kCurves} * kSampleMax[0]);
  for (const uint32_t k : kKs) {
    if (k <= deep) curves_.add(k);
  }
  std::unique_ptr<DeviceWalks> walks;
  if (placed != nullptr && held_out.count() == 0)
    walks = std::make_unique<DeviceWalks>(segment, sample, *placed, execution);
  bool done[KnobCurves::kCurves] = {};
  uint32_t open = 0;  // the first curve that is not done
  for (double length = kBeamMin; open < curves_.count() && length <= ANN_BEAM_MAX;
       length = std::ceil(length * (length < kWideBeam ? kGrowth : kWideGrowth))) {
    const uint32_t beam = static_cast<uint32_t>(length);
    uint32_t end = open;
    while (end < curves_.count() && kKs[end] <= beam) ++end;
    if (end == open) continue;
    const bool costs_more = walk_work(segment.graph, codes.walk_stride(), beam) > exact_work(dataset);
    const auto walk = [&](uint32_t low, uint32_t high) {
      if (walks != nullptr && beam <= kDeviceBeamMax)
        walks->walk(low, high, beam, shares);
      else
        walk_all(segment, sample, low, high, beam, spaces, shares, execution);
    };
    const auto judge = [&](uint32_t c) {
      return mean_of(shares.data() + c * size_t{kSampleMax[0]}, sample.sizes[c]);
    };
    // Where a query's ten answers are all found or none, since walks come to the right place or do not, a sample
    // that is lucky by one standard error is so by far more than kLeeway.
    const auto doubt = [&](double error) {
      const bool all_or_none = curves_.count() > 1 && judge(1).error > kAllOrNone;
      return all_or_none ? std::max(error, 3 * error - kLeeway) : error;
    };
    walk(open, end);
    for (uint32_t c = open; c < end; ++c) {
      Recall recall = judge(c);
      // A few queries that all fare well say little of those that a walk does not reach at all.
      if (recall.mean >= KnobCurve::kEnough && kKs[c] <= sample.depth && sample.sizes[c] < count &&
          !done[c]) {
        sample.sizes[c] = count;
        walk(c, c + 1);
        recall = judge(c);
      }
      if (kKs[c] == 10) recall_max_ = std::max(recall_max_, static_cast<float>(recall.mean));
      if (!done[c]) done[c] = curves_[c].add(beam, recall.mean, doubt(recall.error));
      done[c] = done[c] || beam >= kBeamPerK * kKs[c] || beam >= dataset.rows() ||
                (costs_more && beam >= always_tried(kKs[c]));
    }
    while (open < curves_.count() && done[open]) ++open;
    execution.advance(0.3 + 0.7 * open / KnobCurves::kCurves);
  }
}

uint32_t Calibration::beam(uint32_t k, float recall) const {
  double length = 0;
  if (empty()) {
    length = 4.0 * k + 64;
    for (double miss = 0.05; miss > 1 - recall && length < ANN_BEAM_MAX; miss /= 2) length *= 2;
  } else {
    length = curves_.knob(k, recall);
  }
  // A floor for queries that differ a little from the rows: it costs some microseconds.
  const double wanted = std::clamp(std::ceil(length), double{kBeamMin}, double{ANN_BEAM_MAX});
  return std::max(static_cast<uint32_t>(wanted), std::min<uint32_t>(k, ANN_BEAM_MAX));
}

float Calibration::recall(uint32_t k, uint32_t beam) const {
  // A shorter beam than any that was measured stands for what the shortest does.
  const uint32_t least = this->beam(k, 0);
  const uint32_t length = std::max(beam, least);
  if (this->beam(k, 1) <= length) return 1;
  // Halves the interval of the miss's logarithm, along which beams grow evenly.
  double reached = 0;  // -log(miss) of a recall that needs no longer beam
  double beyond = -std::log(miss_of(1));
  for (uint32_t turn = 0; turn < 20; ++turn) {
    const double middle = (reached + beyond) / 2;
    const float wanted = static_cast<float>(1 - std::exp(-middle));
    (this->beam(k, wanted) <= length ? reached : beyond) = middle;
  }
  return static_cast<float>(1 - std::exp(-reached));
}

uint64_t calibration_bytes(uint32_t dim, size_t stride, uint64_t rows, uint32_t threads) {
  const uint32_t deep = truth_depth(rows);
  const uint32_t depth = std::min(deep, kKs[2]);
  const uint64_t count = std::min<uint64_t>(kSampleMax[0], rows / 4 + 1);
  const uint64_t beam = std::min<uint64_t>(ANN_BEAM_MAX, 2 * rows + 1024);
  const uint64_t space = rows / 8 + 8192 * 4 + dim * 4ull + stride + 4096 + beam * 32;
  const uint32_t few = kSampleMax[KnobCurves::kCurves - 1];
  const uint64_t judge = std::max(nearest_by_codes_bytes(stride, kSampleMax[0], depth, threads),
                                  nearest_by_codes_bytes(stride, few, deep, threads));
  return count * (depth * 4 + dim * 8ull + 128) + uint64_t{few} * deep * 4 +
         KnobCurves::kCurves * kSampleMax[0] * 8 + std::max(threads * space, judge) + 64 * kAlignment;
}

}  // namespace gannet

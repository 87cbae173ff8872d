#include "tune/device_calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "search/exact_cuda.h"
#include "search/host_batch.h"
#include "search/queries.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSampleStream = 0x64657669636573;  // "devices"
constexpr uint32_t kSampleMax = 2048;
constexpr uint32_t kHiddenMin = 1024;  // rather so many masked than fewer hidden
constexpr uint32_t kSampleMin = 256;   // fewer say too little: all of 12 found is no recall of 1
constexpr uint32_t kGivenMin = 64;     // fewer queries of the caller likewise; the CPU's beam goes by them
constexpr uint32_t kFewAnswers = 10;
constexpr uint32_t kSomeAnswers = 100;
static_assert(4 * kSampleMin > 4 * kSomeAnswers);  // where there is a sample, so many answers are known
constexpr uint32_t kMoreAnswers = 300;
constexpr uint32_t kManyAnswers = 1000;
constexpr uint32_t kSomeSample = 1024;  // queries for so many answers, each of which averages more of them
constexpr uint32_t kManySample = 64;

// Along the slack. Where the graph bounds the recall, more slack than the last only reads more rows.
constexpr double kSlackMin = -0.10;
constexpr double kSlackMax = 0.60;
constexpr double kCautiousSlack = 0.1;  // without a calibration, as ann.h says it
constexpr double kFirstStep = 0.04;
constexpr double kStepMin = 0.004;
constexpr double kStepMax = 0.12;
constexpr double kFall = 0.6;     // of the miss's logarithm from point to point,
constexpr double kFallMax = 0.9;  // and where it fell by more another point is put between, or it is a cliff
constexpr double kGrowthMax = 1.7;  // of expansions likewise
constexpr double kRecallMin = 0.7;  // below, nobody asks how exactly it fell
constexpr double kEnough = 0.99901;
constexpr double kLastMiss = 0.0009;
constexpr uint32_t kCagraSampleMin = 100;
constexpr uint32_t kCagraListMin = 32;     // M is a multiple of it
constexpr uint32_t kCagraListProbe = 256;  // M with which p is looked for
constexpr uint32_t kCagraWidthTried = 8;   // p at most
constexpr double kCagraReached = 0.998;    // such a recall needs no more random rows
constexpr double kWidthGain = 0.7;         // of the miss is left at most where twice the rows help
constexpr double kStuck = 0.3;             // fall of the miss's logarithm for a growth of the expansions'
constexpr double kMargin = 1.15;           // times the miss of a hidden sample is what is promised
constexpr double kNearTheEnd = 0.003;
constexpr uint32_t kHiddenShare = 100;  // one of so many rows at most is hidden

constexpr uint32_t kNoCap = 4096;        // a walk of two lists that goes on for longer runs in a desert
constexpr double kExpansionsMax = 1024;  // mean of a walk that is still worth its time
constexpr double kCut = 1.05;            // times the mean of whole walks, where all of a batch walk at once
constexpr double kCapMin = 4;            // for means near zero
constexpr double kCutRecallMax = 0.991;  // beyond, blocks answer: the longest runs are not made twice

/// What is subtracted for the luck of a sample: its standard error, and more where three of them would not
/// stay within the 0.01 that the promise leaves.
double allow_for(double error) { return std::max(error, 3 * error - 0.01); }

struct Outcome {
  double recall;      // mean
  double error;       // its standard error
  double expansions;  // mean
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The share of neighbours that is missed. None of a sample is as good as half of one.
double miss_of(double recall) { return std::max(1 - recall, 5e-5); }

/// Who plays the queries: queries of the caller, or rows, hidden from the graph for as long as this lives.
/// Where those are too large a part of all rows, or the device has no room, they are only masked, each for
/// itself.
class Players {
 public:
  Players(const Segment& segment, DevicePlacement& placement, uint32_t count, const Allocator& memory)
      : placement_(placement), given_(segment.queries), dataset_(segment.dataset), count_(count) {
    const Dataset& dataset = segment.dataset;
    const uint64_t seed = segment.seed;
    if (!are_rows()) return;
    sorted_ = Array<uint32_t>(memory, count);
    rows_ = Array<uint32_t>(memory, count);
    random_strata(dataset.rows(), count, seed, kSampleStream, sorted_.data());
    std::sort(sorted_.data(), sorted_.data() + count);
    std::copy(sorted_.data(), sorted_.data() + count, rows_.data());
    // So that the first of them are a fair sample too.
    for (uint32_t i = count; i > 1; --i)
      std::swap(rows_[i - 1], rows_[random_below(i, seed, kSampleStream + 1, i)]);
    copied_ = Array<uint8_t>(memory, checked_product(count, row_bytes()));
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(copied_.data() + i * row_bytes(), dataset.view().row(rows_[i]), row_bytes());
    hidden_ = dataset.rows() / kHiddenShare >= count && placement.hide_rows(rows_.data(), count);
  }
  ~Players() {
    if (hidden_) placement_.show_rows();
  }
  Players(const Players&) = delete;

  uint32_t count() const { return count_; }
  bool are_rows() const { return given_.count() == 0; }
  bool are_hidden() const { return hidden_; }
  /// [count] what each must not find, or null.
  const uint32_t* masked() const { return rows_.data(); }
  /// The first of them as queries.
  MatrixView first(uint32_t most) const {
    if (!are_rows()) return given_.first(most);
    return {copied_.data(), most, dataset_.dim(), dataset_.element(), row_bytes()};
  }

  /// Whether a search for query `query` cannot find this row.
  bool hides(uint32_t query, uint32_t row) const {
    if (!are_rows()) return false;
    return row == rows_[query] ||
           (hidden_ && std::binary_search(sorted_.data(), sorted_.data() + sorted_.size(), row));
  }

  /// What others will miss beyond the miss of the sample: queries as they come are farther from the rows
  /// than hidden rows, and the caller's are queries as they come. Masked rows leave holes, which costs as
  /// much, but not by inner product, where a row is not what is nearest to it: 0.90 got 0.889 there. Less is
  /// allowed for then, where the promise's 0.01 is as much, and codes let recall grow no further.
  double beyond(double miss) const {
    if (!are_rows()) return 0;
    const double farther = (kMargin - 1) * miss;
    if (hidden_) return farther;
    return dataset_.metric() == ANN_METRIC_INNER_PRODUCT ? std::max(0.0, farther - kNearTheEnd) : 0;
  }

 private:
  size_t row_bytes() const { return size_t{dataset_.dim()} * element_bytes(dataset_.element()); }

  DevicePlacement& placement_;
  const QuerySample& given_;
  const Dataset& dataset_;
  uint32_t count_;
  Array<uint32_t> rows_;    // [count] in random order, where rows play
  Array<uint32_t> sorted_;  // [count] likewise
  Array<uint8_t> copied_;   // [count, row_bytes] likewise
  bool hidden_ = false;
};

/// Players for a calibration: none where there are too few to tell.
uint32_t count_players(const Dataset& dataset, const QuerySample& given) {
  if (dataset.rows() < 4 * kSampleMin) return 0;
  if (given.count() != 0) return given.count() < kGivenMin ? 0 : std::min(given.count(), kSampleMax);
  const uint32_t hideable = dataset.rows() / kHiddenShare;
  return std::min(hideable >= kHiddenMin ? hideable : dataset.rows() / 4, kSampleMax);
}

/// The first of them as queries, with the distances of their true neighbours.
class Sample {
 public:
  Sample(const Segment& segment, const DevicePlacement& placement, const Players& players, uint32_t count,
         uint32_t depth, const Execution& execution)
      : players_(players),
        dataset_(segment.dataset),
        count_(std::min(count, players.count())),
        depth_(depth),
        truth_(execution.memory, size_t{count_} * depth) {
    judge(placement, execution);
  }

  uint32_t count() const { return count_; }
  const Players& players() const { return players_; }
  MatrixView view() const { return players_.first(count_); }

  /// A found row counts if it is no farther than the k-th true neighbour.
  double recall_of(uint32_t query, const float* found, uint32_t k) const {
    const float farthest = truth_[size_t{query} * depth_ + k - 1];
    const auto hits =
        std::count_if(found, found + k, [farthest](float distance) { return distance <= farthest; });
    return static_cast<double>(hits) / k;
  }

 private:
  /// Finds the true neighbours, and more than needed, since players are none. Where that was too few, the
  /// farthest stands for those that are missing, which promises less.
  void judge(const DevicePlacement& placement, const Execution& execution) {
    const Allocator& memory = execution.memory;
    const QueryBlock block(dataset_, view(), execution);
    const size_t bytes = dataset_.query_bytes();
    Array<uint8_t> packed(memory, checked_product(count_, bytes));
    for (uint32_t i = 0; i < count_; ++i) std::memcpy(packed.data() + i * bytes, block[i].values, bytes);
    const uint32_t spare = players_.are_hidden() ? depth_ / 32 + 8 : 0;
    const uint32_t wide = std::min(depth_ + 1 + spare, cuda::kExactMax);
    Array<uint32_t> rows(memory, size_t{count_} * wide);
    Array<float> distances(memory, rows.size());
    cuda::ExactRequest request{placement.device(),
                               dataset_.view(),
                               dataset_.rows(),
                               dataset_.metric(),
                               dataset_.norms(),
                               nullptr,
                               packed.data(),
                               block.norms(),
                               count_,
                               wide,
                               rows.data(),
                               distances.data()};
    cuda::lend_rows(placement.view(), &request);
    cuda::search_exact(request, execution);
    for (uint32_t query = 0; query < count_; ++query) {
      float* truth = truth_.data() + size_t{query} * depth_;
      uint32_t kept = 0;
      for (uint32_t i = 0; i < wide && kept < depth_; ++i) {
        if (!players_.hides(query, rows[size_t{query} * wide + i]))
          truth[kept++] = distances[size_t{query} * wide + i];
      }
      std::fill(truth + kept, truth + depth_, kept > 0 ? truth[kept - 1] : 0);
    }
  }

  const Players& players_;
  const Dataset& dataset_;
  uint32_t count_;
  uint32_t depth_;
  Array<float> truth_;  // [count, depth] distances of the true neighbours
};

/// A sample in a space for k answers, to be walked again and again.
class Walks {
 public:
  Walks(const Sample& sample, const Segment& segment, DevicePlacement& placement, uint32_t k,
        const Execution& execution)
      : sample_(sample), execution_(execution), k_(k), workspace_(placement, sample.count(), k) {
    used_ = std::min(sample.count(), workspace_->capacity());
    fill_workspace(segment, sample.view(), 0, used_, *workspace_, execution);
  }

  Outcome run(const SearchPlan& plan) {
    execution_.check();
    workspace_->run(used_, plan, {sample_.players().masked(), sample_.players().are_hidden()}, false);
    ++runs;
    double sum = 0;
    double squares = 0;
    for (uint32_t query = 0; query < used_; ++query) {
      const double recall = sample_.recall_of(query, workspace_->distances() + size_t{query} * k_, k_);
      sum += recall;
      squares += recall * recall;
    }
    const double mean = sum / used_;
    const double variance = std::max(0.0, squares / used_ - mean * mean);
    return {mean, std::sqrt(variance / std::max(1u, used_ - 1)),
            static_cast<double>(workspace_->expansion_count()) / used_};
  }

  /// Of the recall that the sample got, what is promised before luck.
  double promise(double recall) const { return recall - sample_.players().beyond(1 - recall); }

  uint32_t runs = 0;

 private:
  const Sample& sample_;
  const Execution& execution_;
  uint32_t k_;
  uint32_t used_ = 0;  // of the queries
  DeviceWorkspaceLease workspace_;
};

/// Takes the memory that walks need before any runs: taking it waits for what does.
void reserve_workspaces(DevicePlacement& placement, uint32_t count) {
  std::vector<std::unique_ptr<DeviceWorkspaceLease>> workspaces;
  for (uint32_t table = 0; table < DeviceCalibration::kTables; ++table)
    workspaces.push_back(std::make_unique<DeviceWorkspaceLease>(placement, count, kSomeAnswers));
}

}  // namespace

/// Finds the points of one curve. The slack grows in steps after which the miss has fallen to about half;
/// miss and expansions are expected to go on as between the last two points.
class DeviceCalibration::Tracer {
 public:
  Tracer(Walks& walks, uint32_t warps, Curve* curve) : walks_(walks), warps_(warps), curve_(*curve) {}

  void run() {
    double step = kFirstStep;
    for (double slack = kSlackMin; slack <= kSlackMax && curve_.count < kPoints; slack += step) {
      const Trial trial = measure(slack, kNoCap);
      add(trial);
      if (trial.recall >= kEnough || trial.expansions > kExpansionsMax || is_stuck(trial)) break;
      before_ = last_;
      last_ = trial;
      ++trials_;
      step = next_step(step);
    }
    while (curve_.count < kPoints && refine()) {
    }
  }

  /// The points of another curve, whose walks are whole, with walks that are cut.
  void cut(const Curve& whole) {
    for (uint32_t i = 0; i < whole.count && (i == 0 || last_.worth < kCutRecallMax); ++i) {
      last_ = measure(whole.points[i].slack, kCapMin + kCut * whole.points[i].expansions);
      add(last_);
    }
  }

 private:
  struct Trial {
    double slack = 0;
    double recall = 0;  // mean
    double worth = 0;   // what may be promised of it
    double expansions = 0;
    double cap = kNoCap;
  };

  Trial measure(double slack, double cap) {
    const Outcome outcome =
        walks_.run(TwoListsPlan{static_cast<float>(slack), static_cast<uint32_t>(cap), warps_});
    const double worth = walks_.promise(outcome.recall) - allow_for(outcome.error);
    return {slack, outcome.recall, worth, outcome.expansions, cap};
  }

  /// Whether more work has brought next to nothing.
  bool is_stuck(const Trial& trial) const {
    if (curve_.count < 3 || trial.expansions < 1.2 * last_.expansions) return false;
    return std::log(miss_of(last_.recall) / miss_of(trial.recall)) <
           kStuck * std::log(trial.expansions / last_.expansions);
  }

  double next_step(double step) const {
    if (trials_ < 2) return step;
    const double fall = std::log(miss_of(before_.recall) / miss_of(last_.recall));
    // The last point is to be just there: slack costs most at the end.
    const double needed = std::log(miss_of(last_.recall) / kLastMiss);
    const double wanted = fall > 0 ? step * std::min(kFall, std::max(needed, 0.1)) / fall : kStepMax;
    const double growth = std::log(std::max(1.0, last_.expansions) / std::max(1.0, before_.expansions));
    const bool is_costly = growth > 0 && last_.recall > kRecallMin;
    const double allowed = is_costly ? step * std::log(kGrowthMax) / growth : kStepMax;
    return std::clamp(std::clamp(std::min(wanted, allowed), step / 4, step * 2), kStepMin, kStepMax);
  }

  /// A point that promises no more than one before it is none.
  void add(const Trial& trial) {
    Point* end = curve_.points + curve_.count;
    Point* place = std::find_if(curve_.points, end, [&](const Point& p) { return p.slack > trial.slack; });
    if (place != curve_.points && place[-1].recall >= trial.worth) return;
    if (place != end && place->recall <= trial.worth) return;
    std::copy_backward(place, end, end + 1);
    *place = {trial.worth, trial.slack, trial.cap, trial.expansions};
    ++curve_.count;
  }

  /// Measures halfway between two points where the miss fell by too much; false where there are none.
  bool refine() {
    for (uint32_t i = 1; i < curve_.count; ++i) {
      const Point& low = curve_.points[i - 1];
      const Point& high = curve_.points[i];
      const bool steep = std::log(miss_of(low.recall) / miss_of(high.recall)) > kFallMax;
      if (!steep || high.recall < kRecallMin || high.slack - low.slack < 2 * kStepMin) continue;
      const uint32_t count = curve_.count;
      add(measure((low.slack + high.slack) / 2, kNoCap));
      if (curve_.count > count) return true;
    }
    return false;
  }

  Walks& walks_;
  uint32_t warps_;
  Curve& curve_;
  Trial before_;
  Trial last_;
  uint32_t trials_ = 0;
};

void DeviceCalibration::measure(const Segment& segment, DevicePlacement& placement,
                                const Execution& execution) {
  const uint32_t count = count_players(segment.dataset, segment.queries);
  if (count == 0) return;
  execution.enter("calibrate");
  const Clock::time_point start = Clock::now();
  // The most answers of a sorted list of 32 rows.
  constexpr uint32_t kFewMost = 32;
  constexpr uint32_t kFewMostLossy = 16;
  static_assert(list_length(kFewMost, true) == kWideBlockListMax);
  static_assert(list_length(kFewMostLossy, false) == kWideBlockListMax);
  const bool lossless = segment.codes.lossless();
  const uint32_t few = lossless ? kFewMost : kFewMostLossy;

  const Players players(segment, placement, count, execution.memory);

  // Each procedure has a stream and a thread of its own: none keeps the device busy alone.
  reserve_workspaces(placement, count);
  const Sample wide(segment, placement, players, count, kFewAnswers, execution);
  const Sample some(segment, placement, players, std::min(count, kSomeSample), kSomeAnswers, execution);
  cost_.judge_seconds = seconds_since(start);
  Execution alone = execution;
  alone.threads = 1;
  const bool has_many = segment.rows() > 4 * kManyAnswers && blocks_serve(placement, kManyAnswers);
  Curve many[2];
  Table& at_once = tables_[kTables];
  at_once.walkers = {1, true};
  Execution each = execution;
  each.threads = std::min(execution.threads, kTables + 1);
  parallel_for(each, kTables + 1, 1, [&](uint64_t task, uint64_t, uint32_t) {
    const Clock::time_point begin = Clock::now();
    uint32_t runs = 0;
    if (task == kTables) {
      if (!has_many) return;
      const Sample sample(segment, placement, players, kManySample, kManyAnswers, execution);
      for (const uint32_t k : {kManyAnswers, kMoreAnswers}) {
        Curve& curve = many[k == kManyAnswers ? 1 : 0];
        Walks walks(sample, segment, placement, k, alone);
        curve.k = k;
        Tracer(walks, 8, &curve).run();
        runs += walks.runs;
      }
    } else {
      Table& table = tables_[task];
      table.walkers = {kWarps[task], false};
      for (const uint32_t k : {1u, kFewAnswers, few, kSomeAnswers}) {
        const bool serves = table.walkers.warps == 1    ? two_lists_serve(k, lossless)
                            : table.walkers.warps == 16 ? k <= few && blocks_serve(placement, k)
                                                        : k != few && blocks_serve(placement, k);
        if (serves) table.curves[table.count++].k = k;
        if (task == 0 && serves && cuda::resident_queries(placement, k) > 0)
          at_once.curves[at_once.count++].k = k;
      }
      // The most answers first: the space need not grow then.
      for (uint32_t place = table.count; place-- > 0;) {
        Curve& curve = table.curves[place];
        Walks walks(curve.k > kFewAnswers ? some : wide, segment, placement, curve.k, alone);
        Tracer(walks, table.walkers.warps, &curve).run();
        if (task == 0 && place < at_once.count) Tracer(walks, 1, &at_once.curves[place]).cut(curve);
        runs += walks.runs;
      }
    }
    cost_.seconds[task] = seconds_since(begin);
    cost_.runs[task] = runs;
  });
  if (!has_many) return;
  for (const Curve& curve : many) tables_[1].curves[tables_[1].count++] = curve;
}

/// The point where the curve reaches `recall`. Between points the logarithm of the miss is in proportion
/// to the slack, unless it falls off a cliff there: rows in islands by inner product are all about as far
/// as each other, and none is found below a slack of 0. Halfway up such a cliff a search that was asked for
/// 0.95 found 0.10.
bool DeviceCalibration::Curve::find(double recall, Point* point) const {
  uint32_t above = 0;
  while (above < count && points[above].recall < recall) ++above;
  if (above == count) return false;
  *point = points[above];
  if (above == 0) return true;
  const Point& below = points[above - 1];
  const double fall = std::log(miss_of(below.recall) / miss_of(points[above].recall));
  if (fall > kFallMax) return true;
  point->move_to(below, 1 - std::log(miss_of(below.recall) / miss_of(recall)) / fall);
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
  point->move_to(low, 1 - part);
  return true;
}

void DeviceCalibration::Point::move_to(const Point& other, double part) {
  slack += part * (other.slack - slack);
  expansions_max *= std::pow(other.expansions_max / expansions_max, part);
}

Effort DeviceCalibration::Point::effort() const {
  return {slack, static_cast<uint32_t>(std::ceil(expansions_max)), 0};
}

std::optional<Effort> DeviceCalibration::find(Walkers walkers, uint32_t k, float recall) const {
  for (const Table& table : tables_) {
    Point point;
    if (table.walkers == walkers && table.find(k, recall, &point)) return point.effort();
  }
  return std::nullopt;
}

Effort DeviceCalibration::nearest(uint32_t warps, uint32_t k, float recall) const {
  const Walkers walkers = {warps, false};
  if (const auto effort = find(walkers, k, recall)) return *effort;
  for (const Table& table : tables_) {
    if (table.walkers != walkers || table.count == 0) continue;
    uint32_t place = 0;
    while (place + 1 < table.count && table.curves[place].k < k) ++place;
    const Curve& curve = table.curves[place];
    Point point;
    if (curve.find(recall, &point)) return point.effort();  // of a smaller k
    if (curve.count > 0) return curve.points[curve.count - 1].effort();
  }
  Point cautious;
  cautious.slack = kCautiousSlack;
  cautious.expansions_max = kNoCap;
  for (double miss = 0.05; miss > 1 - recall && cautious.slack < kSlackMax; miss /= 2)
    cautious.slack += kCautiousSlack / 2;
  return cautious.effort();
}

namespace {

/// The p of a search of CAGRA's beyond which its random rows reach no more islands.
uint32_t find_width(Walks& walks, const PlanCagra& plan) {
  uint32_t width = 1;
  double before = 0;
  for (uint32_t trial = 1; trial <= kCagraWidthTried; trial *= 2) {
    const double recall = walks.run(plan(1, kCagraListProbe, trial)).recall;
    if (trial > 1 && miss_of(recall) > kWidthGain * miss_of(before)) break;
    width = trial;
    if (recall >= kCagraReached) break;
    before = recall;
  }
  return width;
}

}  // namespace

CagraCalibration calibrate_cagra(const Segment& segment, DevicePlacement& placement, bool has_width,
                                 const PlanCagra& plan, const Execution& execution) {
  const Dataset& dataset = segment.dataset;
  const QuerySample& given = segment.queries;
  const bool plays_rows = given.count() == 0;
  const uint32_t count =
      plays_rows ? std::min(dataset.rows() / kHiddenShare, kSampleMax) : count_players(dataset, given);
  if (count < (plays_rows ? kCagraSampleMin : kGivenMin)) return {};
  execution.enter("calibrate");
  const Players players(segment, placement, count, execution.memory);
  if (plays_rows && !players.are_hidden()) return {};
  uint32_t width = 1;
  Calibration::Curve curves[3];
  uint32_t curve_count = 0;
  for (const uint32_t k : {1u, 10u, kSomeAnswers}) {
    const uint32_t used = k == kSomeAnswers ? std::min(count, kSomeSample) : count;
    const Sample sample(segment, placement, players, used, k, execution);
    Walks walks(sample, segment, placement, k, execution);
    if (k == 1 && has_width) width = find_width(walks, plan);
    Calibration::Curve& curve = curves[curve_count++];
    curve.k = k;
    uint32_t list = round_up(std::max(k, kCagraListMin), kCagraListMin);
    for (bool more = true; more && list <= kCagraListMax;) {
      const Outcome outcome = walks.run(plan(k, list, width));
      more = !curve.add(list, walks.promise(outcome.recall), allow_for(outcome.error)) &&
             outcome.recall < kEnough;
      list = round_up(list + std::max(kCagraListMin, list / 3), kCagraListMin);
    }
  }
  // Random rows reach an island or do not, so that recall may jump from one M to the next.
  return {Calibration(curves, curve_count, 0, true), width};
}

}  // namespace gannet

#include "tune/trials.h"

#include <algorithm>
#include <cmath>

#include "base/measured_once.h"
#include "search/exact.h"
#include "search/exact_cuda.h"
#include "search/host_batch.h"
#include "tune/row_queries.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x64657669636573;  // "devices"
constexpr uint32_t kSentAtOnce = 512;                 // queries
constexpr uint32_t kHiddenMin = 1024;  // this many masked rows are better than fewer hidden ones
// Times the miss of a hidden sample is promised, more where much is missed, by inner product and where copies are
// hidden, too: .8 got .786 in two densities, and .8 and .9 .781 and .887 of a ball by product (1M rows of 32 columns),
// and of 1M rows of 100,000 codes 1.15 to 1.3 times as many of a hundred were missed.
constexpr double kMargin = 1.15;
constexpr double kProductMargin = 1.2;
constexpr double kCopiesMargin = 1.3;
constexpr double kMarginOfMiss = 0.25;
constexpr double kNearTheEnd = 0.003;
constexpr double kAllOrNone =
    0.6;  // of the variance of queries that find all or none, from which on they count as such:
constexpr double kRecallMin = 0.5;    // below, two lists find .8 behind a cliff of their curve,
constexpr double kRecallMax = 0.991;  // and beyond, too few of them did

/// The answers of exact search of which `depth` are left without held-out rows, each with `copies` copies at most: with
/// copies up to one row in sixteen is held out.
constexpr uint32_t exact_depth(uint32_t depth, uint32_t copies) {
  const uint32_t held_out = copies != 0 ? depth / 12 : depth / 32;
  return std::min(depth + 1 + held_out + 8 + copies, cuda::kExactMax);
}

}  // namespace

uint32_t count_calibration_queries(uint64_t rows, uint32_t given) {
  if (rows < 4 * kRowsMin) return 0;
  if (given != 0) return given < kGivenMin ? 0 : std::min(given, kDeviceQueriesMax);
  const uint64_t hideable = rows / kHiddenShare;
  return static_cast<uint32_t>(
      std::min<uint64_t>(hideable >= kHiddenMin ? hideable : rows / 4, kDeviceQueriesMax));
}

uint64_t ground_truth_device_bytes(const PlacedShape& shape, uint64_t count, uint32_t depth) {
  return cuda::exact_device_bytes(shape.rows, shape.dim, shape.metric, shape.element, count,
                                  exact_depth(depth, kCopiesMost));
}

CalibrationQueries::CalibrationQueries(const SearchTarget& target, uint32_t count, const Execution& execution)
    : placement_(target.device),
      given_(target.segment().queries),
      dataset_(target.segment().dataset),
      in_islands_(!target.segment().graph.heads.empty()),
      count_(count) {
  const Segment& segment = target.segment();
  if (!are_rows()) {
    count_ = std::min(count, given_.count());
    return;
  }
  if (placement_ != nullptr) alone_ = lock_checking(placement_->hiding(), execution);
  const Allocator& memory = execution.memory;
  const uint64_t most = placement_ != nullptr ? hideable_rows(dataset_.rows(), kHiddenWithCopies)
                                              : dataset_.rows() / kHeldOutShare;
  DrawnRows drawn =
      draw_queries(segment.codes, segment.graph, count, most, segment.seed, kSampleStream, execution);
  const uint64_t hideable = drawn.copies.empty() ? hideable_rows(dataset_.rows()) : most;
  have_copies_ = drawn.have_copies;
  count_ = static_cast<uint32_t>(drawn.rows.size());
  out_ = Array<uint32_t>(memory, drawn.rows.size() + drawn.copies.size());
  std::merge(drawn.rows.begin(), drawn.rows.end(), drawn.copies.begin(), drawn.copies.end(), out_.data());
  // So that the first of them are a fair sample too.
  shuffle(drawn, segment.seed, kSampleStream + 1, memory);
  rows_ = std::move(drawn.rows);
  kinds_ = std::move(drawn.kinds);
  CopiedRows copied = copy_as_queries(dataset_, segment.graph, rows_, segment.seed, execution);
  are_crowded_ = copied.are_crowded;
  copied_ = std::move(copied.values);
  const uint32_t out = static_cast<uint32_t>(out_.size());
  RowSet held_out(memory, dataset_.rows());
  for (const uint32_t row : out_) held_out.insert(row);
  if (placement_ != nullptr) hidden_ = hideable >= out && placement_->hide_rows(out_.data(), out);
  if (placement_ == nullptr || hidden_) held_out_ = std::move(held_out);
}

/// Once for all trials, and by a little pinned memory: to pin some for nine copies of 2,048 queries of GIST took 25 ms,
/// as long as a third of the walks, and for one copy 5.
void CalibrationQueries::send(const Segment& segment, const Execution& execution) {
  if (placement_ == nullptr) return;
  sent_ = cuda::room_for_queries(*placement_, count_);
  const DeviceWorkspaceLease lease(*placement_, std::min(count_, kSentAtOnce), 1);
  DeviceWorkspace& workspace = *lease;
  for (uint32_t first = 0; first < count_; first += workspace.capacity()) {
    const uint32_t some = std::min(workspace.capacity(), count_ - first);
    fill_workspace(segment, this->first(count_), first, some, workspace, execution);
    workspace.send(some, *sent_, first);
  }
}

CalibrationQueries::~CalibrationQueries() {
  if (hidden_) placement_->show_rows();
}

BatchAdmission CalibrationQueries::admission() const {
  BatchAdmission admission;
  if (placement_ == nullptr && are_held_out()) admission.held_out = held_out_.view();
  return admission;
}

MatrixView CalibrationQueries::first(uint32_t most) const {
  if (!are_rows()) return given_.first(most);
  return {copied_.data(), most, dataset_.dim(), query_element(dataset_.element()), dataset_.query_bytes()};
}

MatrixView CalibrationQueries::between(uint32_t first, uint32_t end) const {
  MatrixView some = this->first(end);
  some.data = some.row(first);
  some.rows = end - first;
  return some;
}

bool CalibrationQueries::hides(uint32_t query, uint32_t row) const {
  if (!are_rows()) return false;
  return row == rows_[query] || (row != kNoRow && held_out_.holds(row));
}

/// Queries to come are farther from the rows than hidden rows are; the caller's queries are as those to come.
/// Rows that are masked or held out leave holes, which costs as much, except by inner product, where a row is not
/// its own nearest: 0.90 gave 0.889 there. The margin is smaller then, where the promise's 0.01 is as much, and
/// codes bound recall.
double CalibrationQueries::margin(double miss) const {
  if (!are_rows()) return 0;
  // Queries that find their own copies promise nothing: these are too many, or there was no memory to hide them.
  if (have_copies_ || (copies_most() != 0 && !are_held_out())) return 1;
  const bool by_product = dataset_.metric() == ANN_METRIC_INNER_PRODUCT;
  const double crowded = are_crowded_ ? miss : 0;
  if (hidden_) {
    const double times = copies_most() != 0 ? kCopiesMargin : by_product ? kProductMargin : kMargin;
    return crowded + (times - 1 + kMarginOfMiss * miss) * miss;
  }
  return crowded + (by_product ? std::max(0.0, (kMargin - 1) * miss - kNearTheEnd) : 0);
}

double CalibrationQueries::allow_for(const Outcome& outcome, uint32_t answers, bool all_or_none) const {
  // The first alone is found or not; in islands it goes as several do.
  const bool together = all_or_none || (answers == 1 && in_islands_);
  double error = outcome.error;
  if (together) {
    const double missed = (outcome.queries * (1 - outcome.recall) + 1) / (outcome.queries + 2);
    error = std::max(error, std::sqrt(missed * (1 - missed) / outcome.queries));
  }
  const bool few = !are_rows() && outcome.queries < kGivenFew && (answers <= kTogetherMost || in_islands_);
  const double least = few ? std::max(error, 1.0 / outcome.queries) : error;
  return std::max(error, errors_allowed(few && together) * least - kLeeway);
}

Sample::Sample(const SearchTarget& target, const CalibrationQueries& queries, uint32_t count, uint32_t depth,
               const Execution& execution, const Sample* known)
    : queries_(queries),
      dataset_(target.segment().dataset),
      count_(std::min(count, queries.count())),
      depth_(depth),
      truth_(execution.memory, size_t{count_} * depth) {
  const uint32_t first = known != nullptr ? std::min(known->count_, count_) : 0;
  for (uint32_t query = 0; query < first; ++query)
    std::copy_n(known->truth_.data() + size_t{query} * known->depth_, depth, &truth_[size_t{query} * depth]);
  if (first == count_) return;
  if (target.on_device())
    find_truth_on_device(first, *target.device, execution);
  else
    find_truth_on_host(first, execution);
}

void Sample::find_truth_on_host(uint32_t first, const Execution& execution) {
  float* const truth = truth_.data() + size_t{first} * depth_;
  Array<uint64_t> ids(execution.memory, size_t{count_ - first} * depth_);
  const QueryBlock block(dataset_, queries_.between(first, count_), execution);
  search_exact(dataset_, block, queries_.admission(), {depth_, ids.data(), truth, nullptr, nullptr},
               execution);
}

/// Finds more than needed, since held-out rows do not count. Where they were too few, the farthest replaces the missing
/// ones, which lowers the promise.
void Sample::find_truth_on_device(uint32_t first, const DevicePlacement& placement,
                                  const Execution& execution) {
  const Allocator& memory = execution.memory;
  const uint32_t count = count_ - first;
  const QueryBlock block(dataset_, queries_.between(first, count_), execution);
  const size_t bytes = dataset_.query_bytes();
  Array<uint8_t> packed(memory, checked_product(count, bytes));
  for (uint32_t i = 0; i < count; ++i) std::memcpy(packed.data() + i * bytes, block[i].values, bytes);
  const uint32_t searched = queries_.are_hidden() ? exact_depth(depth_, queries_.copies_most())
                                                  : std::min(depth_ + 1, cuda::kExactMax);
  Array<uint32_t> rows(memory, size_t{count} * searched);
  Array<float> distances(memory, rows.size());
  cuda::ExactRequest request{placement.device(), dataset_.view(),  dataset_.rows(),
                             dataset_.metric(),  dataset_.norms(), nullptr,
                             packed.data(),      block.norms(),    count,
                             searched,           rows.data(),      distances.data()};
  cuda::lend_rows(placement.view(), &request);
  cuda::search_exact(request, execution);
  for (uint32_t query = 0; query < count; ++query) {
    float* truth = truth_.data() + size_t{first + query} * depth_;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < searched && kept < depth_; ++i) {
      if (!queries_.hides(first + query, rows[size_t{query} * searched + i]))
        truth[kept++] = distances[size_t{query} * searched + i];
    }
    std::fill(truth + kept, truth + depth_, kept > 0 ? truth[kept - 1] : 0);
  }
}

double Sample::recall_of(uint32_t query, const float* found, uint32_t k) const {
  const auto hits = std::count_if(found, found + k,
                                  [limit = farthest(query, k)](float distance) { return distance <= limit; });
  return static_cast<double>(hits) / k;
}

Trials::Trials(const SearchTarget& target, const Sample& sample, uint32_t k, const Execution& execution)
    : target_(target), sample_(sample), execution_(execution), k_(k), used_(sample.count()) {
  if (target.on_device()) {
    workspace_ = std::make_unique<DeviceWorkspaceLease>(*target.device, used_, k, sample.queries().sent());
    used_ = std::min(used_, (*workspace_)->capacity());
  } else {
    ids_ = Array<uint64_t>(execution.memory, size_t{used_} * k);
    distances_ = Array<float>(execution.memory, size_t{used_} * k);
  }
}

const float* Trials::answer_on_host(const Procedure& procedure, const SearchPlan& plan,
                                    uint64_t* expansions) {
  SearchCounts counts;
  SearchBatch batch{sample_.view(), {k_, ids_.data(), distances_.data(), nullptr, nullptr}};
  batch.admission = sample_.queries().admission();
  procedure.run_on_host(target_.host, batch, plan, execution_.span(0, 0), &counts);
  *expansions = counts.expansions;
  return distances_.data();
}

Outcome Trials::run(const Procedure& procedure, const SearchPlan& plan) {
  execution_.check();
  ++runs;
  uint64_t expansions = 0;
  if (target_.on_device()) {
    DeviceWorkspace& workspace = **workspace_;
    workspace.run(used_, plan, {sample_.queries().masked(), sample_.queries().are_hidden()}, false);
    found_ = workspace.distances();
    expansions = workspace.expansion_count();
  } else {
    found_ = answer_on_host(procedure, plan, &expansions);
  }
  expansions_ = static_cast<double>(expansions) / used_;
  return first_of(std::min(k_, sample_.depth()));
}

Outcome Trials::first_of(uint32_t answers) const {
  const auto stands = queries().are_hidden() ? stands_for_new : stands_for_new_if_masked;
  if (queries().have_kinds() && !queries().have_both_kinds(used_)) return {0, 0, expansions_, 0, used_};
  const Outcome unlike = first_of(answers, stands);
  if (!queries().have_kinds()) return unlike;
  const Outcome like = first_of(answers, stands_for_copies);
  return unlike.recall - unlike.error <= like.recall - like.error ? unlike : like;
}

Outcome Trials::first_of(uint32_t answers, bool (*stands)(CopiesOf)) const {
  double sum = 0;
  double squares = 0;
  uint32_t counted = 0;
  for (uint32_t query = 0; query < used_; ++query) {
    if (!stands(queries().kind(query))) continue;
    const double recall = sample_.recall_of(query, found_ + size_t{query} * k_, answers);
    sum += recall;
    squares += recall * recall;
    ++counted;
  }
  const double mean = sum / std::max(1u, counted);
  const double variance = std::max(0.0, squares / std::max(1u, counted) - mean * mean);
  const double error = std::sqrt(variance / std::max(1.0, counted - 1.0));
  return {mean, error, expansions_, variance, counted};
}

bool Outcome::is_all_or_none() const {
  return recall > kRecallMin && recall < kRecallMax && variance > kAllOrNone * recall * (1 - recall);
}

}  // namespace gannet

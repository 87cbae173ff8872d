// Trials: a sample of queries that is answered by one plan after another, on the CPU or on a device, and the recall
// of the answers.
//
//   CalibrationQueries  queries of the caller that the segment keeps, or held-out rows, which serve as queries and
//                       are left out of searches for the lifetime of the object (segment/row_set.h)
//   Sample              the first of them, with the distances of their true neighbours
//   Trials              a sample, ready to be answered for k again and again
//
// A row that is in the graph is not a valid query: its own edges lead to its neighbours. On a device edges go past
// held-out rows (place/bypass_edges_cuda.h), so that the graph is to them as to queries that it has never seen; in
// sets of which they would be more than a hundredth, and more than 1,024, each is only masked for itself. On the CPU
// they are held out all at once, neither expanded nor returned; the holes that they leave cost a little recall, so
// that the promise is lower. Of rows of which most have copies some are held out with these and some are not, and of
// the two the lesser promise counts (graph/long_edges.h); where these are too many nothing is promised. Rounded rows
// are as they were before (tune/row_queries.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/execution.h"
#include "graph/long_edges.h"
#include "place/placed_shape.h"
#include "search/device_search.h"
#include "search/procedure.h"
#include "segment/row_set.h"
#include "tune/curves.h"

namespace gannet {

/// The most queries; fewer of the caller than kGivenMin, or rows than kRowsMin, are no calibration: all of 12 found
/// does not make a recall of 1.
inline constexpr uint32_t kDeviceQueriesMax = 2048;
inline constexpr uint32_t kHostQueriesMax = 256;
inline constexpr uint32_t kGivenMin = 64;
inline constexpr uint32_t kRowsMin = 256;
inline constexpr uint32_t kHiddenShare = 100;    // one row in this many at most is hidden on a device,
inline constexpr uint32_t kHiddenFew = 1024;     // or this many rows, if they are
inline constexpr uint32_t kHiddenFewShare = 16;  // at most one in this many
inline constexpr uint32_t kHiddenWithCopies = 8 * kHiddenFew;  // instead of kHiddenFew, with their copies

/// The most rows that a device may hide, without copies or, with another `few`, with them. 200 of 20,000 missed by
/// chance the queries without any hit: 1,000 queries had a recall of .977 where .99 was the target.
constexpr uint32_t hideable_rows(uint32_t rows, uint32_t few = kHiddenFew) {
  return std::max(rows / kHiddenShare, std::min(rows / kHiddenFewShare, few));
}

/// The number of queries for a calibration by two lists, of rows or of the caller's queries; 0 where they are too few.
uint32_t count_calibration_queries(uint64_t rows, uint32_t given);
inline uint32_t count_calibration_queries(const Dataset& dataset, const QuerySample& given) {
  return count_calibration_queries(dataset.rows(), given.count());
}

/// The result of a sample by one plan.
struct Outcome {
  double recall;      // mean
  double error;       // its standard error
  double expansions;  // mean
  double variance;    // of one query's recall
  uint32_t queries;

  /// Whether queries find all of several neighbours or none of them.
  bool is_all_or_none() const;
};

class CalibrationQueries {
 public:
  /// `count` of them, at most those that the segment keeps, or for which a device has memory. Where rows serve as
  /// queries, a placement has one such object at a time: others wait here.
  CalibrationQueries(const SearchTarget& target, uint32_t count, const Execution& execution);
  ~CalibrationQueries();
  CalibrationQueries(const CalibrationQueries&) = delete;

  uint32_t count() const { return count_; }
  bool are_rows() const { return given_.count() == 0; }
  /// Whether no query finds any of them; else each only does not find itself.
  bool are_held_out() const { return held_out_.count() != 0; }
  /// Whether a device's edges go past them.
  bool are_hidden() const { return hidden_; }
  /// [count] the row that each must not find, or null.
  const uint32_t* masked() const { return rows_.data(); }
  /// For searches of the CPU.
  BatchAdmission admission() const;
  /// The first of them as queries.
  MatrixView first(uint32_t most) const;
  /// Those from `first` up to `end`.
  MatrixView between(uint32_t first, uint32_t end) const;
  /// Whether some that have copies see them and others do not, of all and of the first of them, and which: of the two
  /// the lesser promise counts.
  bool have_kinds() const { return !kinds_.empty(); }
  bool have_both_kinds(uint32_t count) const { return gannet::have_both_kinds(kinds_.data(), count); }
  CopiesOf kind(uint32_t query) const { return kinds_.empty() ? CopiesOf::kNone : kinds_[query]; }
  /// The most copies of one of them that are held out with it.
  uint32_t copies_most() const { return out_.size() > rows_.size() ? kCopiesMost : 0; }
  /// Whether a search for query `query` cannot find this row.
  bool hides(uint32_t query, uint32_t row) const;
  /// Sends them to the device, before its first walk; nothing where the CPU walks.
  void send(const Segment& segment, const Execution& execution);
  /// Where they are then; null: the CPU walks.
  const SentQueries* sent() const { return sent_.get(); }

  /// The promise for a recall of the sample, before the allowance for luck.
  double promise(double recall) const { return recall - margin(1 - recall); }

  /// The allowance for the luck of a sample, of which the first `answers` count: its standard error, and more where
  /// three of them would not stay within the 0.01 that the promise leaves. Where queries find all or none, a sample
  /// with few misses is weak evidence: its error is that of one query more that missed. 200 rows with at most one miss
  /// promised .99, and 1,000 queries had .977 (20,000 rows of 24 columns by inner product); 64 rows without a miss
  /// promised .99 of 300 answers likewise. Of few queries of the caller three in their number may be missed unseen, as
  /// in tune/calibration.cpp: 64 of a million rows in 2,500 islands promised .999 of the first, and 10,000 got .947.
  /// Four are allowed for where these find all or none: of ten such samples of 64 one promised .963 and .9 where 10,000
  /// got .928 and .887.
  double allow_for(const Outcome& outcome, uint32_t answers, bool all_or_none) const;

 private:
  /// The share that queries to come miss beyond the miss of the sample.
  double margin(double miss) const;

  DevicePlacement* placement_;          // null: the CPU
  std::unique_lock<std::mutex> alone_;  // of those that hide rows of the placement
  const QuerySample& given_;
  const Dataset& dataset_;
  bool in_islands_;           // or copies: the graph has long edges
  bool are_crowded_ = false;  // most were rounded to places beside each other (tune/row_queries.h)
  uint32_t count_;
  Array<uint32_t> rows_;   // [count] in random order, where rows serve as queries
  Array<CopiesOf> kinds_;  // [count] likewise, or empty
  Array<uint32_t> out_;    // held-out rows: the same and their copies, ascending
  Array<uint8_t> copied_;  // [count, Dataset::query_bytes()] the rows' values
  RowSet held_out_;        // the same; empty where each is only masked for itself
  bool hidden_ = false;
  bool have_copies_ = false;  // that are neither held out nor masked
  std::unique_ptr<SentQueries> sent_;
};

class Sample {
 public:
  /// The first `count` queries, each with `depth` true neighbours, which exact search of the target finds, but for
  /// those of `known`, a sample of as many neighbours or more, or null.
  Sample(const SearchTarget& target, const CalibrationQueries& queries, uint32_t count, uint32_t depth,
         const Execution& execution, const Sample* known = nullptr);

  uint32_t count() const { return count_; }
  uint32_t depth() const { return depth_; }
  const CalibrationQueries& queries() const { return queries_; }
  MatrixView view() const { return queries_.first(count_); }

  /// The distance of a query's k-th true neighbour.
  float farthest(uint32_t query, uint32_t k) const { return truth_[size_t{query} * depth_ + k - 1]; }
  /// The share of its k true neighbours among k found ones: a row counts if it is no farther than the k-th.
  double recall_of(uint32_t query, const float* found, uint32_t k) const;

 private:
  /// Of queries from `first` on.
  void find_truth_on_host(uint32_t first, const Execution& execution);
  void find_truth_on_device(uint32_t first, const DevicePlacement& placement, const Execution& execution);

  const CalibrationQueries& queries_;
  const Dataset& dataset_;
  uint32_t count_;
  uint32_t depth_;
  Array<float> truth_;  // [count, depth] distances of the true neighbours
};

/// Device memory that the true neighbours of `count` queries take at most, beside a placement.
uint64_t ground_truth_device_bytes(const PlacedShape& shape, uint64_t count, uint32_t depth);

class Trials {
 public:
  Trials(const SearchTarget& target, const Sample& sample, uint32_t k, const Execution& execution);

  const CalibrationQueries& queries() const { return sample_.queries(); }

  /// Of all k, or of the first of them, whose true neighbours the sample has.
  Outcome run(const Procedure& procedure, const SearchPlan& plan);

  /// Of the last run the first `answers` of the k, as a search for so many would have them.
  Outcome first_of(uint32_t answers) const;

  uint32_t runs = 0;

 private:
  /// Of the queries that stand for some to come.
  Outcome first_of(uint32_t answers, bool (*stands)(CopiesOf)) const;
  const float* answer_on_host(const Procedure& procedure, const SearchPlan& plan, uint64_t* expansions);

  const SearchTarget target_;
  const Sample& sample_;
  const Execution& execution_;
  uint32_t k_;
  uint32_t used_ = 0;                                // of the queries
  const float* found_ = nullptr;                     // [used, k] distances of the last run
  double expansions_ = 0;                            // of it, mean
  std::unique_ptr<DeviceWorkspaceLease> workspace_;  // on a device
  Array<uint64_t> ids_;                              // [used, k] on the CPU
  Array<float> distances_;                           // [used, k] likewise
};

}  // namespace gannet

// DeviceCalibration: which slack and cap give which recall when a CUDA device walks with two lists.
//
// Measured when an index is first placed on a device of a class, as tune/calibration.h does it on the CPU: the curves
// of ten and of a hundred answers. Those of other numbers of answers take 36 ms more of 60,000 patches, 160 by product
// of 150,000 words (one H100). They are measured when a search first asks for such a number, when ann_index_place places
// an index and when one is saved: with all curves at the build, builds of these sets took 1.09 to 1.15 times as long. The
// queries are the caller's (segment/query_sample.h), or held-out rows, and exact search on the device finds the true
// neighbours. Held-out rows are hidden from the graph (place/bypass_edges_cuda.h), so that it is to them as to
// queries that it has never seen; in sets of which they would be more than a hundredth each is only masked
// for itself, which by L2 and cosine promises less than is kept. There is a table for each number of warps (a warp a
// query, a block of 8 or 16 warps a query, a warp a query with all queries resident), with a curve for each of some
// k, between which slacks are interpolated by log k. All have the same queries and one rule, so that the luck of a
// sample affects all alike.
//
// A curve is traced upwards in slack, in steps after which the miss, 1 - recall, has fallen to about half,
// from where it is large to where a thousandth is left, or to where more work hardly raises recall: some
// 12 walks of the sample, and of eight warps for a hundred answers a few more, where .999 of the first ten is not promised
// by then. The logarithm of the miss falls nearly in proportion to the slack, and so it is
// interpolated. Straight lines through recall itself ask for more slack than is needed; points three times as
// far apart put the tables up to 0.016 of recall apart at 100 answers.
//
// A walk ends by its slack, so that hard queries lose nothing; only walks that stray are capped, at 4 to 8 times the mean:
// a batch takes as long as its longest walk (850,000 patches, 10,000 queries at .99: 14.2 ms at a mean of 70
// expansions, since a few walks took 4,096). The exception are batches so small that every query has a warp at the
// same time: their walks are capped at 1.05 times the mean of uncapped ones. Capped walks with more slack find as
// much in less time, and the recall of the worst 1 % of queries is hardly lower (one NVIDIA H200, 1M SIFT rows,
// 1,000 queries: recall .9464 in 154 us without a cap at slack 0.030, in 99 us with a cap of 26 at slack 0.045;
// tests/bench/results.csv, "part=sweep; degree 64; k=10; batch 1000"). Batches of 10,000 walk longest walks first
// (search/starts_cuda.cu); there a cap gains little, and with 100 answers nothing.
//
// The promise of a point is the recall of the sample less one standard error, or less the excess of three over the
// 0.01 that the promise leaves; and where rows serve as queries, less 15 % of the miss, 20 % where a fifth is missed, and
// by inner product 5 % of it more: queries to come are a little farther from the rows than the rows from each other. At
// equal slack they missed 1.08 to 1.4 times as many, 1.15 as a rule, by all numbers of warps and for k of 1, 10 and 100
// (SIFT 1M). Where the slacks tried do not reach a target,
// or there are too few rows for a sample, another table answers, or the walk with one list, whose beams tune/tuning.h
// measures. An index keeps the tables for each class of devices that has measured them, and so do files (place/placement.h,
// storage/storage.h).
//
// Where codes are lossy, walks for 100 answers answer for fewer too (search/plan.h). Of rows with hundreds of copies so
// near that codes or edges do not tell them apart .99 of a hundred were found and .89 of the first, where .95 was the
// target. So the curve for 100 promises the least of the recalls of 100, of the first ten and of the first; readers of
// files before 1.7 know no other. For ten that is too strict: of 150,000 words the first ten of a walk for a hundred
// promise .999 at 171 expansions by one warp, the hundred nowhere in the 400 that are traced, and the first alone not
// since one of 1,024 queries that misses it leaves .998. So the same walks give a table a second curve, of their first
// ten, which counts where ten are asked for.
//
// Where rows lie in more islands than there are pivots, walks do not find them, however long. If a block's walks for
// ten miss half as much at most from covering heads, at one slack, these become the placement's pivots (place/pivots.h)
// before any curve is traced. Such a placement is of a class of its own: its curves are of no use to others. Of sets
// with long edges alone; builds of these take up to .1 s more. One NVIDIA H100, ten answers, by 512 pivots and by
// all candidates for covering heads (of fewer heads tests/bench/results.csv has figures):
//
//                                                10,000 queries, M/s              one query, us
//                                              .8          .95         .999          .99
//   1,000 clusters, 1,000,000 x 128        .52  11.0    .12   9.6    .12   3.7    960   41
//   5,000 clusters, 1,000,000 x 96        4.1   12.9   3.3   11.5    .14   2.4    180   55
//   3,000 islands, 1,000,000 x 128        6.6   11.1   3.2   11.1    .12   4.8    956   42
//   1,000 clusters, 300,000 x 768          .92   1.6    .08   1.6    .08   1.0  1,053   87
//   a tree of islands, 1,000,000 x 48    21.1   19.2  19.8   18.3   5.6   15.5    228   35
//   near copies, 1,000,000 x 128         11.8   11.6  10.3    9.8    .90   3.9    116   45
//   near duplicates, 1,000,000 x 128     10.2    9.5   7.3    7.2    .11    .11   971   81
//
// Samples: up to 2,048 queries for k of 1, and for 10 where rows have copies or lie in islands, so that a query finds
// all or none; else 1,024 up to 100, and 64 for 300 and 1,000: each averages more neighbours; all of them again where
// .999 of the first ten of a hundred hangs on it. With 2,048 for k of 10 the recall by so many warps differed by 0.002
// to 0.004 at 0.95 and 0.99, by 0.012 at 0.9 (SIFT 1M, k = 10), where two points of a block's curve are far from each
// other. Where walks compare 512 bytes a row or more, half of them serve: runs of gist are bound by memory. Cost: exact
// searches for 2,048 and for 64 queries, and some 150 runs, those of six curves side by side (eight took as long), of
// queries that are sent once. A curve of a warp ends where blocks answer, and for 100 answers at 400 expansions: its
// last runs took as long as all other curves. One NVIDIA H100, ms: gist 110 with queries pinned nine times, 92 sent
// once, 87 with half of them, 58 with curves for 100 that end; 60,000 patches 70, 59, -, 56. On another gist 48 before
// and 32 once all of a warp end and a fourth of the queries are pinned, words by product 35 and 25, patches 38 and 36.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/execution.h"
#include "place/placed_shape.h"
#include "search/procedure.h"

namespace gannet {

class DeviceCalibration {
 public:
  /// The curves of kFirstAnswers and kDeepAnswers, on queries of the caller that the segment keeps, or where there are
  /// none on rows.
  void measure(const SearchTarget& target, const Execution& execution);
  /// Those of other numbers of answers, beside these.
  void measure_others(const SearchTarget& target, const Execution& execution);

  /// Whether nothing is measured.
  bool empty() const;
  /// Whether no curve is left for measure_others. Those of a file are what there will be.
  bool is_whole() const { return is_whole_; }
  /// Whether searches for k answers need no other curve; those for none need nothing.
  bool serves(uint32_t k) const { return is_whole_ || k == 0 || k == kFirstAnswers || k == kDeepAnswers; }

  /// The warps that walk for a query. `resident`: one, in a batch in which every query has one at the same time.
  struct QueryWarps {
    uint32_t warps = 1;
    bool resident = false;
    bool operator==(const QueryWarps&) const = default;
  };

  /// The effort for k neighbours at a recall by so many warps; none where their table does not reach it.
  /// `doubt`: the end of a curve also serves a recall that lies so much beyond it.
  std::optional<Effort> find(QueryWarps query_warps, uint32_t k, float recall, double doubt = 0) const;

  /// The effort of walks for kDeepAnswers neighbours, k of which are wanted, at a recall of these.
  std::optional<Effort> find_deep(QueryWarps query_warps, uint32_t k, float recall, double doubt = 0) const;

  static constexpr uint32_t kCurves = 5;
  static constexpr uint32_t kPoints = 24;
  static constexpr uint32_t kFirstAnswers = 10;  // of walks for kDeepAnswers, with a curve of their own
  struct Point {
    double recall = 0;
    double slack = 0;
    double expansions_max = 0;
    double expansions = 0;  // mean
    void move_to(const Point& other, double part);
    Effort effort(uint32_t warps) const;
  };
  struct Curve {
    uint32_t k = 0;
    uint32_t count = 0;
    Point points[kPoints];
    bool find(double recall, double doubt, Point* point) const;
    /// Lets the recall rise at each point from that of the one before: no slack between two is promised more.
    void make_steps();
  };
  struct Table {
    QueryWarps query_warps = {};
    uint32_t count = 0;
    Curve curves[kCurves];
    Curve first;  // of kFirstAnswers, by the walks for kDeepAnswers; without points where codes are not lossy
    bool find(uint32_t k, double recall, double doubt, Point* point) const;
    bool find_deep(uint32_t k, double recall, double doubt, Point* point) const;
  };

  /// The time that measuring took.
  static constexpr uint32_t kTables = 3;  // that are traced; that of resident batches follows from the first
  static constexpr uint32_t kWarps[kTables] = {1, 8, 16};
  struct Cost {
    double ground_truth_seconds = 0;  // exact search for 100 neighbours
    double seconds[kTables] = {};     // of each table's curves, summed, which are traced several at a time
    uint32_t runs[kTables] = {};
  };
  const Cost& cost() const { return cost_; }

  /// The highest mean recall of ten answers seen; of this process alone.
  float recall_max() const { return recall_max_; }

  /// Leaves the tables alone.
  void forget_cost() { cost_ = {}; }
  /// The tables of kWarps, and that of resident batches.
  const Table& table(uint32_t place) const { return tables_[place]; }
  Table& table(uint32_t place) { return tables_[place]; }

  /// The effort of a number of warps, or where the table does not reach the recall the most that it has tried, for the
  /// nearest k; without a table a cautious rule.
  Effort nearest(uint32_t warps, uint32_t k, float recall) const;

 private:
  class TracedCurve;
  class CurvePoints;
  class CurveTracer;
  class Samples;
  struct Job;
  using FindPoint = bool (Table::*)(uint32_t k, double recall, double doubt, Point* point) const;
  std::vector<Job> plan_curves(const SearchTarget& target, std::span<const uint32_t> answers);
  bool give_known(Job& job) const;
  void trace(const SearchTarget& target, std::vector<Job>& jobs, Samples& samples,
             const Execution& execution);
  void choose_pivots(const SearchTarget& target, Samples& samples, const Execution& execution) const;
  void measure_curves(const SearchTarget& target, std::span<const uint32_t> answers,
                      const DeviceCalibration* known, const Execution& execution);
  std::optional<Effort> find_by(FindPoint find_point, QueryWarps query_warps, uint32_t k, float recall,
                                double doubt) const;

  Table tables_[kTables + 1];
  Cost cost_;
  float recall_max_ = 0;
  bool is_whole_ = true;
};

/// Device memory that `measure` takes at most beside a placement, with as many queries as are given, or none.
uint64_t device_calibration_bytes(const PlacedShape& shape, uint64_t given);

}  // namespace gannet

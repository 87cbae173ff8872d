#include "tune/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "graph/bypass_edges.h"
#include "graph/covering_heads.h"
#include "graph/long_edges.h"
#include "search/host_batch.h"
#include "search/exact.h"
#include "search/exact_by_codes.h"
#include "search/slack.h"
#include "tune/row_queries.h"
#include "tune/search_work.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x73616d706c65;  // "sample"
constexpr uint32_t kKs[KnobCurves::kCurves] = {1, 10, 100, 1000};
/// Queries of each curve: where they are like those to come, and where rows are masked.
constexpr uint32_t kSampleMax[KnobCurves::kCurves] = {1024, 1024, 256, 16};
constexpr uint32_t kSampleFew[KnobCurves::kCurves] = {256, 256, 128, 16};
constexpr uint32_t kTruthQueries =
    512;                               // whose true neighbours are found at once by comparing rows as stored
constexpr size_t kWideBytes = 512;     // of codes, from which on half of the sample is used
constexpr uint32_t kHiddenShare = 50;  // edges go past one row in this many at most (graph/bypass_edges.h),
constexpr uint32_t kHiddenMin = 512;   // if that gives this many
constexpr uint32_t kBeamPerK = 1000;   // no curve goes beyond this many times its k

constexpr uint32_t kStrayMost = 2;  // queries of a sample that may miss all answers unseen

constexpr double kAllOrNone = 0.3;  // of the variance of a recall whose answers are found together, or none

constexpr double kPartsAbove = 0.8;  // recall of the shortest beam, above which it is tried with fewer edges
constexpr uint32_t kTenthsTried[] = {8, 6, 5, 4, 3};  // of its edges
constexpr uint32_t kAllTenths = 10;

/// `tenths` of it, rounded up. Knobs of beams are whole numbers, as files hold them.
constexpr uint32_t tenths_of(uint32_t whole, uint32_t tenths) { return (whole * tenths + 9) / 10; }

/// Whether a part of the edges, one of those tried, has a knob of its own for k answers: of a short list several parts are
/// one, that of the largest.
constexpr bool has_own_knob(uint32_t k, size_t place) {
  const uint32_t shortest = shortest_beam(k);
  const uint32_t larger = place == 0 ? shortest : tenths_of(shortest, kTenthsTried[place - 1]);
  return tenths_of(shortest, kTenthsTried[place]) != larger;
}

/// The part of a row's edges, of kAllEdges, by which a curve reaches a recall. Rows have whole edges: a place between two
/// parts that were tried is one between the edges that these had.
uint32_t edges_part_of(const KnobCurve& curve, double recall, bool in_steps, uint32_t degree) {
  const double knob = curve.knob(recall);
  const uint32_t shortest = shortest_beam(curve.k);
  if (knob >= shortest) return kAllEdges;
  uint32_t above = kAllTenths;
  for (size_t i = 0; i < std::size(kTenthsTried); ++i) {
    if (!has_own_knob(curve.k, i)) continue;
    const uint32_t tenths = kTenthsTried[i];
    const double low = tenths_of(shortest, tenths);
    if (low > knob) {
      above = tenths;
      continue;
    }
    if (low == knob) return tenths_of(kAllEdges, tenths);
    if (in_steps) break;
    const double share = (knob - low) / (tenths_of(shortest, above) - low);
    const uint32_t from = edges_read(degree, tenths_of(kAllEdges, tenths));
    const uint32_t to = edges_read(degree, tenths_of(kAllEdges, above));
    const uint32_t edges = from + static_cast<uint32_t>(std::ceil((to - from) * share));
    return std::min(edges * kAllEdges / degree, tenths_of(kAllEdges, above));
  }
  return tenths_of(kAllEdges, above);
}

/// The recall of the largest part that was tried and is no more than one; 0 where there is none.
double edges_part_recall(const KnobCurve& curve, uint32_t part) {
  for (size_t i = 0; i < std::size(kTenthsTried); ++i) {
    if (has_own_knob(curve.k, i) && tenths_of(kAllEdges, kTenthsTried[i]) <= part)
      return curve.recall(tenths_of(shortest_beam(curve.k), kTenthsTried[i]));
  }
  return 0;
}

/// Beams that are tried however little a comparison of all rows takes, for callers that name the walk.
constexpr uint32_t always_tried(uint32_t k) { return 4 * k + 64; }

/// How beams grow from one that is tried to the next, up to a wide one and beyond.
constexpr double kGrowth = 1.17;
constexpr double kWideGrowth = 1.3;
constexpr uint32_t kWideBeam = 300;  // beyond, one for ten answers is rarely left
constexpr uint32_t kStage = 4;       // a walk is traced up to this many times its shortest beam

std::vector<uint32_t> beams_tried() {
  std::vector<uint32_t> beams;
  for (double length = kBeamMin; length <= ANN_BEAM_MAX;
       length = std::ceil(length * (length < kWideBeam ? kGrowth : kWideGrowth)))
    beams.push_back(static_cast<uint32_t>(length));
  return beams;
}

/// Queries of curve c where they are like those to come. Their true neighbours are found by codes of all columns.
uint32_t sample_most(const Codes& codes, uint32_t c) {
  const size_t bytes = codes.projected() != nullptr ? codes.stride() : codes.walk_stride();
  return bytes < kWideBytes ? kSampleMax[c] : std::max(kSampleMax[c] / 2, kSampleFew[c]);
}

/// Masked rows of curve c: more where rows lie in islands or have copies, and few may tell of a place that walks do not
/// reach. 3,000 queries of near copies got .972 of .9875 by a sample of 256, and .994 by 512.
uint32_t masked_most(const Segment& segment, uint32_t c) {
  return !segment.graph.heads.empty() && c < 2 ? 2 * kSampleFew[c] : kSampleFew[c];
}

/// The queries with their true neighbours: the first few to the full depth, all to kKs[2].
struct Sample {
  MatrixView vectors;
  const QueryBlock* queries;  // of them
  const SearchGraph& graph;   // that walks for them go over
  const uint32_t* masked;     // [count] or null
  RowSetView held_out;        // of all of them: hidden rows, or the copies of masked rows
  bool is_fair;               // queries are like those to come, and to the graph as if it had never seen them
  bool has_heads;             // rows lie in islands or have copies
  bool finds_copies;          // most queries have copies among the rows that walks find
  bool is_crowded;            // most queries are rows that were rounded to places beside each other
  const CopiesOf* kinds;      // [count] or null
  uint32_t count;
  uint32_t deep_count;
  uint32_t depth;
  uint32_t deep;
  uint32_t sizes[KnobCurves::kCurves];       // queries of each curve, no more than for the one before
  Array<float> truth;                        // [count, depth] distances of the true neighbours
  Array<float> deep_truth;                   // [deep_count, deep]
  bool by_nearer[KnobCurves::kCurves] = {};  // curves that are judged by fewer answers: see judge_by_nearer()

  /// A query that is a row does not find itself, nor held-out rows.
  Admission admission(uint32_t query) const {
    return {{}, held_out, masked != nullptr ? masked[query] : kNoRow};
  }
  /// By the caller.
  bool are_given() const { return masked == nullptr && held_out.empty(); }
  /// The distances of the true neighbours, at least k of them.
  const float* nearest(uint32_t query, uint32_t k) const {
    return k <= depth ? truth.data() + size_t{query} * depth : deep_truth.data() + size_t{query} * deep;
  }
  /// How many answers of a query curve c is judged by.
  uint32_t answers(uint32_t query, uint32_t c) const {
    return by_nearer[c] ? nearer_answers(query, c) : kKs[c];
  }
  /// The true neighbours that are nearer than the last one for curve c; all, where these are none or the curve before has
  /// them.
  uint32_t nearer_answers(uint32_t query, uint32_t c) const {
    const uint32_t k = kKs[c];
    const float* line = nearest(query, k);
    const auto nearer = static_cast<uint32_t>(std::lower_bound(line, line + k, line[k - 1]) - line);
    return nearer > (c == 0 ? 0 : kKs[c - 1]) ? nearer : k;
  }
};

/// Mean share of the true neighbours found, and the standard error of that mean.
struct Recall {
  double mean;
  double error;
  uint32_t count = 0;   // of queries
  double together = 0;  // the shares' variance, as a part of that of shares of 0 or 1

  /// Whether walks come to the right place or do not, rather than miss a few of each query's answers.
  bool is_all_or_none() const { return together > kAllOrNone; }
};

/// Of those queries that stand for some to come.
Recall mean_of(const double* shares, uint32_t count, const CopiesOf* kinds, bool (*stands)(CopiesOf)) {
  const auto counts = [&](uint32_t query) { return kinds == nullptr || stands(kinds[query]); };
  double sum = 0;
  uint32_t used = 0;
  for (uint32_t query = 0; query < count; ++query) {
    if (!counts(query)) continue;
    sum += shares[query];
    ++used;
  }
  const double mean = sum / std::max(1u, used);
  double variance = 0;
  for (uint32_t query = 0; query < count; ++query)
    if (counts(query)) variance += (shares[query] - mean) * (shares[query] - mean);
  const double most = mean * (1 - mean) * used;
  const double error = std::sqrt(variance / std::max(1u, used) / std::max(1u, used - 1));
  return {mean, error, used, most > 0 ? variance / most : 0};
}

/// By the lesser promise of both kinds of queries that have copies; nothing where one of them is missing.
Recall mean_of(const double* shares, uint32_t count, const Sample& sample) {
  const CopiesOf* kinds = sample.kinds;
  if (kinds == nullptr) return mean_of(shares, count, kinds, stands_for_new);
  if (!have_both_kinds(kinds, count)) return {0, 0, count};
  const auto stands = sample.masked != nullptr ? stands_for_new_if_masked : stands_for_new;
  const Recall unlike = mean_of(shares, count, kinds, stands);
  const Recall like = mean_of(shares, count, kinds, stands_for_copies);
  return unlike.mean - unlike.error <= like.mean - like.error ? unlike : like;
}

/// A found row counts if it is no farther than the k-th true neighbour: any of
/// several rows at equal distance will do. A search for k would re-rank only its own part of the `compared` rows.
double query_recall(const Sample& sample, uint32_t query, uint32_t k, const float* distances,
                    uint32_t compared, uint32_t beam) {
  const float farthest = sample.nearest(query, k)[k - 1];
  const uint32_t seen = std::min({compared, beam, rerank_count(k)});
  uint32_t hits = 0;
  for (uint32_t i = 0; i < seen; ++i) hits += distances[i] <= farthest ? 1 : 0;
  return static_cast<double>(std::min(hits, k)) / k;
}

/// The allowance subtracted from the mean recall of a sample, that of ten answers or more beside it. Future queries
/// miss at most kLeeway more than a sample that is lucky by three standard errors, four where few queries find all or
/// none. Masked rows promise too little, except where rows form islands or have copies, or a query's answers are all
/// found or none. Where few queries all reach it, so do all future ones except three or four in their number: of rows,
/// where they find all or none, as each does the first alone.
double doubt_of_luck(const Sample& sample, uint32_t k, const Recall& recall, const Recall& of_several) {
  const bool few =
      recall.count < kGivenFew && (k <= kTogetherMost || (sample.are_given() && sample.has_heads));
  const bool together = sample.has_heads || of_several.is_all_or_none();
  if (!sample.is_fair && !together) {
    const double unseen = few && k == 1 ? errors_allowed(false) / recall.count - kLeeway : 0;
    return std::max(recall.error, unseen);
  }
  const double error = few ? std::max(recall.error, 1.0 / recall.count) : recall.error;
  const double for_luck = errors_allowed(few && together && sample.is_fair) * error - kLeeway;
  return std::max(sample.is_fair ? 0.0 : recall.error, for_luck);
}

/// Rows that find their copies promise nothing, and crowded ones that queries miss twice as much
/// (tune/row_queries.h).
double doubt_of(const Sample& sample, uint32_t k, const Recall& recall, const Recall& of_several) {
  if (sample.finds_copies) return 1;
  return doubt_of_luck(sample, k, recall, of_several) + (sample.is_crowded ? 1 - recall.mean : 0);
}

/// The same of a walk that may start from groups of entry points (search/entry_groups.h): one that starts in the wrong
/// place misses all answers, and of few queries none may be seen that does. 1,000 queries of 200 clusters got .985 of
/// .999 by a sample of 256 without a miss.
double doubt_of(const Sample& sample, uint32_t k, const Recall& recall, const Recall& of_several,
                bool from_groups) {
  const double doubt = doubt_of(sample, k, recall, of_several);
  return from_groups ? std::max(doubt, double{kStrayMost} / recall.count) : doubt;
}

/// One for each thread.
void make_workspaces(const Segment& segment, const Sample& sample, const Execution& execution,
                     std::vector<SearchWorkspace>& workspaces) {
  workspaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    workspaces.emplace_back(segment.dataset, segment.codes, sample.graph, execution.memory)
        .begin(execution.monitor, segment.codes.walk_stride() + 64);
}

/// For walks that searches take with a beam that is asked for by recall.
void start_from_groups(std::vector<SearchWorkspace>& workspaces, bool from_groups = true) {
  for (SearchWorkspace& workspace : workspaces) workspace.from_groups = from_groups;
}

/// Whether the curve for k goes no further than a beam, whatever recall that has.
bool ends_curve(const Segment& segment, uint32_t k, uint32_t beam) {
  if (beam >= kBeamPerK * k || beam >= segment.rows()) return true;
  return beam >= always_tried(k) &&
         walk_work(segment.graph, segment.codes.walk_stride(), beam) > exact_work(segment.dataset, 1, k);
}

/// Whether the k-th true neighbour of most queries is as far as the tenth of them before it.
bool has_levels(const Sample& sample, uint32_t c) {
  const uint32_t k = kKs[c];
  uint32_t with_level = 0;
  for (uint32_t query = 0; query < sample.sizes[c]; ++query) {
    const float* line = sample.nearest(query, k);
    with_level += line[k - 1 - k / 10] == line[k - 1] ? 1 : 0;
  }
  return 2 * with_level > sample.sizes[c];
}

/// Where distances have few values a walk may find ten of the many rows that are tenth, and not the five that are nearer.
/// Searches for a number between two curves go by both. So a curve whose shortest lists find less of the nearer answers
/// than of all, by more than a promise leaves, is judged by the nearer ones. Of 3,000 rows with five ones among a hundred
/// columns searches for .95 of fifty got .888.
void judge_by_nearer(const Segment& segment, Sample& sample, const Execution& execution) {
  if (sample.has_heads) return;  // rows with copies promise less already
  constexpr uint32_t kOfTen = 1;
  constexpr uint32_t kOfHundred = 2;
  for (uint32_t c = kOfTen; c <= kOfHundred && kKs[c] <= sample.depth; ++c) {
    if (!has_levels(sample, c)) continue;
    const uint32_t count = sample.sizes[c];
    std::vector<SearchWorkspace> workspaces;
    make_workspaces(segment, sample, execution, workspaces);
    // [count] how much more of all answers is found than of the nearer ones.
    Array<double> gains = Array<double>::zeroed(execution.memory, count);
    parallel_for(execution, count, 1, [&](uint64_t first, uint64_t last, uint32_t worker) {
      SearchWorkspace& workspace = workspaces[worker];
      for (auto query = static_cast<uint32_t>(first); query < last; ++query) {
        const BeamStop stop{shortest_beam(kKs[c]), kKs[c]};
        trace_best_first(
            segment.dataset, segment.codes, sample.graph, (*sample.queries)[query], sample.admission(query),
            {&stop, 1}, workspace, [&](size_t, uint32_t compared, const SearchCounts&) {
              const auto recall_of = [&](uint32_t answers) {
                return query_recall(sample, query, answers, workspace.distances.data(), compared, stop.beam);
              };
              gains[query] = recall_of(kKs[c]) - recall_of(sample.nearer_answers(query, c));
              return false;
            });
      }
    });
    sample.by_nearer[c] = std::accumulate(gains.begin(), gains.end(), 0.0) > kLeeway * count;
  }
}

/// Walks of the CPU. One walk measures all beams of a stage: a longer beam takes the same steps as a shorter one, and
/// further ones. So a query that has found all its neighbours keeps them, and walks no more: of 1,024 a few percent
/// walk with the longest beams. Short beams that start from groups take steps of their own, in stages of their own.
class HostWalks {
 public:
  static constexpr size_t kStops = 10;  // beams of one walk
  static constexpr uint64_t kBytes =
      (uint64_t{kStops} * sizeof(double) + 1) * KnobCurves::kCurves * kSampleMax[0];

  HostWalks(const Segment& segment, const Sample& sample, const std::vector<uint32_t>& beams,
            const Execution& execution)
      : segment_(segment), sample_(sample), beams_(beams), execution_(execution) {
    make_workspaces(segment, sample, execution, workspaces_);
    start_from_groups(workspaces_);
    shares_ = Array<double>(execution.memory, kStops * size_t{KnobCurves::kCurves} * kSampleMax[0]);
    has_all_ = Array<uint8_t>::zeroed(execution.memory, size_t{KnobCurves::kCurves} * kSampleMax[0]);
  }

  bool starts_from_groups(uint32_t beam) const { return workspaces_.front().starts_from_groups(beam); }

  /// Leaves in `shares`, [c, query], the recalls of curves [low, high) by the `at`-th beam.
  void walk(uint32_t low, uint32_t high, size_t at, Array<double>& shares) {
    if (at >= end_) trace(low, at, stage_end(at));
    for (uint32_t c = low; c < high; ++c)
      std::copy_n(&share(at, c, 0), sample_.sizes[c], shares.data() + c * size_t{kSampleMax[0]});
  }
  /// The same anew, with the present queries of the sample.
  void walk_again(uint32_t c, size_t at, Array<double>& shares) {
    trace(c, at, at + 1);
    walk(c, c + 1, at, shares);
  }

 private:
  double& share(size_t at, uint32_t c, uint32_t query) {
    return shares_[((at - begin_) * KnobCurves::kCurves + c) * kSampleMax[0] + query];
  }
  uint8_t& has_all(uint32_t c, uint32_t query) { return has_all_[c * size_t{kSampleMax[0]} + query]; }

  size_t stage_end(size_t at) const {
    size_t end = at + 1;
    while (end < beams_.size() && end < at + kStops && beams_[end] <= kStage * beams_[at] &&
           starts_from_groups(beams_[end]) == starts_from_groups(beams_[at]))
      ++end;
    return end;
  }

  /// The last curve whose sample has the query, of those for `answers` at most.
  uint32_t last_curve(uint32_t low, uint32_t query, uint32_t answers) const {
    uint32_t c = low;
    while (c + 1 < KnobCurves::kCurves && kKs[c + 1] <= answers && query < sample_.sizes[c + 1]) ++c;
    return c;
  }

  /// Whether a curve surely ends with a beam.
  bool is_last(uint32_t c, uint32_t beam) const { return ends_curve(segment_, kKs[c], beam); }

  /// Beams [begin, end), for the curves from `low` on.
  void trace(uint32_t low, size_t begin, size_t end) {
    begin_ = begin;
    end_ = end;
    // Walks from all entry points need not find what walks from groups have found.
    const bool from_groups = starts_from_groups(beams_[begin]);
    if (from_groups_ && !from_groups) std::fill(has_all_.begin(), has_all_.end(), uint8_t{0});
    from_groups_ = from_groups;
    // One query at a time: the longest beams are for few, which are to keep all threads busy.
    parallel_for(execution_, sample_.sizes[low], 1, [&](uint64_t first, uint64_t last, uint32_t worker) {
      for (uint64_t query = first; query < last; ++query)
        trace_query(low, static_cast<uint32_t>(query), workspaces_[worker]);
    });
  }

  void trace_query(uint32_t low, uint32_t query, SearchWorkspace& workspace) {
    bool waits = false;
    for (uint32_t c = low; c <= last_curve(low, query, sample_.deep); ++c) waits |= has_all(c, query) == 0;
    // At each beam the answers for the largest k.
    BeamStop stops[kStops];
    uint32_t highest[kStops];
    for (size_t at = begin_; at < end_; ++at) {
      const uint32_t c = last_curve(low, query, std::min(beams_[at], sample_.deep));
      highest[at - begin_] = c;
      stops[at - begin_] = {beams_[at], kKs[c]};
      for (uint32_t own = low; own <= c; ++own) share(at, own, query) = 1;
    }
    if (!waits) return;
    const uint32_t last = highest[end_ - 1 - begin_];
    trace_best_first(
        segment_.dataset, segment_.codes, sample_.graph, (*sample_.queries)[query], sample_.admission(query),
        {stops, end_ - begin_}, workspace, [&](size_t stop, uint32_t compared, const SearchCounts&) {
          bool goes_on = highest[stop] < last;
          for (uint32_t c = low; c <= highest[stop]; ++c) {
            const double found = query_recall(sample_, query, sample_.answers(query, c),
                                              workspace.distances.data(), compared, stops[stop].beam);
            share(begin_ + stop, c, query) = found;
            goes_on |= found < 1 && !is_last(c, stops[stop].beam);
          }
          return goes_on;
        });
    for (uint32_t c = low; c <= last; ++c) has_all(c, query) = share(end_ - 1, c, query) == 1 ? 1 : 0;
  }

  const Segment& segment_;
  const Sample& sample_;
  const std::vector<uint32_t>& beams_;
  const Execution& execution_;
  std::vector<SearchWorkspace> workspaces_;
  Array<double> shares_;    // [kStops, curves, kSampleMax[0]]
  Array<uint8_t> has_all_;  // [curves, kSampleMax[0]] 1: found all its neighbours by the longest beam so far
  size_t begin_ = 0;        // of the beams that were traced last
  size_t end_ = 0;
  bool from_groups_ = false;  // likewise
};

/// Walks with a slack bound. One walk measures all k and all slacks of a stage.
class SlackWalks {
 public:
  static constexpr uint32_t kKsMost = 3;    // beyond 100 answers lists would be long ones
  static constexpr uint32_t kCounted = 64;  // queries whose expansions and distances are counted
  static constexpr size_t kStages[] = {8, 11, 13, std::size(kSlacksTried)};  // where each ends
  static constexpr size_t kStops = 8;
  static_assert(kSlacksTried[kStages[0] - 1] == EntryGroups::kSlackMost);
  static constexpr uint32_t kBeams = 7;

  SlackWalks(const Segment& segment, const Sample& sample, uint32_t curves, const Execution& execution)
      : segment_(segment), sample_(sample), curves_(curves), execution_(execution) {
    make_workspaces(segment, sample, execution, workspaces_);
    shares_ = Array<double>(execution.memory, kStops * size_t{kKsMost} * kSampleMax[0]);
    counts_ = Array<SearchCounts>(execution.memory, kStops * size_t{kKsMost} * kCounted);
    has_all_ = Array<uint8_t>::zeroed(execution.memory, size_t{kKsMost} * kSampleMax[0]);
  }

  /// Lets walks start at covering heads instead of entry points and groups of these.
  void start_at(std::span<const uint32_t> covering) {
    covering_ = covering;
    for (SearchWorkspace& workspace : workspaces_) workspace.covering = covering;
    std::fill(has_all_.begin(), has_all_.end(), uint8_t{0});
  }

  /// Whether walks with the slacks of the stage that begins there start from groups of entry points.
  bool starts_from_groups(size_t begin) const {
    return covering_.empty() && begin < kStages[0] && workspaces_.front().entries.exist();
  }

  /// How many rows those compare at their start, about.
  double starts_compared(size_t begin) const {
    if (starts_from_groups(begin)) return EntryGroups::compared_of(segment_.codes, segment_.graph);
    return static_cast<double>(covering_.empty() ? segment_.graph.entries.size() : covering_.size());
  }

  /// The rows that a walk meets in the time of these.
  double starts_counted(size_t begin) const {
    return covering_.empty() ? starts_compared(begin)
                             : CoveringCodes::counted(covering_.size(), segment_.codes);
  }

  /// Measures slacks [begin, end), a stage, for the curves that are open.
  void trace(const bool (&open)[kKsMost], size_t begin, size_t end) {
    const bool from_groups = starts_from_groups(begin);
    // Walks from all entry points need not find what walks from groups have found.
    if (workspaces_.front().from_groups && !from_groups)
      std::fill(has_all_.begin(), has_all_.end(), uint8_t{0});
    start_from_groups(workspaces_, from_groups);
    parallel_for(execution_, sample_.count, 1, [&](uint64_t first, uint64_t last, uint32_t worker) {
      for (uint64_t query = first; query < last; ++query)
        trace_query(open, begin, end, static_cast<uint32_t>(query), workspaces_[worker]);
    });
  }

  /// The recalls of a curve with the `stop`-th slack of the stage, [sizes[c]].
  const double* shares(size_t stop, uint32_t c) const { return &shares_[place(stop, c) * kSampleMax[0]]; }

  /// The mean count of a query.
  double mean(uint64_t SearchCounts::* count, size_t stop, uint32_t c) const {
    const uint32_t counted = std::min(sample_.sizes[c], kCounted);
    double sum = 0;
    for (uint32_t query = 0; query < counted; ++query)
      sum += static_cast<double>(counts_[place(stop, c) * kCounted + query].*count);
    return sum / counted;
  }

  /// Counts the rows that walks with beams compare for the same queries, all from all entry points.
  void count_beams() {
    BeamStop stops[kBeams];
    for (uint32_t i = 0; i < kBeams; ++i) stops[i] = {kBeamMin << i, 1};
    const uint32_t counted = std::min(sample_.count, kCounted);
    Array<double> compared(execution_.memory, size_t{counted} * kBeams);
    parallel_for(execution_, counted, 1, [&](uint64_t first, uint64_t last, uint32_t worker) {
      for (uint64_t query = first; query < last; ++query)
        trace_best_first(segment_.dataset, segment_.codes, sample_.graph, (*sample_.queries)[query],
                         sample_.admission(static_cast<uint32_t>(query)), stops, workspaces_[worker],
                         [&](size_t stop, uint32_t, const SearchCounts& counts) {
                           compared[query * kBeams + stop] = static_cast<double>(counts.distances);
                           return true;
                         });
    });
    for (uint32_t i = 0; i < kBeams; ++i) {
      for (uint32_t query = 0; query < counted; ++query)
        of_beam_[i] += compared[query * kBeams + i] / counted;
    }
  }

  /// The beam whose walk compares that many rows. Beyond the longest that was walked they grow on as before.
  double beam_of(double distances) const {
    uint32_t above = 1;
    while (above + 1 < kBeams && of_beam_[above] < distances) ++above;
    const double low = kBeamMin << (above - 1);
    const double rise = of_beam_[above] - of_beam_[above - 1];
    if (rise <= 0) return 2 * low;
    return std::clamp(low + low * (distances - of_beam_[above - 1]) / rise, 1.0, double{ANN_BEAM_MAX});
  }

 private:
  static size_t place(size_t stop, uint32_t c) { return stop * kKsMost + c; }

  void trace_query(const bool (&open)[kKsMost], size_t begin, size_t end, uint32_t query,
                   SearchWorkspace& workspace) {
    SlackFront fronts[kKsMost];
    uint32_t count = 0;
    for (uint32_t c = 0; c < curves_; ++c) {
      if (!open[c] || query >= sample_.sizes[c]) continue;
      for (size_t stop = 0; stop < end - begin; ++stop) shares_[place(stop, c) * kSampleMax[0] + query] = 1;
      if (query < kCounted || has_all_[size_t{c} * kSampleMax[0] + query] == 0)
        fronts[count++] = {kKs[c], {kSlacksTried + begin, end - begin}};
    }
    if (count == 0) return;
    trace_with_slack(segment_.dataset, segment_.codes, sample_.graph, (*sample_.queries)[query],
                     sample_.admission(query), {fronts, count}, workspace,
                     [&](const SlackFront& front, uint32_t compared, const SearchCounts& counts) {
                       const uint32_t c = static_cast<uint32_t>(std::find(kKs, kKs + kKsMost, front.k) - kKs);
                       const size_t stop = end - begin - front.slacks.size();
                       const double share = query_recall(sample_, query, sample_.answers(query, c),
                                                         workspace.distances.data(), compared, ANN_BEAM_MAX);
                       shares_[place(stop, c) * kSampleMax[0] + query] = share;
                       if (share == 1) has_all_[size_t{c} * kSampleMax[0] + query] = 1;
                       if (query < kCounted) counts_[place(stop, c) * kCounted + query] = counts;
                       return share < 1 || query < kCounted;
                     });
  }

  const Segment& segment_;
  const Sample& sample_;
  uint32_t curves_;
  const Execution& execution_;
  std::span<const uint32_t> covering_;
  std::vector<SearchWorkspace> workspaces_;
  Array<double> shares_;         // [kStops, kKsMost, kSampleMax[0]]
  Array<SearchCounts> counts_;   // [kStops, kKsMost, kCounted]
  double of_beam_[kBeams] = {};  // rows that a walk with a beam of kBeamMin << i compares, mean
  Array<uint8_t> has_all_;       // [kKsMost, kSampleMax[0]] 1: found all its neighbours with a slack
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
                     uint32_t k, const Execution& execution) {
  Array<float> distances(execution.memory, size_t{count} * k);
  if (codes.scaled() != nullptr || codes.wide() || (!sample.held_out.empty() && sample.masked != nullptr)) {
    // Codes with one step for all rows do not order the nearest, and comparing all rows as stored for each query would
    // be slower.
    // In pieces, since exact search has lists of all its queries at once.
    const uint32_t most = std::min(count, kTruthQueries);
    Array<uint64_t> ids(execution.memory, size_t{most} * k);
    for (uint32_t first = 0; first < count; first += most) {
      MatrixView piece = sample.vectors;
      piece.data = sample.vectors.row(first);
      piece.rows = std::min(most, count - first);
      const uint32_t* masked = sample.masked != nullptr ? sample.masked + first : nullptr;
      search_exact(dataset, QueryBlock(dataset, piece, execution), {{}, sample.held_out, masked},
                   {k, ids.data(), distances.data() + size_t{first} * k, nullptr, nullptr}, execution);
    }
  } else {
    nearest_by_codes(dataset, codes, *sample.queries, 0, count, sample.masked, sample.held_out, k,
                     distances.data(), execution);
  }
  return distances;
}

void find_truth(const Dataset& dataset, const Codes& codes, Sample& sample, const Execution& execution) {
  sample.truth = nearest(dataset, codes, sample, sample.count, sample.depth, execution.span(0, 0.2));
  execution.advance(0.2);
  if (sample.deep == sample.depth) return;
  sample.deep_truth =
      nearest(dataset, codes, sample, sample.deep_count, sample.deep, execution.span(0.2, 0.3));
  execution.advance(0.3);
}

/// Rows that stand for queries, in random order.
struct RowQueries {
  Array<uint32_t> rows;
  Array<CopiesOf> kinds;  // [rows], or empty
  Array<uint8_t> copied;  // [rows, Dataset::query_bytes()] together, since borrowed rows may lie far apart
  RowSet held_out;
  std::unique_ptr<BypassEdges> bypass;
  bool find_copies = false;
  bool are_crowded = false;
};

bool may_hide(const Segment& segment) {
  return segment.codes.scaled() == nullptr && segment.graph.heads.empty() &&
         segment.rows() / kHiddenShare >= kHiddenMin;
}

/// A graph whose edges may go past hidden rows while others walk the one that it copies; none where memory is short, or
/// where edges are read from a mapped file when they are needed.
std::optional<SearchGraph> copy_of(const SearchGraph& graph, const Execution& execution) {
  if (graph.touch != nullptr) return std::nullopt;
  const auto copied = [&]<class T>(const Array<T>& from) {
    constexpr uint64_t kItems = 1 << 18;
    Array<T> to(execution.memory, from.size());
    parallel_for(execution, from.size(), kItems, [&](uint64_t begin, uint64_t end, uint32_t) {
      std::copy(from.data() + begin, from.data() + end, to.data() + begin);
    });
    return to;
  };
  try {
    SearchGraph copy;
    copy.edges = copied(graph.edges);
    copy.offsets = copied(graph.offsets);
    copy.prefixes = copied(graph.prefixes);
    copy.entries = copied(graph.entries);
    copy.rows = graph.rows;
    copy.degree = graph.degree;
    copy.levels = graph.levels;
    return copy;
  } catch (const Error& error) {
    if (error.status != ANN_NO_MEMORY) throw;
    return std::nullopt;
  }
}

RowQueries draw_rows(const Segment& segment, SearchGraph* own, const Execution& execution) {
  const Dataset& dataset = segment.dataset;
  const Allocator& memory = execution.memory;
  const auto draw = [&](uint32_t count) {
    return draw_queries(segment.codes, segment.graph, count, dataset.rows() / kHeldOutShare, segment.seed,
                        kSampleStream, execution);
  };
  const bool hides = own != nullptr && may_hide(segment);
  DrawnRows drawn = draw(hides ? std::min(dataset.rows() / kHiddenShare, sample_most(segment.codes, 0))
                               : std::min(dataset.rows() / kHeldOutShare, masked_most(segment, 0)));
  RowQueries row_queries;
  row_queries.find_copies = drawn.have_copies;
  if (hides || !drawn.copies.empty()) row_queries.held_out = RowSet(memory, dataset.rows());
  for (const uint32_t row : drawn.copies) row_queries.held_out.insert(row);
  shuffle(drawn, segment.seed, kSampleStream + 1, memory);
  // Before edges go past them: what lies near a row is the same in a graph of its own and in a copy.
  CopiedRows copied = copy_as_queries(dataset, segment.graph, drawn.rows, segment.seed, execution);
  row_queries.are_crowded = copied.are_crowded;
  row_queries.copied = std::move(copied.values);
  if (hides) {
    for (const uint32_t row : drawn.rows) row_queries.held_out.insert(row);
    row_queries.bypass =
        std::make_unique<BypassEdges>(segment.codes, *own, row_queries.held_out.words().data(), execution);
  }
  row_queries.rows = std::move(drawn.rows);
  row_queries.kinds = std::move(drawn.kinds);
  return row_queries;
}

/// One measured point of a curve.
struct Measured {
  double knob;
  double mean;
  double doubt;
  double expansions = 0;
  double beam = 0;
};

/// Points of a curve in the caller's memory, with room for all values of the knob that are tried.
class MeasuredPoints {
 public:
  MeasuredPoints() = default;
  MeasuredPoints(const Allocator& memory, size_t most) : points_(memory, most) {}

  void add(const Measured& point) { points_[count_++] = point; }
  size_t count() const { return count_; }
  Measured& operator[](size_t place) { return points_[place]; }
  const Measured& operator[](size_t place) const { return points_[place]; }

 private:
  Array<Measured> points_;
  size_t count_ = 0;
};

/// The points of a curve: all, or of those that lie close together every second one, and so on.
void make_curve(MeasuredPoints& points, KnobCurve& curve) {
  if (points.count() == 0) return;
  double least = 1;
  for (size_t at = points.count(); at-- > 0;) {
    least = std::min(least, std::max(0.0, points[at].mean - points[at].doubt));
    points[at].mean = least;
  }
  constexpr double kFinest = 0.05;  // of the miss's logarithm
  uint32_t kept[KnobCurve::kPoints];
  size_t count = 0;  // of those that are kept, or would be
  for (double apart = kFinest; count == 0 || count > KnobCurve::kPoints; apart *= 1.25) {
    count = 0;
    double last = 0;
    for (size_t at = 0; at < points.count(); ++at) {
      const bool needed = at == 0 || at + 1 == points.count() ||
                          std::log(miss_of(last)) - std::log(miss_of(points[at + 1].mean)) > apart;
      if (!needed) continue;
      last = points[at].mean;
      if (count < KnobCurve::kPoints) kept[count] = static_cast<uint32_t>(at);
      ++count;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const Measured& point = points[kept[i]];
    curve.add(point.knob, point.mean, 0, point.expansions, point.beam);
  }
}

/// Walks with the shortest beams over the first parts of each row's edges. One walk measures all k.
class PartWalks {
 public:
  static constexpr uint32_t kKsMost = 3;  // a beam for 1,000 answers is long whatever is wanted

  PartWalks(const Segment& segment, const Sample& sample, const Execution& execution)
      : segment_(segment), sample_(sample), execution_(execution) {
    make_workspaces(segment, sample, execution, workspaces_);
    start_from_groups(workspaces_);
    shares_ = Array<double>(execution.memory, size_t{kKsMost} * kSampleMax[0]);
  }

  /// Puts points with fewer edges before the first ones of curves, the shortest beams', where those find more than some
  /// callers want.
  void measure(uint32_t curves, MeasuredPoints* points) {
    Measured found[kKsMost][std::size(kTenthsTried)];
    size_t counts[kKsMost] = {};
    for (uint32_t c = 0; c < std::min(curves, kKsMost); ++c)
      open_[c] = points[c].count() != 0 && points[c][0].knob == shortest_beam(kKs[c]) &&
                 promised(points[c][0]) > kPartsAbove;
    for (size_t place = 0; place < std::size(kTenthsTried); ++place) {
      const uint32_t tenths = kTenthsTried[place];
      if (!open_[0] && !open_[1] && !open_[2]) break;
      walk(tenths_of(kAllEdges, tenths));
      for (uint32_t c = 0; c < kKsMost; ++c) {
        if (!open_[c]) continue;
        const Recall recall = mean_of(shares_.data() + size_t{c} * kSampleMax[0], size_of(c), sample_);
        const double knob = tenths_of(shortest_beam(kKs[c]), tenths);
        const Recall of_several =
            c == 0 && open_[1] ? mean_of(shares_.data() + kSampleMax[0], size_of(1), sample_) : recall;
        const bool from_groups = workspaces_.front().starts_from_groups(shortest_beam(kKs[c]));
        const Measured point{knob, recall.mean, doubt_of(sample_, kKs[c], recall, of_several, from_groups)};
        open_[c] = promised(point) > kPartsAbove;
        if (open_[c] && has_own_knob(kKs[c], place)) found[c][counts[c]++] = point;
      }
    }
    for (uint32_t c = 0; c < kKsMost; ++c) {
      if (counts[c] == 0) continue;
      MeasuredPoints all(execution_.memory, counts[c] + points[c].count());
      for (size_t at = counts[c]; at > 0; --at) all.add(found[c][at - 1]);
      for (size_t at = 0; at < points[c].count(); ++at) all.add(points[c][at]);
      points[c] = std::move(all);
    }
  }

 private:
  static constexpr uint32_t kQueries = 512;  // the allowance for luck is small where recall is not high,
  static constexpr uint32_t kQueriesForMany = 128;  // and smaller where each averages a hundred answers

  static double promised(const Measured& point) { return point.mean - point.doubt; }
  uint32_t size_of(uint32_t c) const {
    return std::min(sample_.sizes[c], kKs[c] == 100 ? kQueriesForMany : kQueries);
  }

  void walk(uint32_t part) {
    uint32_t most = 0;
    for (uint32_t c = 0; c < kKsMost; ++c) most = std::max(most, open_[c] ? size_of(c) : 0);
    parallel_for(execution_, most, 1, [&](uint64_t first, uint64_t last, uint32_t worker) {
      SearchWorkspace& workspace = workspaces_[worker];
      workspace.edges_part = part;
      for (uint64_t query = first; query < last; ++query) walk_query(static_cast<uint32_t>(query), workspace);
    });
  }

  void walk_query(uint32_t query, SearchWorkspace& workspace) {
    BeamStop stops[kKsMost];
    uint32_t curves[kKsMost];
    size_t count = 0;
    for (uint32_t c = 0; c < kKsMost; ++c) {
      if (!open_[c] || query >= size_of(c)) continue;
      curves[count] = c;
      stops[count++] = {shortest_beam(kKs[c]), kKs[c]};
    }
    if (count == 0) return;
    trace_best_first(segment_.dataset, segment_.codes, sample_.graph, (*sample_.queries)[query],
                     sample_.admission(query), {stops, count}, workspace,
                     [&](size_t stop, uint32_t compared, const SearchCounts&) {
                       shares_[size_t{curves[stop]} * kSampleMax[0] + query] =
                           query_recall(sample_, query, sample_.answers(query, curves[stop]),
                                        workspace.distances.data(), compared, stops[stop].beam);
                       return true;
                     });
  }

  const Segment& segment_;
  const Sample& sample_;
  const Execution& execution_;
  std::vector<SearchWorkspace> workspaces_;
  Array<double> shares_;  // [kKsMost, kSampleMax[0]]
  bool open_[kKsMost] = {};
};

/// Measures SLACK by walks that have counted beams. Three standard errors of the sample's size are less than kLeeway
/// from a recall of .95 on; below that beams serve.
void measure_slacks(const Segment& segment, const Sample& sample, uint32_t tried, SlackWalks& walks,
                    const Execution& execution, KnobCurves& out) {
  constexpr uint32_t kMost = SlackWalks::kKsMost;
  for (uint32_t c = 0; c < tried; ++c) out.add(kKs[c]);
  MeasuredPoints points[kMost];
  for (MeasuredPoints& of_curve : points)
    of_curve = MeasuredPoints(execution.memory, std::size(kSlacksTried));
  const auto entries = static_cast<double>(segment.graph.entries.size());
  Recall of_ten = {1, 0};
  bool open[kMost];
  for (uint32_t c = 0; c < kMost; ++c) open[c] = c < tried;
  size_t begin = 0;
  for (const size_t end : SlackWalks::kStages) {
    if (!open[0] && !open[1] && !open[2]) break;
    walks.trace(open, begin, end);
    const bool from_groups = walks.starts_from_groups(begin);
    const double starts = walks.starts_compared(begin);
    for (size_t at = begin; at < end; ++at) {
      const auto recall_of = [&](uint32_t c) {
        return mean_of(walks.shares(at - begin, c), sample.sizes[c], sample);
      };
      const uint32_t ten = tried > 1 ? 1 : 0;
      if (open[ten]) of_ten = recall_of(ten);
      for (uint32_t c = 0; c < tried; ++c) {
        if (!open[c]) continue;
        const Recall recall = recall_of(c);
        const double expansions = walks.mean(&SearchCounts::expansions, at - begin, c);
        const double distances = walks.mean(&SearchCounts::distances, at - begin, c);
        const double beam = walks.beam_of(distances + entries - starts);
        points[c].add({static_cast<double>(kSlacksTried[at]), recall.mean,
                       doubt_of(sample, kKs[c], recall, c > ten ? recall : of_ten, from_groups), expansions,
                       beam});
        // From groups more is not promised, however much is found.
        const bool is_enough = !from_groups && recall.mean >= KnobCurve::kEnough;
        const double work =
            slack_work(segment.graph, walks.starts_counted(begin), segment.codes.walk_stride(), beam);
        open[c] = !is_enough && work <= exact_work(segment.dataset, 1, kKs[c]);
      }
    }
    begin = end;
  }
  for (uint32_t c = 0; c < tried; ++c) make_curve(points[c], out[c]);
}

/// The curve for ten answers, or for one where there is no other.
const KnobCurve& curve_of_ten(const KnobCurves& curves) { return curves[std::min(curves.count() - 1, 1u)]; }

/// Measures SLACK; where its walks do not find all islands from the entry points, also from covering heads. Those are
/// returned if they find more: they miss half at most.
CoveringWalks measure_slack(const Segment& segment, Sample& sample, uint32_t curves,
                            const Execution& execution, KnobCurves& out) {
  constexpr uint32_t kSlackSample = 512;
  constexpr double kHighest = 0.999;  // recall that is asked
  constexpr double kMissedStill = 0.5;
  const uint32_t tried = std::min(curves, SlackWalks::kKsMost);
  for (uint32_t c = 0; c < tried; ++c)
    sample.sizes[c] = std::min(sample.count, c == 2 ? kSampleFew[0] : kSlackSample);
  SlackWalks walks(segment, sample, tried, execution);
  walks.count_beams();
  measure_slacks(segment, sample, tried, walks, execution, out);
  if (tried == 0 || curve_of_ten(out).reaches(kHighest)) return {};
  // No rows are hidden from a graph that has heads.
  CoveringWalks covering{covering_heads(sample.graph, segment.codes, execution)};
  if (covering.heads.empty()) return {};
  walks.start_at({covering.heads.data(), covering.heads.size()});
  measure_slacks(segment, sample, tried, walks, execution, covering.slack);
  const auto missed = [](const KnobCurves& of) {
    const KnobCurve& curve = curve_of_ten(of);
    return miss_of(curve.points[curve.count - 1].recall);
  };
  if (missed(covering.slack) > kMissedStill * missed(out)) return {};
  return covering;
}

}  // namespace

void Calibration::measure(const Segment& segment, const Execution& execution, SearchGraph* own) {
  std::optional<SearchGraph> copy;
  if (own == nullptr && segment.queries.count() == 0 && may_hide(segment))
    copy = copy_of(segment.graph, execution);
  if (!copy) return measure_on(segment, execution, own);
  try {
    return measure_on(segment, execution, &*copy);
  } catch (const Error& error) {
    if (error.status != ANN_NO_MEMORY) throw;
  }
  copy.reset();
  *this = Calibration();
  measure_on(segment, execution, nullptr);
}

void Calibration::measure_on(const Segment& segment, const Execution& execution, SearchGraph* own) {
  const Dataset& dataset = segment.dataset;
  const Codes& codes = segment.codes;
  const QuerySample& given = segment.queries;
  const uint32_t deep = truth_depth(dataset.rows());
  const bool by_rows = given.count() == 0;
  if (deep == 0 || (by_rows ? dataset.rows() / kHeldOutShare : given.count()) == 0) return;
  const Allocator& memory = execution.memory;

  // The queries: a sample of the rows, or the caller's. Either is shuffled, so that the first of it are a fair
  // sample too.
  RowQueries row_queries;
  MatrixView vectors = given.first(sample_most(codes, 0));
  if (by_rows) {
    row_queries = draw_rows(segment, own, execution);
    vectors = {row_queries.copied.data(), row_queries.rows.size(), dataset.dim(),
               query_element(dataset.element()), dataset.query_bytes()};
  }
  const bool is_hidden = row_queries.bypass != nullptr;
  const bool is_fair = is_hidden || !by_rows;
  const auto count = static_cast<uint32_t>(vectors.rows);
  uint32_t most[KnobCurves::kCurves];
  for (uint32_t c = 0; c < KnobCurves::kCurves; ++c)
    most[c] = is_fair ? sample_most(codes, c) : masked_most(segment, c);
  const QueryBlock queries(dataset, vectors, execution);
  Sample sample{vectors,
                &queries,
                own != nullptr ? *own : segment.graph,
                by_rows && !is_hidden ? row_queries.rows.data() : nullptr,
                row_queries.held_out.view(),
                is_fair,
                !segment.graph.heads.empty(),
                row_queries.find_copies,
                row_queries.are_crowded,
                row_queries.kinds.empty() ? nullptr : row_queries.kinds.data(),
                count,
                std::min(count, most[KnobCurves::kCurves - 1]),
                std::min(deep, kKs[2]),
                deep,
                {},
                {},
                {}};
  for (uint32_t c = 0; c < KnobCurves::kCurves; ++c) sample.sizes[c] = std::min(count, most[c]);
  find_truth(dataset, codes, sample, execution);
  judge_by_nearer(segment, sample, execution);

  Array<double> shares(memory, size_t{KnobCurves::kCurves} * kSampleMax[0]);
  for (const uint32_t k : kKs) {
    if (k <= deep) curves_.add(k);
  }
  const std::vector<uint32_t> beams = beams_tried();
  std::optional<HostWalks> host_walks(std::in_place, segment, sample, beams, execution);
  from_groups_.lists = host_walks->starts_from_groups(EntryGroups::kListMost);
  MeasuredPoints points[KnobCurves::kCurves];
  for (MeasuredPoints& of_curve : points) of_curve = MeasuredPoints(memory, beams.size());
  bool done[KnobCurves::kCurves] = {};
  uint32_t open = 0;  // the first curve that is not done
  for (size_t at = 0; open < curves_.count() && at < beams.size(); ++at) {
    const uint32_t beam = beams[at];
    uint32_t end = open;
    while (end < curves_.count() && kKs[end] <= beam) ++end;
    if (end == open) continue;
    const auto recall_of = [&](uint32_t c) {
      return mean_of(shares.data() + c * size_t{kSampleMax[0]}, sample.sizes[c], sample);
    };
    host_walks->walk(open, end, at, shares);
    for (uint32_t c = open; c < end; ++c) {
      Recall recall = recall_of(c);
      // A few queries that all fare well, or some very well and some very badly, say little of how many there are
      // that a walk does not reach at all.
      const uint32_t enough = std::min(count, kSampleFew[0]);
      if ((recall.mean >= KnobCurve::kEnough || recall.is_all_or_none()) && kKs[c] <= sample.depth &&
          sample.sizes[c] < enough && !done[c]) {
        sample.sizes[c] = enough;
        host_walks->walk_again(c, at, shares);
        recall = recall_of(c);
      }
      if (kKs[c] == 10) recall_max_ = std::max(recall_max_, static_cast<float>(recall.mean));
      if (!done[c]) {
        // A beam for fewer than ten answers has walked for the curve of one alone.
        const Recall of_several = c > 1 ? recall : end > 1 ? recall_of(1) : Recall{1, 0};
        points[c].add({static_cast<double>(beam), recall.mean,
                       doubt_of(sample, kKs[c], recall, of_several, host_walks->starts_from_groups(beam))});
        done[c] = recall.mean >= KnobCurve::kEnough;
      }
      done[c] = done[c] || ends_curve(segment, kKs[c], beam);
    }
    while (open < curves_.count() && done[open]) ++open;
    execution.advance(0.3 + 0.4 * open / KnobCurves::kCurves);
  }
  host_walks.reset();
  PartWalks(segment, sample, execution).measure(curves_.count(), points);
  for (uint32_t c = 0; c < curves_.count(); ++c) make_curve(points[c], curves_[c]);
  // By inner product a bound finds no good end (search/slack.h).
  if (dataset.metric() == ANN_METRIC_INNER_PRODUCT) return;
  if (CoveringWalks covering = measure_slack(segment, sample, curves_.count(), execution, slack_);
      !covering.heads.empty())
    add(std::move(covering));
  from_groups_.slacks = from_groups_.lists && slack_.count() != 0;
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

uint32_t Calibration::edges_part(uint32_t k, float recall, bool in_steps, uint32_t degree) const {
  if (empty() || k == 0 || degree == 0) return kAllEdges;
  uint32_t part = 0;
  curves_.visit_next_to(k, [&](const KnobCurve& curve) {
    part = std::max(part, edges_part_of(curve, recall, in_steps, degree));
  });
  return part;
}

double Calibration::recall_of_part(uint32_t k, uint32_t edges_part) const {
  double least = 1;
  curves_.visit_next_to(
      k, [&](const KnobCurve& curve) { least = std::min(least, edges_part_recall(curve, edges_part)); });
  return least;
}

float Calibration::recall(uint32_t k, uint32_t beam) const {
  // A shorter beam than any that was measured counts as the shortest one.
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

uint64_t calibration_bytes(uint32_t dim, size_t stride, uint64_t rows, uint32_t degree, uint64_t given,
                           uint32_t threads) {
  const uint32_t deep = truth_depth(rows);
  const uint32_t depth = std::min(deep, kKs[2]);
  const uint32_t most = given != 0 || rows / kHiddenShare >= kHiddenMin ? kSampleMax[0] : 2 * kSampleFew[0];
  const uint64_t count = std::min<uint64_t>(most, given != 0 ? given : rows / 4 + 1);
  const uint64_t beam = std::min<uint64_t>(ANN_BEAM_MAX, 2 * rows + 1024);
  const uint64_t workspace = rows / 8 + 8192 * 4 + dim * 12ull + stride + 4096 + beam * 32;
  const uint32_t few = kSampleMax[KnobCurves::kCurves - 1];
  // Where codes are floats exact search with bounds finds the true neighbours: ids, lists and codes of a group.
  const auto bounded_bytes = [&](uint64_t queries, uint32_t k) {
    return std::min<uint64_t>(queries, kTruthQueries) * (nearest_room(k) * 8 + k * 8 + stride) +
           threads * (uint64_t{1} << 18);
  };
  const uint64_t bounded = std::max(bounded_bytes(count, depth), bounded_bytes(few, deep));
  const uint64_t ground_truth =
      std::max({bounded, nearest_by_codes_bytes(stride, kSampleMax[0], depth, threads),
                nearest_by_codes_bytes(stride, few, deep, threads)});
  const uint64_t hiding = rows / 8 + rows / 512 + count * ANN_DEGREE_MAX * 16;
  const uint64_t measuring =
      count * (depth * 4 + dim * 8ull + 128) + uint64_t{few} * deep * 4 + HostWalks::kBytes +
      KnobCurves::kCurves * kSampleMax[0] * 8 + hiding +
      std::max(threads * workspace + covering_heads_bytes(rows, degree, stride, threads), ground_truth);
  return std::max(measuring, given != 0 ? 0 : draw_queries_bytes(rows)) + 64 * kAlignment;
}

}  // namespace gannet

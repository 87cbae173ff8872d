// Calibration: which beam gives which recall, measured on queries that the graph has not seen.
//
// The queries are the caller's, or else held-out rows. A row that is in the graph is not a valid query: its own
// edges lead to its neighbours, and an effort that gives 0.89 on unseen queries gives 1.00 on such rows. So one of
// 50 rows at most is hidden meanwhile: neither expanded nor returned, and edges go past it
// (graph/bypass_edges.h), in a copy of a graph that others may walk. Where those are too few for a sample, where rows
// lie in islands or have copies, by inner product and over a mapped file each row is masked for its own search instead,
// which leaves a hole in the paths of other rows: the recall of unseen queries on 99,000 rows of SIFT was .971 there
// where .95 was wanted, by a beam of 33 instead of 23. Hidden rows come near that. True neighbours are found by
// search/exact_by_codes.h.
//
// For k of 1, 10, 100 and 1,000 a curve (beam, recall) is measured at growing beams until recall reaches 0.999, the
// beam 1,000 k, or a walk costs more than comparing all rows (tune/search_work.h), which a search then does instead. A
// point promises the mean over the sample less the part of three standard errors beyond 0.01, so that the promise
// (mean recall on unseen queries of the same distribution at least the target - 0.01) survives the luck of the sample,
// and no target is overshot where luck is small. With masked rows it subtracts one standard error instead, and three
// less 0.01 where rows lie in islands or have copies, or where a query's answers, ten or more, are all found or none.
// Of fewer than 300 queries three may miss unseen, for k of 1 and 10: of the caller's, and of rows for k of 1 and
// where answers are found together. Of rows with copies some see them and some do not, and the lesser promise counts
// (graph/long_edges.h); rounded rows are as they were before (tune/row_queries.h). A point promises at most as much as
// any longer beam, or of several points of a level curve the luckiest would be taken. Between points the logarithm of
// the miss falls with the beam. Where the last true neighbours of most queries are equally far, a curve for ten or a hundred
// is of those that are nearer, if walks find less of these.
//
// Where the shortest beam promises more than kPartsAbove, it is also measured over the first parts of each row's
// edges, which are a fair row too (graph/search_graph.h): a search for a lower recall compares less. The knob of
// such a point is that part of the beam, rounded up, so that curves go on below it. One thread, k = 10, over 32, 20,
// 16 and 12 edges: patches .964, .949, .935 and .914 in 10.9, 8.7, 8.2 and 7.2 us a query, words .919, .885, .853 in
// 5.6, 5.1, 4.6, GIST .899, .842, .802 in 24.9, 19.4, 18.1. Longer beams over fewer edges are slower than the
// shortest one over all at equal recall. Between two such points a part has as many whole edges as the point lies between
// theirs. In graphs with heads and by inner product only parts that were tried serve.
//
// SLACK is measured on the first 512 queries of the same sample with the same allowances, for k of 1, 10 and 100
// (256 of them): one walk serves all k and the slacks of a stage (search/slack.h), a row is compared as stored
// once a walk, and a query that has found all true neighbours is not repeated, except for the 64 queries whose
// expansions are counted. AUTO takes SLACK where that is the lesser work (tune/search_work.h). It is not measured by
// inner product. Where its walks do not find all islands, since these are more than entry points, it is measured once
// more by walks that start at covering heads (graph/covering_heads.h), which serve beside if they find more.
//
// Cost: 1,024 true answers (512 where codes have 512 bytes and more) and as many walks (256 for k of 100, 16 for 1,000;
// of masked rows 256, 128 and 16, with heads 512 for k of 1 and 10). One walk serves all curves and all beams up to four
// times its shortest one (search/best_first.h), in steps of a sixth; and a query that has found all true neighbours
// keeps them with a longer beam: its walk ends, and is not repeated. (Up to twice, with walks that went on to the end,
// calibration took a tenth more time on GIST, words and texts, a twentieth on patches.) A walk for each beam, in steps
// of a third, took as long for a quarter of the queries. Only where the masked rows have reached 0.999 of 100
// answers all 256 are used: fewer queries may include none that walks do not reach at all, however many neighbours each
// has (corners of a cube, k = 100: recall was .983 by 64 rows where .999 was wanted).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "segment/segment.h"
#include "tune/curves.h"

namespace gannet {

/// Which walks started from groups of entry points (search/entry_groups.h) as curves were measured, and are to start so in
/// searches that go by these.
struct FromGroups {
  bool lists = false;   // short ones
  bool slacks = false;  // small ones
};

/// Walks with a slack that start at covering heads (graph/covering_heads.h), which find more where islands are more than
/// entry points.
struct CoveringWalks {
  Array<uint32_t> heads;
  KnobCurves slack = KnobCurves(KnobScale::kSlack);
};

class Calibration {
 public:
  Calibration() = default;
  /// A calibration from curves that were measured before.
  Calibration(const KnobCurves& curves, const KnobCurves& slack, float recall_max, FromGroups from_groups)
      : curves_(curves), slack_(slack), recall_max_(recall_max), from_groups_(from_groups) {}

  /// Measures on rows, or on the queries of the caller if the segment keeps any. `own` is the segment's graph where its
  /// edges may go past rows that serve as queries meanwhile; null: they do in a copy, or where there is no memory to
  /// measure in one these rows are masked.
  void measure(const Segment& segment, const Execution& execution, SearchGraph* own = nullptr);

  bool empty() const { return curves_.empty(); }
  const KnobCurves& curves() const { return curves_; }
  /// The curves of SLACK, with expansions; none where walks of the CPU were not measured.
  const KnobCurves& slack() const { return slack_; }

  FromGroups from_groups() const { return from_groups_; }

  /// Null where these find no more than walks from entry points, or there are none.
  const CoveringWalks* covering() const { return covering_.get(); }
  void add(CoveringWalks&& covering) {
    covering_ = std::make_shared<const CoveringWalks>(std::move(covering));
  }

  /// The highest mean recall@10 seen; 0 without a curve for it.
  float recall_max() const { return recall_max_; }

  /// The beam for k neighbours at a recall. Without curves a cautious rule: see ann_search_params.
  uint32_t beam(uint32_t k, float recall) const;

  /// The part of a row's edges, of kAllEdges, that the walk with that beam reads on the CPU; rows have `degree` of them
  /// at most. `in_steps`: one that was tried, for graphs with heads and by inner product: there recall does not fall
  /// evenly with the part. The second half of a head's row leads to other heads. By product a hundred of 3,000 rows of
  /// unlike length got .877, .887 and .927 by 10, 12 and 13 of 32 edges.
  uint32_t edges_part(uint32_t k, float recall, bool in_steps, uint32_t degree) const;

  /// Whether beam(k, recall) was found to give the recall, by the curves for the next smaller and larger k. True without
  /// curves.
  bool reaches(uint32_t k, double recall) const {
    return empty() || (curves_.tell_of(k) && curves_.reaches(k, recall));
  }

  /// The recall of a beam, 0 to 1: the highest for which beam() gives no more. It does not
  /// fall with the beam. 1 where it is longer than any that was measured. Only where there are curves.
  float recall(uint32_t k, uint32_t beam) const;

  /// The same of the shortest beam over a part of the edges, by the largest one tried that is no more.
  double recall_of_part(uint32_t k, uint32_t edges_part) const;

 private:
  void measure_on(const Segment& segment, const Execution& execution, SearchGraph* own);

  KnobCurves curves_;
  KnobCurves slack_ = KnobCurves(KnobScale::kSlack);
  float recall_max_ = 0;
  FromGroups from_groups_;
  std::shared_ptr<const CoveringWalks> covering_;
};

/// Bytes that measuring takes at most, with so many queries of the caller.
uint64_t calibration_bytes(uint32_t dim, size_t stride, uint64_t rows, uint32_t degree, uint64_t given,
                           uint32_t threads);

}  // namespace gannet

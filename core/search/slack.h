// Search with a slack bound: best-first search that ends by distance instead of by a number of rows.
//
//   list    the nearest rows met so far, sorted, of which some have been expanded
//   bound   (1 + slack) times the distance of the k-th row of the list that may be returned; by inner product, whose
//           distances have no zero to be measured from, that distance and a share of it: a product within the
//           bound is at least 2 - (1 + slack)^2 of the k-th
//   start   all entry points are compared and enter the list as far as the bound lets them, or with little slack those
//           of the nearest groups (search/entry_groups.h); or the covering heads instead (graph/covering_heads.h), if
//           calibration finds that these serve and the walk takes less
//   step    take the nearest row of the list that has not been expanded, if it is one of the first k or nearer than
//           the bound; read its edges and request the codes of those rows that have not been met. Then compare the
//           rows that the step before has requested, and let those nearer than the bound into the list
//   stop    when no such row is left, and none on its way
//   end     the rows nearer than the bound are compared once more on the stored rows, as many as best-first search
//           takes
//
// A beam gives every query as many expansions; a bound gives an easy one few and a hard one many. One list holds
// the rows of the two on a CUDA device (search/walk_cuda.cu): rows beyond the bound never enter it, so that it is
// seldom long, and it may be as long as it needs to be.
//
// A step chooses its row before the rows of the step before are compared: codes have the time of a step to arrive,
// and a walk that is about to follow its best row looks at its second one too. On the first steps that leads it into
// two regions instead of one, which texts of 384 columns are missed without: one row at a time finds .9875 of them with
// any slack. One at a time from the 4th expansion on compares 5 % fewer rows on patches, 2 % on SIFT, and takes 1.3
// times the time on SIFT and texts at .99. Three rows in flight compare 7 % more and save no more time.
//
// Rows at the bound itself are left out: smooth patches repeat, and where the k-th lies among equal rows all of them
// were expanded (33 expansions instead of 17 with no slack). So are those beyond it when rows are compared once more:
// with little slack k and 16 more rows of 960 columns as stored took a sixth of a search.
//
// Bytes of a query of 384 columns at recall .95: 23 expansions of 128 bytes and 460 codes of 384, 180 KB; at .99 57 and
// 830, 330 KB, where a beam with that recall expands 560 rows and reads 1.8 MB.
//
// Time of a query as part of best-first search's with the shortest beam that has the recall, k = 10, SIFT 100,000 at
// .95 and .99: .80 and .71 on an AMD EPYC with AVX-512, 1.16 and .94 on one with AVX2 alone; texts of 384 columns at
// .99 .11 and .88 (tests/bench/results.csv, "SLACK"). However large the slack, some sets end at .996 to .999. By inner
// product lengths and not places make a row an answer, and the bound finds no good end: 1.12 to 1.44.
//
// AUTO goes by the counts of calibration (tune/search_work.h), so that it leaves recalls up to .95 to the beam.
//
// Codes of one bit a column do not pay here either (search/best_first.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "search/best_first.h"

namespace gannet {

/// Rows that the list holds for k answers, as far as there are rows. Beyond 512 it would be merged instead of let
/// sink in by AVX-512 (distance/near_list.h), which takes a fifth more time; 1,024 find more of texts (.996 instead of
/// .992 with a slack of 0.08).
constexpr uint32_t slack_list(uint32_t k) { return std::max(512u, 4 * k); }

/// Slacks that calibration tries: steps of a hundredth where the miss is large, then of a quarter. Beyond the
/// last one the list is full of rows within the bound on all sets tried.
inline constexpr float kSlacksTried[] = {0,     0.01f, 0.02f, 0.03f, 0.04f, 0.05f, 0.065f, 0.08f,
                                         0.10f, 0.12f, 0.15f, 0.19f, 0.24f, 0.3f,  0.4f};

/// Finds up to k near rows of one query and leaves them in workspace.neighbors, sorted; returns how many.
uint32_t search_with_slack(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                           const PreparedQuery& query, const Admission& admission, uint32_t k, float slack,
                           SearchWorkspace& workspace, SearchCounts* counts);

/// Slacks that a trace stops at for k answers, ascending; those that are left.
struct SlackFront {
  uint32_t k;
  std::span<const float> slacks;
};

/// One walk that stops for each front at each of its slacks, and leaves there the rows that search_with_slack would
/// compare: calls found(front, compared, counts) with the distances in workspace.distances and the first of
/// front.slacks as the slack, and goes on for that front if it returns true. Walks for all k and slacks take
/// the same steps, nearest row first, and end one after another; one that is about to end waits for the rows on
/// their way, as it would alone, which is all that can make those that go on differ from walks of their own. No
/// row of the set may be removed.
void trace_with_slack(
    const Dataset& dataset, const Codes& codes, const SearchGraph& graph, const PreparedQuery& query,
    const Admission& admission, std::span<SlackFront> fronts, SearchWorkspace& workspace,
    const std::function<bool(const SlackFront& front, uint32_t compared, const SearchCounts& counts)>& found);

}  // namespace gannet

// The cost of a walk and of a comparison of all rows on the CPU, counted, so that every machine makes the same choice.
//
// A walk in bytes that are read in order. An expansion reads the edges of a row, of which there are as many as on average,
// each of which asks the table of visited rows, at kEdgeBytes each; a comparison jumps to a code, at kJumpBytes more
// than the code itself. Rows that enter the list move those behind them, at kListBytes for each of the list's and each
// expansion. Where codes are wide and more than caches hold, they come from memory: of 300,000 rows of
// 768 bytes (1,000 clusters, one thread of an AMD EPYC) walks took 63 to 107 ns a comparison, 2.3 times as long as
// counted without kFarTimes, and at .99 2.7 times as long as to compare all rows. A comparison of all rows in units of
// the time that a walk takes for a byte, by measurement (exact_work).
//
// Of sets of many dimensions walks are long. 200,000 rows, one thread of an AMD EPYC VNNI, batches of 1,000, ten answers,
// us counted at 11 ps a unit, without kListBytes and with caches of 64 MB, now, and measured; and to compare all rows:
//
//     random bits, 256 bytes, .8         315         1,063        1,320         400
//     ReLU, 512 bytes, .95, .99          220, 577   259, 968   320, 1,070   780
//     Student's t, 64 floats, .99        130         314          430           166
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "search/row_bounds.h"

namespace gannet {

/// The edges of a row; where rows vary, their mean.
inline double mean_degree(const SearchGraph& graph) {
  if (graph.is_fixed() || graph.rows == 0) return graph.degree;
  return static_cast<double>(graph.edges.size()) / graph.rows;
}

/// Rows that a walk compares for one query: of the edges that it reads, past `starts` entry points, a quarter lead to new
/// rows.
inline double walk_distances(const SearchGraph& graph, double starts, double expansions) {
  const double compared = starts + expansions * mean_degree(graph) / 4;
  return std::min<double>(graph.rows, compared);
}

/// How many times as long a jump to a code takes as in the caches: more with each byte beyond what these hold, where
/// codes are wide.
inline double far_times(const SearchGraph& graph, size_t row_bytes) {
  constexpr double kFarTimes = 4;
  constexpr size_t kWideBytes = 256;
  constexpr double kCacheBytes = 24 << 20;
  constexpr double kMemoryBytes = 64 << 20;
  if (row_bytes < kWideBytes) return 1;
  const double bytes = static_cast<double>(row_bytes) * graph.rows;
  const double share = std::clamp((bytes - kCacheBytes) / (kMemoryBytes - kCacheBytes), 0.0, 1.0);
  return 1 + share * (kFarTimes - 1);
}

/// The work of a walk for one query that starts at `starts` rows, over codes or rows of `row_bytes`. A beam's rows are
/// nearly all expanded.
inline double walk_work(const SearchGraph& graph, double starts, size_t row_bytes, double beam) {
  constexpr double kEdgeBytes = 512;
  constexpr double kJumpBytes = 512;
  constexpr double kListBytes = 96;
  const double expansions = std::min<double>(beam, graph.rows);
  return expansions * (mean_degree(graph) * kEdgeBytes + expansions * kListBytes) +
         walk_distances(graph, starts, expansions) * (static_cast<double>(row_bytes) + kJumpBytes) *
             far_times(graph, row_bytes);
}

/// The same of one that starts at all entry points.
inline double walk_work(const SearchGraph& graph, size_t row_bytes, double beam) {
  return walk_work(graph, static_cast<double>(graph.entries.size()), row_bytes, beam);
}

/// The work of a walk with a slack bound that starts at `starts` rows, past which it compares as many as a beam's walk. Its
/// steps check more often whether they are the last, and two of them are on their way when it ends. Thread time and
/// distances as parts of the shortest beam's with the recall, one thread, k = 10, on an AMD EPYC with AVX2 and other work
/// beside it:
///
///                        .95          .99          .999
///     SIFT 100k     1.16  .99     .94  .89     .76  .80
///     words         1.28 1.10     .95  .90       -
///     patches       1.34 1.21     .78  .77       -
///     GIST          1.08 1.03     .91  .90     .73  .74
///     texts         1.26 1.01     .88  .83     .48  .49
///
/// An Intel Xeon with 300 MB of cache, where no step waits for memory, took 1.16 and 1.06 of the beam's time on SIFT
/// at .95 and .99; an AMD EPYC with AVX-512 less of the time than of the distances (search/slack.h). No row of the
/// first two takes more than 1.2 times its part of the distances but short walks, which compare no fewer rows than a
/// beam's; the third is left some of its gain, since no choice goes by the machine. And queries harder than the rows that
/// calibration hides make a bound compare more, a beam hardly: words at .99 12 % more, where the counts were even and the
/// time was 1.20 with a bound, 1.04 with a beam.
inline double slack_work(const SearchGraph& graph, double starts, size_t row_bytes, double beam) {
  constexpr double kOnTheirWay = 2;
  constexpr double kBeside = 1.25;
  return kBeside * walk_work(graph, starts, row_bytes, beam + kOnTheirWay);
}

/// The work of comparing all rows, for each query of a batch. Batches share the reading of the rows, and from some
/// twenty queries a thread on rows of floats are compared as codes (search/row_bounds.h); bytes only on some machines.
/// Queries are taken to be shared by four threads, since a choice must go neither by the machine nor by the number of
/// threads; with more of them batches from 96 queries to 24 a thread are compared as stored, at up to 3.4 times the
/// count. Thread time of a query in batches of one thread, k = 10, and the work, in units of 18 ps where rows are
/// compared as stored and of 12 as codes, in us on an AMD EPYC with AVX-512 VNNI, where walks with long beams take 11 to
/// 12 ps for a unit:
///
///     queries                    1           4          16          32         100         400
///     patches, 60,000    1230 1106    598  556    431  419    311  302    140  141     81   84
///     SIFT 100k, u8       951  691    862  509    446  464    254  464    124  464     78  464
///     words, 150,000     2415 1771   1460 1030   1217  845    452  513    216  238    136  140
///     GIST, 30,000       3028 2212   1509  879   1092  546    651  546    305  261    164  158
///     texts, 100,000     4454 3226   2046 1428   1394  979    565  838    290  394    198  237
///
/// Of n rows that come in no order k (1 + ln n / k) enter a list of k, at kEnterBytes each: 1,000 queries for a hundred of
/// 60,000 patches take 149 us each where ten take 110, of 200,000 rows of bytes 455 and 408.
inline double exact_work(const Dataset& dataset, uint64_t queries, uint32_t k) {
  constexpr uint64_t kThreads = 4;
  constexpr double kEnterBytes = 5000;
  constexpr double kDirect = 16;
  constexpr double kCodedMost = 1024;
  const double bytes = static_cast<double>(dataset.view().stride);
  const double answers = std::min<double>(k, dataset.rows());
  const double entering = answers == 0 ? 0 : answers * (1 + std::log(dataset.rows() / answers)) * kEnterBytes;
  const double together = std::max(1.0, static_cast<double>(queries / kThreads));
  const double direct = 230 + 0.15 * bytes + (26 + 0.85 * bytes) / std::min(together, kDirect);
  if (!is_float_element(dataset.element()) || together < RowBounds::kFewestOfFloats)
    return dataset.rows() * direct + entering;
  const double coded = 27 + 0.33 * dataset.dim() + (3600 + 9 * bytes) / std::min(together, kCodedMost);
  return dataset.rows() * std::min(direct, coded) + entering;
}

}  // namespace gannet

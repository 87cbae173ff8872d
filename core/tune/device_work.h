// The cost of a batch on a CUDA device, counted: the expansions, edges, rows and bytes of each procedure's plan, times
// factors of the device class that stand here. No time that a process measures enters a choice, so that equal indexes
// answer equally.
//
// The factors are nanoseconds of one NVIDIA H200. Those of walks by lists in large batches are fitted to 10,000 queries
// from host memory over graphs of 32 edges: SIFT 1M (u8, 128 bytes), patches (60,000 x 192 f16, codes of 768 bytes),
// words (150,000 x 100, 104), gist (30,000 x 960, 964) and a ball of 30 dimensions (1M x 64, 64), k of 10 and 100 at
// .90, .95 and .99. Of 84 times 62 lie within a third of the time counted here and the time of the copies. By these
// factors the fastest of a warp, a block and one list is taken in 27 of the 30 cells, a way that takes at most 6 %
// longer in two, and in the last named walks were measured at .995 alone.
//
// By inner product, of codes with a scale for each row, blocks take .65 to .78 of that (150,000 words, 33 to 936
// expansions, 10 and 100 answers, one NVIDIA H100), warps as long.
//
// Walks by a warp wait longer for rows wider than 128 bytes, and small batches for their longest walks. These are
// fitted to one NVIDIA H100 from device memory, 10,000 and 1,000 queries, graphs of 32, 48 and 64 edges; ms measured
// and counted, 48 edges, of texts and gist 32:
//
//                                             10,000, by a warp      1,000, by a warp       by a block of 8
//   SIFT 1M, 128 bytes, 46, 63 expansions  .64  .70   .95  .90    .36  .50   .49  .68    .40  .51   .52  .68 *
//   words, 104, 27, 36                     .35  .41   .47  .51    .23  .26   .36  .34      -          -
//   patches, 850,000, 384, 47, 110        2.09 1.57  3.88 3.27   1.28 1.13  2.65 2.69    .48  .28   .56  .36 **
//   texts, 384, 46, 111                   1.05 1.13  2.27 2.30    .76  .74  1.54 1.79    .34  .30   .45  .40 ***
//   gist, 964, 31, 56                     1.17 1.18  1.79 1.79    .50  .68   .94 1.22    .42  .38   .50  .49 ****
//
//   * 131 and 175 expansions for 100 answers, ** 33 and 42, *** 53 and 69, **** 48 and 62
//
// The first queries wait for a block's own steps. Fitted to one and to 100 queries from device memory (one NVIDIA H200,
// rows as f32, in brackets bytes of codes and edges); us of a block of 16 warps for ten answers, of 8 for a hundred and at
// the highest recall, as measured (33 us of the caller's less) and counted, with the mean expansions:
//
//                                          16 warps                            8 warps
//                                  exp   one       100            exp   one        100
//   words, cosine (128, 48)        22   33  38   38   41          48   82  89    88  100
//                                  34   36  43   39   47         165  177 183   220  222
//   words, product (128, 32)       79   44  44   89   48         154  102 108   140  125
//                                 282   71  80  189  102         459           332  274
//   patches (208, 32)              42   47  41   86   45          96   96 105   112  122
//   five shells (48, 48)           71   58  55   87   63         110  137 132   158  157
//                                 213  117 105  201  143         310  289 281   371  351
//   ReLU (512, 32)                161  109  85  204  203         290  291 258   432  321
//                                 267  110 121  260  337        1381  994 1042 2275 1339
//
// A batch waits for its longest walk, 1.3 times the mean as a rule; 100 queries of patches at .999 took 5 times as long.
// Batches of 133 to 500 queries, which eight warps answer, are between this and the table above, and were not fitted.
//
// The other factors come from graphs of 64 edges, of which an expansion takes less than twice as long as of 32. Per
// query of batches of 10,000, and for batches of 1,000, in which walks wait for memory and not for each other, per step
// of the longest; patches (850,000 x 192) and texts (100,000 x 384) as f32 with codes of bytes:
//
//   two lists, a warp   SIFT 35 ns at .95, 72 at .99; 5 us an expansion in batches of 1,000
//   one list            beams of 64, 256: SIFT 159, 481 ns, patches 228, 530, texts 216, 633; 1,024: 6.7 to 8.7 us
//   CAGRA, codes        M of 64, 256: SIFT 198, 910 ns; 7 us a row of M
//   CAGRA, f32          patches .70, 2.3 us, texts 1.3, 4.7 us; 26 and 51 us a row of M
//   CAGRA, f32, one     patches 1.28 ms at .99, texts 4.75 ms at .999
//
// More than 16 queries of floats are filtered by tensor cores (search/exact_filter.cuh). Their factors are fitted to
// 17, 64, 129, 300, 1,000 and 10,000 random queries for k of 1, 10, 100 and 1,000 over 12 sets of 10,000 to 1,000,000
// rows of 16 to 960 columns (one NVIDIA H200): of 288 times the middle four fifths lie within .80 and 1.17 of the
// model's, all within .54 and 1.51. Rows of few islands, which take three products, are not counted as such. Of sets
// that the fit has not seen are, measured and counted, in ms:
//
//                                     k = 10                                           100
//                                     32          300         1,000       10,000       1,000 queries
//   60,000 x 192 f16, cosine        .28  .31    .35  .36    .52  .46   2.88 2.44    .86  .90
//   500,000 x 128 f32, normal       .54  .62    .74  .81   1.19 1.28   8.45 8.97   1.59 1.80
//   500,000 x 512 f32, of rank 64  1.16 1.15   1.56 1.71   2.76 3.09   20.7 24.2   3.44 4.11
//
// More than 8 queries of integers likewise, by 9, 64, 129, 1,000 and 10,000 queries of five sets of 30,000 to 1,000,000
// rows of 32 to 960 columns: of 100 times the middle four fifths lie within .83 and 1.17, all within .60 and 1.68. Few
// queries, in us, measured and counted for 1, 4 and 16 queries (of integers 8), k = 10:
//
//   500,000 x 128 f32    151 155    269 285     650  707      1,000,000 x 128 u8    120 137    233 276    414 413
//   500,000 x 512        313 355    482 531    1450 1590      300,000 x 512         132 110    275 250    286 291
//   1,000,000 x 16       169 145    417 376     808  796      100,000 x 128          59  57     69  73    144 163
//   100,000 x 960        162 156    217 204     602  606      1,000,000 x 20         99 105    156 153    393 349
//
// Batches of 1,000 that one list answers wait for the bytes of its edges. A row of the beam takes 2.1 us of words
// (codes of 104 bytes), 2.5 of SIFT (128) and 5.5 of patches (768), beside 0.1 to 0.3 ms (one NVIDIA H100, degree 32,
// beams of 32 to 1,024); batches of other sizes are taken to wait as long. Lists beyond 1,024 rows take longer for each
// row: with 1,800 10,000 queries of SIFT took 12 us each.
//
// Other classes are taken to be alike: of two ways one is chosen only where it is some times the cheaper one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "dataset/dataset.h"
#include "graph/search_graph.h"
#include "search/exact_cuda.h"

namespace gannet {

/// A batch of queries to come: how many, and for how many answers.
struct DeviceBatch {
  double queries;
  uint32_t k;
};

/// The longer of one query's latency and the time of all of them together, in ns.
inline double batch_time(double latency, double each, const DeviceBatch& batch) {
  return std::max(latency, batch.queries * each);
}

inline double degree_share(const SearchGraph& graph) { return graph.degree / 64.0; }

/// Batches that keep a device busy to their end.
inline constexpr uint32_t kLargeBatch = 4096;
inline bool is_large(const DeviceBatch& batch) { return batch.queries >= kLargeBatch; }

/// The warps that walk for a query with two lists, and how.
struct TwoListsWalk {
  uint32_t warps;  // 1, or a block of 8 or 16
  bool capped;     // of a batch that a warp each walks for at once, cut near the mean
  bool scaled;     // by codes with a scale for each row
};

/// The time of a walk by a warp, whose lanes wait for whole rows, by their bytes, where rows of 100 take 1.
inline double waiting(double bytes) {
  return 1 + 0.0055 * std::clamp(bytes - 100, 0.0, 300.0) + 0.0015 * std::max(0.0, bytes - 400);
}

/// Two lists. A query of a large batch takes, beside its expansions, its preparation, its starts and the second
/// comparison. A smaller batch waits for the longest walks, of several times the mean where they are not cut there.
inline double two_lists_time(const SearchGraph& graph, size_t code_bytes, const TwoListsWalk& walk,
                             double expansions, const DeviceBatch& batch) {
  const double edges = expansions * degree_share(graph);
  const double bytes = static_cast<double>(code_bytes);
  const bool large = is_large(batch);
  if (walk.warps == 1) {
    const double longest = walk.capped ? 5000 : 12'500 * waiting(bytes);
    return batch_time(longest * edges, waiting(bytes) * (large ? 12 + 1.4 * edges : 1.2 * edges), batch);
  }
  const bool is_wide = walk.warps == 16;
  const double share = walk.scaled ? 0.7 : 1;
  const double step = share * (is_wide ? 450 : 950) * (1 + bytes / 1000) * (batch.queries > 1 ? 1.3 : 1);
  const double each = large ? (1 + bytes / 700) * (7 + 0.27 * edges) : waiting(bytes) * 0.56 * edges;
  return batch_time((is_wide ? 30'000 : 50'000) + step * edges, share * walk.warps * each, batch);
}

/// One list of a warp. Long beams leave room for fewer warps at once: 320 rows took SIFT 1.9 times as long as their
/// edges say, 550 the ball of 30 dimensions 1.8 times, 1,800 SIFT 5.7 times (degree 32).
inline double one_list_time(const SearchGraph& graph, size_t code_bytes, double beam,
                            const DeviceBatch& batch) {
  const double edges = beam * degree_share(graph);
  const double bytes = static_cast<double>(code_bytes);
  const bool large = is_large(batch);
  const double crowding = beam > 768 ? 3 * std::max(1.0, beam / 1024) : large && beam > 256 ? 2 : 1;
  const double each = large ? 40 + edges * (2 + 0.003 * bytes) : edges * (1.7 + 0.0025 * bytes);
  return batch_time(100'000 + edges * (3600 + 10 * bytes), crowding * each, batch);
}

/// CAGRA's searches, by one CTA a query or several. In batches of 10,000 over graphs of 32 to 64 edges M of 258 to
/// 482 took 1.3 to 2.4 times as long as the rest says (words, SIFT), of 866 on SIFT and of 1,544 on 850,000 patches
/// 8.8 and 4.5 times (one NVIDIA H100).
inline double cagra_time(const SearchGraph& graph, size_t row_bytes, double list, bool multi_cta,
                         const DeviceBatch& batch) {
  const double edges = list * degree_share(graph);
  const double bytes = static_cast<double>(row_bytes);
  const double step = (4500 + 28 * bytes) / (multi_cta ? 2 : 1);
  const double crowding = list > 512 ? 7 : list > 256 ? 1.7 : 1;
  return batch_time(step * edges, crowding * edges * (1.9 + 0.0098 * bytes), batch);
}

/// The time of comparing all rows where tensor cores filter them (search/exact_cuda.cu), in ns.
struct FilterFactors {
  double launch;  // of a batch, beside what follows
  double row;     // to measure and round a row for a batch; and each of its columns
  double row_column;
  double pair;  // to multiply a pair and look at it; and each of its columns
  double pair_column;
  double panel;  // columns that are multiplied together
  double wait;   // for each row that is summed for a query, where queries are few; and each of its columns
  double wait_column;
  double sum;  // the same for every query where they are many
  double sum_column;
};
inline constexpr FilterFactors kFilterOfFloats = {48'000, 0.158, 0.00165, 0.000449, 0.00000716,
                                                  64,     77,    0.43,    0.168,    0.000359};
inline constexpr FilterFactors kFilterOfIntegers = {54'600, 0.0584, 0,     0.000545, 0.00000329,
                                                    128,    197,    0.145, 0.232,    0.000097};

/// For each batch the rows are rounded, in launches of more and more rows; every pair is multiplied, in tiles; and some
/// of a query's pairs in each launch are summed, which few queries wait for.
inline double filtered_time(const FilterFactors& factors, double rows, double columns,
                            const DeviceBatch& batch) {
  constexpr double kTileQueries = cuda::kFilterQueries;
  constexpr double kGrowth = cuda::kFilterGrowth;
  const double answers = std::max(batch.k, 1u);
  const auto first = static_cast<double>(cuda::exact_first_rows(std::max(batch.k, 1u)));
  const auto dim = static_cast<uint64_t>(columns);
  const double together = std::min(batch.queries, static_cast<double>(cuda::exact_batch(dim)));
  const auto most = static_cast<double>(cuda::exact_filter_rows(
      static_cast<uint64_t>(rows), dim, std::max<uint64_t>(1, static_cast<uint64_t>(together))));
  const double launches = std::max({1.0, std::log2(rows / first) / std::log2(1 + kGrowth), rows / most});
  const double rounding = factors.launch * launches + rows * (factors.row + factors.row_column * columns);
  const double multiplied = factors.panel * std::ceil(columns / factors.panel);
  const double summed = first + kGrowth * answers * launches;
  return std::ceil(batch.queries / together) * rounding +
         kTileQueries * std::ceil(batch.queries / kTileQueries) * rows *
             (factors.pair + factors.pair_column * multiplied) +
         summed * (factors.wait + factors.wait_column * columns +
                   batch.queries * (factors.sum + factors.sum_column * columns));
}

/// The same where rows stream from memory for each query (search/exact_stream.cuh); those after the first find them in
/// a cache.
inline double streamed_time(const Dataset& dataset, const DeviceBatch& batch) {
  const double rows = dataset.rows();
  const double bytes = dataset.dim() * static_cast<double>(element_bytes(dataset.element()));
  const bool is_float = is_float_element(dataset.element());
  const double first = is_float ? 0.08 + 0.00026 * bytes : 0.05 + 0.0003 * bytes;
  const double next = is_float ? 0.075 + 0.00002 * bytes : 0.01 + 0.00028 * bytes;
  return 48'000 + rows * (first + (batch.queries - 1) * next) + 60 * batch.queries * batch.k;
}

/// Every row compared.
inline double exact_time(const Dataset& dataset, const DeviceBatch& batch) {
  const double rows = dataset.rows();
  const double columns = dataset.dim();
  const double answers = batch.k;
  const bool is_float = is_float_element(dataset.element());
  if (batch.queries > cuda::few_queries(is_float))
    return filtered_time(is_float ? kFilterOfFloats : kFilterOfIntegers, rows, columns, batch);
  if (batch.queries <= cuda::kExactStreamed) return streamed_time(dataset, batch);
  if (is_float) {
    constexpr double kTileQueries = cuda::kExactFewFloats.queries;
    return 90'000 + std::ceil(batch.queries / kTileQueries) * rows * (0.31 + 0.0023 * columns) +
           80 * batch.queries * answers;
  }
  constexpr double kRowsOfLists = 200'000;  // that give the lists of all slices half of their candidates
  return 130'000 + rows * (0.19 + 0.0006 * columns) + 2000 * answers * rows / (rows + kRowsOfLists);
}

}  // namespace gannet

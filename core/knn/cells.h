// The k-NN graph by cells: every row is compared with the k-means cells around it, block by block.
// The default on the CPU.
//
//   map       k-means on a sample; every row lives in the cell of its nearest centroid; the rows of
//             each cell are packed as the right side of a tile              (cells_map.h)
//   recall    the true neighbours of 256 sampled rows; from them, the number of rows around it that a row must
//             be compared with for a share of 0.97 to be among them         (cells_recall.h)
//   products  every row with the nearest cells that hold that number: rows that probe a cell are
//             gathered, tiles computed, the nearest kept                    (cells_products.h)
//   refine    where the sample's recall is below 0.955: the neighbours of neighbours, up to three rounds
//             as long as they help                                          (cells_refine.h)
//   fall back where even then less than 0.90 is found: NN-Descent, and the better of both lists
//
// Float codes. Tiles of floats take six to ten times as long as tiles of bytes, so bytes find the candidates of each
// row, k / 2 + 24 more than wanted, which are re-ranked as floats; refinement compares floats. In turn are tried, as
// long as a sample finds its true neighbours early enough among candidates, and the lists hold enough of theirs:
//   one step for all rows (Codes::as_bytes), of which the map is, too, where floats are three times as long (from 33
//     columns on); the projection of many columns likewise (dataset/projected_codes.h): GIST's lists take .6 s, not 1.3
//   a step for each row, about the centroid of the cell that it is compared with (distance/residuals.h): it orders rows
//     of all scales. A map of floats takes longer, .1 s of 60,000 patches' .6
//   the floats
// Where lengths or densities differ one step is trusted with .5 to .7 of the sample's rows, a step for each row with
// all. 200,000 rows, two threads, whole builds by floats and by residuals: 64 columns of log-normal lengths 40 and 16 s,
// 2,000 clusters of scales .01 to 1 11.5 and 6.3 s.
//
// Sets of many dimensions want hundreds of cells for each row. It then chooses among all cells, not among those around
// its own, and takes the nearest 511 of too many, not the first. 200,000 rows uniform in 32 columns found .78 of their
// neighbours by products, and .97 since, shells of 24 columns whose radii are 1 to 100 .52 and .97, bits of 256 columns
// .40 and .92: NN-Descent, which followed, found .92 of the shells' and .21 of the bits'.
//
// Why it is fast. NN-Descent gathers 64 rows for 1,536 distances of which most are of no use; here a
// cell is read once for some 60 rows. On 100,000 x 128 bytes a row is compared with 9,000 others,
// 0.65 ns each with VNNI (one instruction a clock), which is 6 us; all of it takes 14 us a row, where
// NN-Descent takes 90.
//
// Cost of a row, n rows, k = 48, 128 columns of bytes:
//   operations  3 rounds of training on a sixth of the rows and one of settling: n / 192 pairs, twice;
//               up to 512 pairs to choose cells, or all cells; 9,000 pairs of products; selection by 3 instructions
//               for 16 pairs and about 150 entries, thinned out three times
//   bytes held  6 for members of cells, 136 for the packed copy, 576 for lists (twice neighbours, once
//               distances); the rest is a few MB a thread
//   bytes read  its code three times; a cell of 25 KB is read from the third cache once for every
//               unit of 400 rows, of which some 60 probe it: 20 KB
//
// Rejected, measured against it (SIFT 100,000 x 128, words 150,000 x 100, gist 30,000 x 960):
//   - Fewer rows compared and then a round of refinement (0.90 and one round) costs the same time, and
//     on the words 18 % more distances a search at recall 0.99: the mean is the same, but rows whose
//     neighbours lie in many cells keep poor lists, since their neighbours' neighbours are no better.
//   - Inserting x into the list of y where y is in the list of x (no distance is needed): recall +0.03 for a fifth of
//     the products' time, and no fewer distances in a search, whose graph has reverse edges anyway.
//   - The share 0.97: a search needs 1, 3 and 3 % more distances at recall 0.95 than with exact lists,
//     and 1, 6 and 5 % more at 0.99. A share of 0.96 saves a tenth of the time and needs 1 to 3 % more at
//     0.99; 0.98 takes a sixth longer for no difference that 1,000 queries show; 0.90 needs 2, 6 and 6 %
//     more at 0.95.
//   - Cells of 128 or 256 rows instead of 192: 5 to 10 % slower.
//   - Choosing cells by distance less the cell's radius: half of the true neighbours.
//
// Determinism. A row's list depends on the order in which it sees cells, only among equal distances,
// and that order is fixed; integer sums and floats in fixed lanes do the rest. So the graph does not
// depend on threads or instruction set.
//
// The CUDA version (cells_cuda.h) has the same phases with other cells, and its own graph; where it finds too little it
// merges lists of NN-Descent and of other maps.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "knn/knn_graph.h"
#include "knn/nn_descent.h"

namespace gannet {

/// Shares of the true neighbours.
struct CellShares {
  double wanted = 0.97;   // that the products aim at
  double enough = 0.955;  // below which refinement follows
  double least = 0.90;    // below which NN-Descent is tried
};

/// k and seed are those of `params`; the rest of it serves the fall back. The graph's `iterations` are
/// rounds of refinement, or of NN-Descent where it took over.
KnnGraph cells_knn(const Codes& codes, const NnDescentParams& params, const Execution& execution,
                   const CellShares& shares = {});

/// Bytes that cells_knn takes at most, its result included.
uint64_t cells_knn_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads);

}  // namespace gannet

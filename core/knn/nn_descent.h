// NN-Descent as GNND does it: "a neighbour of a neighbour is probably a neighbour", round by round.
//
// Paper: "Large-Scale Approximate k-NN Graph Construction on GPU", Algorithm 1 and section 4.
//   G[s]          the list of row s: up to k (distance, row, NEW or OLD), ascending
//   p             entries sampled from a list in a round, for NEW and OLD each
//   G_new, G_old  the samples of each row: up to p of its own, then reverse ones, at most 2 p in all
//   selective update   of all pairs that meet at s, each row is told only its nearest new acquaintance
//
// One round:  sample (own, then reverse) -> at each s let NEW meet NEW and NEW meet OLD -> insert.
// Sampled NEW entries turn OLD. It ends after `iterations` rounds, or when the lists hold
// fewer than `convergence` * k * rows NEW entries.
//
// Cost of a round and row, at p = 16: (2p)^2 / 2 + (2p)^2 = 1,536 distances, of codes that were
// gathered once (64 rows): 64 * stride bytes read. At 128 columns that is 8 KB and, with VNNI, about
// 3,000 instructions; 96 insertions are offered, of which few get past the first comparison.
//
// Departures from the paper.
//   - Same seed, same graph, for any number of threads and on a device. The paper fills reverse samples
//     in the order in which threads come and calls that random. Here the candidates of a row are ordered
//     by a hash of both ends and the round, and the first are taken.
//   - A list is one piece: the k smallest of a set of keys do not depend on the order in which they
//     come, while what a segment of 32 keeps depends on which rows fall into it. On the CPU a spin lock
//     guards a list; nn_descent.cu says what does on a device.
//   - The end: the paper stops after MaxIter rounds. `convergence` is classic NN-Descent's rule, with
//     NEW entries in place of insertions.
//   - Distances are those of codes (dataset/codes.h).
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "knn/knn_graph.h"

namespace gannet {

struct NnDescentParams {
  uint32_t k = 0;
  uint32_t samples = 0;  // p
  uint32_t iterations = 0;
  float convergence = 0;
  uint64_t seed = 0;
};

KnnGraph nn_descent(const Codes& codes, const NnDescentParams& params, const Execution& execution);

/// Bytes that nn_descent takes at most, its result included.
uint64_t nn_descent_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads);

}  // namespace gannet

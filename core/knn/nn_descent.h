// NN-Descent as GNND does it: "a neighbour of a neighbour is probably a neighbour", round by round.
//
// Paper: "Large-Scale Approximate k-NN Graph Construction on GPU", Algorithm 1 and section 4.
//   G[s]          the list of row s: up to k (distance, row, NEW or OLD), ascending
//   p             entries sampled from a list in a round, for NEW and OLD each
//   G_new, G_old  the samples of each row: up to p of its own, then reverse ones, at most 2 p in all
//   selective update   of all pairs that meet at s, each row is offered only its nearest new acquaintance
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
//     come, while the keys that a segment of 32 keeps depend on which rows fall into it. On the CPU a spin lock
//     guards a list; nn_descent.cu describes the guard on a device.
//   - The end: the paper stops after MaxIter rounds. `convergence` is classic NN-Descent's rule, with
//     NEW entries in place of insertions.
//   - Distances are those of codes (dataset/codes.h).
//
// Two graphs become one by the same rounds (GGM, knn/merge.h) where TwoSets gives their start.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "base/random.h"
#include "knn/knn_graph.h"

namespace gannet {

struct NnDescentParams {
  uint32_t k = 0;
  uint32_t samples = 0;  // p
  uint32_t iterations = 0;
  float convergence = 0;
  uint64_t seed = 0;
};

/// Lists of two sets of rows that become one graph's: only rows of different sets are compared.
///
/// A list starts with `kept` neighbours, which are OLD, and k - kept rows of the other set, which are NEW. So a
/// NEW entry is always of the other set, and an OLD one is sampled only if it is of the row's own: at each row
/// OLD samples of its set meet NEW ones of the other, and nothing else can.
struct TwoSets {
  static constexpr uint64_t kDrawStream = 3;

  uint32_t first_rows = 0;              // rows below are the first set; 0: one set
  uint32_t kept = 0;                    // less than k
  const uint32_t* neighbors = nullptr;  // [rows, kept] kNoRow behind the last; in a device's memory for CUDA

  constexpr bool same(uint32_t row, uint32_t other) const {
    return (row < first_rows) == (other < first_rows);
  }
  /// A list's i-th row of the other set, of `count`.
  constexpr uint32_t drawn(uint32_t row, uint32_t i, uint32_t count, uint32_t rows, uint64_t seed) const {
    const uint32_t begin = row < first_rows ? first_rows : 0;
    const uint32_t others = row < first_rows ? rows - first_rows : first_rows;
    return begin + static_cast<uint32_t>(random_below(others, seed, kDrawStream, uint64_t{row} * count + i));
  }
};

/// `sets`: of two sets, neither of which is empty.
KnnGraph nn_descent(const Codes& codes, const NnDescentParams& params, const Execution& execution,
                    const TwoSets& sets = {});

/// Bytes that nn_descent takes at most, its result included.
uint64_t nn_descent_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads);

/// Places for offers to a row on a device, in the slice of a round.
inline constexpr uint32_t kDescentOffers = 32;

/// Device memory that it takes there at most, beside codes and result.
uint64_t nn_descent_device_bytes(uint64_t rows, const NnDescentParams& params);

}  // namespace gannet

// recall.h: how many of the true neighbours were found, by two rules.
#pragma once

#include <cstdint>
#include <vector>

#include "vector_file.h"

namespace bench {

// The distance of a query from a row, computed here, not by the library that is measured: Euclidean
// (not squared), the negated inner product, or 1 - cosine.
class PairDistance {
 public:
  PairDistance(const Vectors& rows, const Vectors& queries, int32_t metric);
  double operator()(uint64_t query, uint64_t row) const;

 private:
  const Vectors& rows_;
  const Vectors& queries_;
  int32_t metric_;
};

struct Recall {
  double by_id = 0;        // share of the first k true row numbers that were returned
  double by_distance = 0;  // share of results no farther than the k-th true one, plus 0.001: the
                           // rule of ann-benchmarks, under which rows at equal distance are equal
};

// `found` is [queries, k]; a number that is no row's, or comes twice for one query, counts nothing.
// Query q of `found` is query q of `truth`, which holds at least k neighbours each.
Recall recall_of(const std::vector<uint64_t>& found, uint64_t queries, uint32_t k, const GroundTruth& truth,
                 uint64_t rows, const PairDistance& distance);

// Of `k` rows that were found for a query, nearest first, those that are no farther than its k-th true neighbour.
uint32_t count_near(const GroundTruth& truth, uint64_t query, const float* distances, uint32_t k);

}  // namespace bench

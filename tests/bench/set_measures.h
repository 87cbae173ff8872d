// set_measures.h: what true neighbours say about a set: its local intrinsic dimension, and how many of
// a grown row's neighbours are its siblings.
#pragma once

#include <cstdint>
#include <functional>

#include "exact_search.h"
#include "vector_file.h"

namespace bench {

// The maximum-likelihood estimate of Levina and Bickel from each query's 20 nearest rows, averaged
// as MacKay and Ghahramani advise (the mean of the inverse). Neighbours at distance 0 are left out.
double local_intrinsic_dimension(const GroundTruth& truth);

// The same for a sample of a set's own rows; each is left out of its own neighbours.
struct SetMeasures {
  double intrinsic_dim = 0;
  // Of the 10 nearest others of a row, those whose source is the row's.
  double siblings_mean = 0;
  uint32_t siblings_max = 0;
  double siblings_above_2 = 0;  // share of the rows
};
// `source_of` may be empty.
SetMeasures measure_set(const Vectors& rows, uint64_t samples, uint64_t seed,
                        const std::function<uint64_t(uint64_t row)>& source_of,
                        int32_t device = ANN_DEVICE_AUTO);

}  // namespace bench

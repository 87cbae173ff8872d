// CAGRA's searches of an index: a caller's parameters completed and checked, and the batch on the CPU.
#pragma once

#include "ann.h"
#include "index/index.h"

namespace gannet {

/// Whether a procedure is one of CAGRA's.
constexpr bool is_cagra(int32_t procedure) {
  return procedure >= ANN_SEARCH_CAGRA && procedure <= ANN_SEARCH_CAGRA_MULTI_CTA;
}

/// Every choice of a search of `queries` queries made. `multiprocessors` of the device stand for the
/// threshold b_T where the caller leaves it open; 0 on the CPU.
CagraPlan plan_cagra(const Built& built, const ann_search_params& params, uint64_t queries, uint32_t k,
                     float recall, uint32_t multiprocessors);

/// Answers queries on the CPU as a device would.
void search_batch_cagra(const Built& built, const MatrixView& queries, const CagraPlan& plan,
                        const ResultsView& results, const Execution& execution, SearchCounts* counts);

}  // namespace gannet

// How many queries of a batch one run of the kernels takes.
#pragma once

#include <cstdint>

#include "search/plan.h"

namespace gannet::cuda {

/// A walk of a thousand answers takes some 2 ms and some 500 run at a time, so that a run ends within the
/// 100 ms that cancelling promises.
constexpr uint64_t queries_per_run(uint32_t k) { return k <= kTwoListsMax ? 131'072 : 16'384; }

/// Runs are not made smaller than this where device memory is refused.
inline constexpr uint64_t kQueriesPerRunMin = 256;

}  // namespace gannet::cuda

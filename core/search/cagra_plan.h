// The plan of a search as CAGRA: a caller's parameters completed and checked (section IV-C).
#pragma once

#include "ann.h"
#include "search/cagra.h"
#include "segment/segment.h"

namespace gannet {

/// Refuses a k or a beam of the caller's that no list holds.
void check_cagra_list(const ann_search_params& params, uint32_t k);

/// M for k neighbours from a beam: at least k, a multiple of 32, at most kCagraListMax.
uint32_t cagra_list_of(uint32_t k, uint32_t beam);

/// Every choice of a search of `queries` queries with M `list` over all lists. `multiprocessors` of the device
/// stand for the threshold b_T where the caller leaves it open; 0 on the CPU.
CagraPlan plan_cagra(const Segment& segment, const ann_search_params& params, uint64_t queries, uint32_t k,
                     uint32_t list, uint32_t multiprocessors);

}  // namespace gannet

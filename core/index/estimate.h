// The memory that a build will need. Every phase states its own bytes, beside the code that allocates them; here they
// are added.
#pragma once

#include "index/parameters.h"

namespace gannet {

/// The estimate of a build, with ids or without; all members but struct_size are filled.
void estimate_build(const ann_index_params& shape, uint64_t rows, int32_t element, bool ids,
                    const BuildPlan& plan, ann_plan* out);

}  // namespace gannet

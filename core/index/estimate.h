// What a build will need. Every phase states its own bytes, beside what allocates them; here they are added.
#pragma once

#include "index/parameters.h"

namespace gannet {

/// What such a build needs, with ids or without; all members but struct_size are filled.
void estimate_build(const ann_index_params& shape, uint64_t rows, int32_t element, bool ids,
                    const BuildPlan& plan, ann_plan* out);

}  // namespace gannet

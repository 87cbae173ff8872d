// Exact search of a Dataset on a CUDA device.
#pragma once

#include "place/placement.h"
#include "search/queries.h"

namespace gannet {

/// As search_exact (search/exact.h), on an ANN_DEVICE_CUDA + i, with equal answers. `excluded` is
/// [queries], the row that each must not find, or null, `removed` rows that none finds. At most kExactMax
/// rows are kept for a query, the excluded one counted (search/exact_cuda.h). `placed`, unless null, is the
/// placement there, whose rows are compared instead of being sent.
void search_exact_on_device(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
                            int32_t device, const ResultsView& results, const Execution& execution,
                            const DevicePlacement* placed = nullptr, const RowSetView& removed = {});

/// The CodeOrder::kLooked rows that are nearest to each of `rows` by code, equal ones by number, to `first`; kNoRow
/// where there are no more. A row is not near itself.
void first_by_code_on_device(const Codes& codes, const Array<uint32_t>& rows, const DevicePlacement& placed,
                             uint32_t* first, const Execution& execution);

}  // namespace gannet

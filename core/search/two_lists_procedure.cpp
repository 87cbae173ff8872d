// The walk of CUDA devices with two lists as a row of the table. One warp walks for a query, or a block of 8 or 16.

#include "search/device_search.h"
#include "search/procedure.h"

namespace gannet {
namespace {

/// Refuses a walk that is named and cannot find k neighbours.
void check(const SearchTarget& target, const SearchRequest& request) {
  if (request.params.beam != 0)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, it must be 0 where procedure is %d, which has two lists",
         request.params.beam, request.params.procedure);
  const uint32_t warps = request.params.warps_per_query;
  const DevicePlacement& device = *target.device;
  if (warps != 1 && !blocks_serve(device, 1))
    fail(ANN_UNSUPPORTED, "rows of %zu bytes are too long for a walk by blocks on this device",
         target.segment().codes.stride());
  const uint32_t most = warps == 1 ? kTwoListsMax : warps == 8 ? kBlockListMax : kWideBlockListMax;
  const uint32_t length = list_length(request.k, device.view().lossless);
  if (length > most || (warps != 1 && !blocks_serve(device, request.k)))
    fail(ANN_LIMIT, "results.k is %u, a walk with %u warps keeps %u rows, and of this index needs %u for it",
         request.k, warps, most, length);
}

SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort& effort) {
  return TwoListsPlan{static_cast<float>(effort.knob), effort.expansions_max, effort.warps};
}

}  // namespace

constinit const Procedure kTwoLists = {.id = ANN_SEARCH_TWO_LISTS,
                                       .name = "TWO_LISTS",
                                       .knob = Knob::kSlack,
                                       .on_device = true,
                                       .check = check,
                                       .plan = plan};

}  // namespace gannet

// The walks of CUDA devices with two lists as rows of the table: by one warp, by a block of 8, by a block of 16.

#include "search/device_search.h"
#include "search/procedure.h"

namespace gannet {
namespace {

uint32_t warps_of(int32_t procedure) {
  return procedure == ANN_SEARCH_WARP ? 1 : procedure == ANN_SEARCH_BLOCK ? 8 : 16;
}

/// Refuses a procedure that was asked for by name and cannot find so many neighbours.
void check(const SearchTarget& target, const SearchRequest& request) {
  if (request.params.beam != 0)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, it must be 0 where procedure is %d, which has two lists",
         request.params.beam, request.params.procedure);
  const uint32_t warps = warps_of(request.params.procedure);
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

template <uint32_t kWarps>
SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort& effort) {
  return TwoListsPlan{static_cast<float>(effort.knob), effort.expansions_max, kWarps};
}

template <uint32_t kWarps>
constexpr Procedure make_row(int32_t id, const char* name) {
  Procedure row;
  row.id = id;
  row.name = name;
  row.knob = Knob::kSlack;
  row.on_device = true;
  row.warps = kWarps;
  row.check = check;
  row.plan = plan<kWarps>;
  return row;
}

}  // namespace

constinit const Procedure kWarpTwoLists = make_row<1>(ANN_SEARCH_WARP, "WARP");
constinit const Procedure kBlockTwoLists = make_row<8>(ANN_SEARCH_BLOCK, "BLOCK");
constinit const Procedure kWideBlockTwoLists = make_row<16>(ANN_SEARCH_WIDE_BLOCK, "WIDE_BLOCK");

}  // namespace gannet

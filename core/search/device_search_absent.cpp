// Searches on CUDA devices, in a library that was built without CUDA: no segment is ever placed.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "search/device_search.h"

namespace gannet::cuda {

namespace {

[[noreturn]] void refuse() {
  fail(ANN_NO_DEVICE, "a CUDA device was asked for, but this library was built without CUDA");
}

}  // namespace

std::unique_ptr<DevicePlacement> place_for_search(int32_t device, const Segment& segment,
                                                  DeviceBuildResult* built, const Execution& execution) {
  return place_segment(device, segment, built, execution);
}

std::unique_ptr<DeviceWorkspace> take_workspace(DevicePlacement&, uint64_t, uint32_t, const SentQueries*) {
  refuse();
}

std::unique_ptr<SentQueries> room_for_queries(const DevicePlacement&, uint32_t) { refuse(); }

uint32_t resident_queries(const DevicePlacement&, uint32_t) { refuse(); }

void search_device_batch(DevicePlacement&, const SearchBatch&, const SearchPlan&, const Execution&,
                         SearchCounts*) {
  refuse();
}

}  // namespace gannet::cuda

#endif

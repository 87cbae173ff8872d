#include "index/placements.h"

#include <algorithm>

#include "graph/covering_heads.h"
#include "index/snapshot.h"

namespace gannet {

const DeviceCalibration& PlacedDevice::whole_two_lists(const PlacedSegment& placed,
                                                       const Execution& execution) const {
  if (two_lists.is_whole()) return two_lists;
  return others.get(execution, [&](DeviceCalibration& whole, const Execution& all) {
    whole = two_lists;
    whole.measure_others({placed.host, placement.get()}, all);
    placed.devices.remember(placement->device_class(), whole);
  });
}

std::shared_ptr<const PlacedDevice> Placements::find(int32_t device) const {
  const std::lock_guard lock(mutex_);
  for (const auto& placed : devices_) {
    if (placed->placement->device() == device) return placed;
  }
  return nullptr;
}

uint64_t Placements::host_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = measured_.size() * sizeof(MeasuredDevice);
  for (const auto& placed : devices_) bytes += placed->placement->workspaces().bytes();
  return bytes;
}

std::shared_ptr<const PlacedDevice> Placements::get(const PlacedSegment& placed, int32_t device,
                                                    const Execution& execution) {
  if (auto known = find(device)) return known;
  const std::lock_guard making(making_);
  if (auto known = find(device)) return known;  // another thread was faster
  const Segment& segment = placed.segment;
  segment.touch_all();
  auto made = std::make_shared<PlacedDevice>();
  const Execution all = execution.for_shared_work();
  made->placement = cuda::place_for_search(device, segment, nullptr, all);
  // An index that was built without calibration leaves recall to the cautious rule.
  if (segment.has_graph() && placed.calibration.exists()) calibrate(placed, *made, all);
  const std::lock_guard lock(mutex_);
  devices_.push_back(made);
  return made;
}

void Placements::calibrate(const PlacedSegment& placed, PlacedDevice& device, const Execution& execution) {
  DevicePlacement& placement = *device.placement;
  const auto known_of = [&](const DeviceClass& wanted) {
    const auto all = measured();
    const auto place = std::ranges::find(all, wanted, [](const auto& known) { return known->device; });
    return place == all.end() ? nullptr : *place;
  };
  auto known = known_of(placement.device_class_with_covering_pivots());
  if (known != nullptr) {
    const SearchGraph& graph = placed.segment.graph;
    const Array<uint32_t> covering = covering_heads(graph, placed.segment.codes, execution);
    if (!covering.empty()) placement.replace_pivots(graph, {covering.data(), covering.size()}, execution);
  }
  if (known == nullptr || !placement.has_covering_pivots()) known = known_of(placement.device_class());
  if (known != nullptr) {
    device.two_lists = known->two_lists;
    return;
  }
  device.two_lists.measure({placed.host, &placement}, execution);
  remember(placement.device_class(), device.two_lists);
}

std::vector<std::shared_ptr<const MeasuredDevice>> Placements::measured() const {
  const std::lock_guard lock(mutex_);
  return measured_;
}

void Placements::remember(const DeviceClass& device, const DeviceCalibration& two_lists) {
  const auto kept = [&] {
    auto made = std::make_shared<MeasuredDevice>();
    made->device = device;
    made->two_lists = two_lists;
    made->two_lists.forget_cost();
    return made;
  };
  const std::lock_guard lock(mutex_);
  const auto place =
      std::lower_bound(measured_.begin(), measured_.end(), device,
                       [](const auto& known, const DeviceClass& wanted) { return known->device < wanted; });
  const bool is_known = place != measured_.end() && (*place)->device == device;
  if (is_known) {
    if (!(*place)->two_lists.is_whole()) *place = kept();
  } else if (!two_lists.empty() && measured_.size() < kDeviceClassesKept) {
    measured_.insert(place, kept());
  }
}

void Placements::measure_others(const PlacedSegment& placed, const Execution& execution) const {
  std::vector<std::shared_ptr<const PlacedDevice>> devices;
  {
    const std::lock_guard lock(mutex_);
    devices = devices_;
  }
  for (const auto& device : devices) {
    try {
      device->whole_two_lists(placed, execution);
    } catch (const Error& error) {
      if (error.status == ANN_CANCELLED) throw;
    } catch (const std::bad_alloc&) {
    }
  }
}

void Placements::adopt(std::shared_ptr<const PlacedDevice> device) {
  remember(device->placement->device_class(), device->two_lists);
  const std::lock_guard lock(mutex_);
  devices_.push_back(std::move(device));
}

void Placements::drop(int32_t device) {
  std::shared_ptr<const PlacedDevice> dropped;  // goes after the lock
  const std::lock_guard lock(mutex_);
  const auto place = std::find_if(devices_.begin(), devices_.end(), [device](const auto& placed) {
    return placed->placement->device() == device;
  });
  if (place == devices_.end()) return;
  dropped = std::move(*place);
  devices_.erase(place);
}

}  // namespace gannet

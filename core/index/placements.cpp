#include "index/placements.h"

#include <algorithm>

#include "index/snapshot.h"

namespace gannet {

std::shared_ptr<const PlacedDevice> Placements::find(int32_t device) const {
  const std::lock_guard lock(mutex_);
  for (const auto& placed : devices_) {
    if (placed->placement->device() == device) return placed;
  }
  return nullptr;
}

uint64_t Placements::host_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
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
  made->placement = cuda::place_for_search(device, segment, nullptr, execution);
  // An index that was built without calibration leaves recall to the cautious rule.
  if (segment.has_graph() && !placed.calibration.empty())
    made->two_lists.measure({placed.host, made->placement.get()}, execution);
  const std::lock_guard lock(mutex_);
  devices_.push_back(made);
  return made;
}

void Placements::adopt(std::shared_ptr<const PlacedDevice> device) {
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

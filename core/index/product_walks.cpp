#include "index/product_walks.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "graph/product_edges.h"
#include "search/device_search.h"
#include "search/host_batch.h"
#include "search/workspace_bytes.h"

namespace gannet {
namespace {

constexpr uint32_t kLanes = 4;           // runs at once: while one is walked, queries of others are prepared
constexpr uint32_t kRowsARun = 1 << 14;  // that keep a device busy
constexpr uint32_t kWalkLists = 8;       // the list of a walk is so many times as long as what it is for

/// One lane's rows after another.
class Lane {
 public:
  Lane(const Segment& segment, DevicePlacement& placement, KnnGraph& lists, const Execution& execution)
      : segment_(segment),
        lists_(lists),
        execution_(execution),
        workspace_(placement, kRowsARun, lists.k),
        own_(execution.memory, workspace_->capacity()) {}

  void walk(uint32_t begin, uint32_t end) {
    for (uint32_t first = begin; first < end; first += workspace_->capacity())
      run(first, std::min(workspace_->capacity(), end - first));
  }

 private:
  void run(uint32_t first, uint32_t count) {
    execution_.check();
    const RowsView& stored = segment_.dataset.view();
    const MatrixView rows{stored.row(0), segment_.rows(), stored.dim, stored.element, stored.stride};
    fill_workspace(segment_, rows, first, count, *workspace_, execution_);
    std::iota(own_.data(), own_.data() + count, first);
    const BeamPlan plan{std::min({kWalkLists * lists_.k, kDeviceBeamMax, segment_.rows()})};
    workspace_->run(count, plan, {own_.data(), false, {}}, false);
    std::copy_n(workspace_->rows(), size_t{count} * lists_.k,
                lists_.neighbors.data() + size_t{first} * lists_.k);
  }

  const Segment& segment_;
  KnnGraph& lists_;
  const Execution& execution_;
  DeviceWorkspaceLease workspace_;
  Array<uint32_t> own_;  // the row that each query is, and does not find
};

}  // namespace

std::optional<KnnGraph> walk_by_product(const Segment& segment, uint32_t k, int32_t device,
                                        const Execution& execution) {
  KnnGraph lists{Array<uint32_t>(execution.memory, checked_product(segment.rows(), k)), segment.rows(), k, 0};
  Execution lanes = execution;
  lanes.threads = std::min(execution.threads, kLanes);
  Execution inside = execution;
  inside.threads = std::max(1u, execution.threads / lanes.threads);
  try {
    const auto placement = cuda::place_for_search(device - ANN_DEVICE_CUDA, segment, nullptr, execution);
    std::atomic<uint32_t> done = 0;
    parallel_for(lanes, segment.rows(), kRowsARun, [&](uint64_t begin, uint64_t end, uint32_t) {
      Lane(segment, *placement, lists, inside).walk(static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
      execution.advance(static_cast<double>(done += static_cast<uint32_t>(end - begin)) / segment.rows());
    });
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return std::nullopt;
  }
  return lists;
}

uint64_t product_walks_device_bytes(const PlacedShape& shape, uint32_t k) {
  return kLanes * workspace_device_bytes(shape, std::min<uint64_t>(shape.rows, kRowsARun), k);
}

}  // namespace gannet

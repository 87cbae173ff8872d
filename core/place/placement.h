// Placement: one segment on one device, the CPU included.
//
// On the CPU that is the segment itself. On a CUDA device it is a copy: codes, edges, entry points and pivots,
// which are drawn there; where code distances are not the reported ones also the rows as stored and, for
// cosine, their lengths; and ids that are not row numbers. A segment without a graph is placed with the
// arrays of exact search alone. A placement keeps the workspaces of its searches.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/execution.h"
#include "place/covering_codes.h"
#include "place/index_view.h"
#include "place/nearest_sample.h"
#include "place/pivots.h"
#include "place/workspace.h"
#include "segment/segment.h"

namespace gannet {
namespace cuda {
class StreamFence;
}

/// A segment on the CPU.
struct HostPlacement {
  const Segment& segment;
  mutable WorkspacePool workspaces = {};
  mutable NearestSample nearest = {};  // for GGNN's search
  CoveringCodes covering_codes = {};   // for searches with a slack
};

/// The properties of a device that decide which recall an effort gives, and which walks it can do. Devices of one class
/// share their measurements, in files too.
struct DeviceClass {
  uint32_t capability = 0;  // compute capability: 10 major + minor
  uint32_t multiprocessors = 0;
  /// Of DevicePlacement, a multiple of eight; plus 2 where two lists walk by bytes in place of wide codes, and
  /// kFromCovering where walks start at covering heads, both of which earlier versions did not. Files with a part of
  /// that alone are of other choices of such heads, and serve no device.
  uint32_t block_list_max = 0;

  static constexpr uint32_t kFromCovering = 5;

  auto operator<=>(const DeviceClass&) const = default;
};

/// Room on a device to replace the edges of some rows of a placement.
class EdgeUpdate {
 public:
  static constexpr size_t kRowsAtOnce = 1024;

  /// Its memory there.
  static constexpr uint64_t device_bytes(uint32_t degree) {
    return kRowsAtOnce * (uint64_t{degree} + 1) * sizeof(uint32_t);
  }

  virtual ~EdgeUpdate() = default;
  EdgeUpdate(const EdgeUpdate&) = delete;

  /// Takes over the edges of these rows of the segment's graph, which are fixed rows.
  virtual void replace(const SearchGraph& graph, std::span<const uint32_t> rows) = 0;

 protected:
  EdgeUpdate() = default;
};

/// A segment on a CUDA device. Searches read the view; all other members may be used by any thread.
class DevicePlacement {
 public:
  virtual ~DevicePlacement() = default;
  DevicePlacement(const DevicePlacement&) = delete;

  int32_t device() const { return device_; }  // CUDA ordinal
  const IndexView& view() const { return view_; }
  const Allocator& memory() const { return memory_; }  // of the host
  uint64_t bytes() const { return bytes_; }            // of device memory, workspaces not included
  uint32_t multiprocessors() const { return multiprocessors_; }
  DeviceClass device_class() const {
    return {capability_, multiprocessors_,
            block_list_max | (view_.narrow.codes != nullptr ? 2u : 0u) |
                (has_covering_pivots() ? DeviceClass::kFromCovering : 0u)};
  }
  /// The same with other pivots.
  DeviceClass device_class_with_covering_pivots() const {
    DeviceClass other = device_class();
    other.block_list_max |= DeviceClass::kFromCovering;
    return other;
  }
  bool has_covering_pivots() const { return view_.pivot_count > kPivots; }

  WorkspacePool& workspaces() { return workspaces_; }
  const WorkspacePool& workspaces() const { return workspaces_; }

  /// Holds back the end of the placement until the work that callers' streams have queued on it is done.
  virtual cuda::StreamFence& fence() = 0;

  /// Held by the one that hides rows, until it has shown them again.
  std::mutex& hiding() { return hiding_; }
  /// Until show_rows() walks over view().bypass find the rows that they would had these rows never been in the
  /// graph (place/bypass_edges_cuda.h). False, and nothing done, where device memory does not hold the edges a
  /// second time.
  virtual bool hide_rows(const uint32_t* rows, uint32_t count) = 0;
  virtual void show_rows() noexcept = 0;

  // By the build, while no search runs; others may read what does not change. Errors: ANN_DEVICE_NO_MEMORY,
  // ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE. After one of them the placement is of no use, but for those of
  // update_edges(), which changes nothing.

  /// Takes over the edges of the segment's graph, as many a row as before, and its entry points.
  virtual void replace_graph(const SearchGraph& graph, const Execution& execution) = 0;
  /// The same of edges that lie on the device, [rows, stride],
  virtual void replace_edges(const uint32_t* edges) = 0;
  /// of some rows, for which this takes the memory at once: replacing them asks for none,
  virtual std::unique_ptr<EdgeUpdate> update_edges() = 0;
  /// and of entry points alone.
  virtual void replace_starts(const SearchGraph& graph, const Execution& execution) = 0;
  /// Makes covering heads of the graph pivots; an empty span restores the usual ones. False, and nothing done, where
  /// device memory does not hold them.
  virtual bool replace_pivots(const SearchGraph& graph, std::span<const uint32_t> covering,
                              const Execution& execution) = 0;

  /// Rows that the list of a block's walk can hold on this device: 0 where rows are too long for any. Set by
  /// the searches when the segment is placed.
  uint32_t block_list_max = 0;

 protected:
  DevicePlacement(int32_t device, const Allocator& memory) : device_(device), memory_(memory) {}

  int32_t device_;
  Allocator memory_;
  IndexView view_;
  uint64_t bytes_ = 0;
  uint32_t multiprocessors_ = 0;
  uint32_t capability_ = 0;
  WorkspacePool workspaces_;
  std::mutex hiding_;
};

namespace cuda {

struct DeviceBuildResult;

/// Copies a segment to a device (a CUDA ordinal). Everything of a mapped file has been touched before. `built`,
/// unless null, is the result that a build left there, and becomes part of the copy; on an error it is where it was.
/// Errors: ANN_NO_DEVICE, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE; nothing is held
/// then.
std::unique_ptr<DevicePlacement> place_segment(int32_t device, const Segment& segment,
                                               DeviceBuildResult* built, const Execution& execution);

}  // namespace cuda
}  // namespace gannet

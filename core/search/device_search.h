// Searches of a segment that is placed on a CUDA device.
//
// A search of host memory runs in a DeviceWorkspace: a stream, device memory for a number of queries, and
// pinned host memory of the same shape. Workspaces are kept with the placement, so that searches of a shape that
// has been met allocate nothing, and each of many host threads has a stream of its own. A batch takes several, so
// that copies of one part pass while another is walked for (search/host_batch.h).
//
// A search of device memory runs on the caller's stream, with memory from the device's pool in the order of
// that stream, and copies nothing through the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/execution.h"
#include "place/placement.h"
#include "search/plan.h"
#include "search/queries.h"

namespace gannet {

/// Which rows a search of a workspace may walk.
struct DeviceAdmission {
  const uint32_t* masked = nullptr;  // [count] a row that each query neither expands nor returns, or null
  bool bypass = false;               // the graph without the rows that hide_rows() has taken out
  RowSetView removed = {};           // in memory of the host: rows that are walked through, never returned
};

/// Records of queries on a placement's device, which workspaces that are taken for them read.
struct SentQueries {
  virtual ~SentQueries() = default;
  uint8_t* records = nullptr;  // [queries, record_bytes]; null: to come
};

/// Room for one search of up to capacity() queries.
class DeviceWorkspace : public Workspace {
 public:
  uint32_t capacity() const { return capacity_; }

  // The queries, to be filled in by the caller before run() or start(); pinned host memory.

  /// For start(): vectors as a caller gives them, side by side from here on, every byte xored with vector_flip(). They
  /// take no more than records.
  uint8_t* vectors() { return records_; }
  uint8_t vector_flip() const { return vector_flip_; }

  // For run():

  /// [value_bytes()] of a query with zeros behind: where codes are lossless its elements, and every byte xored with
  /// Codes::flip(), else its prepared values.
  uint8_t* values(uint32_t query) { return records_ + query * record_bytes_; }
  size_t value_bytes() const { return value_bytes_; }
  size_t record_bytes() const { return record_bytes_; }  // from a query to the next
  /// The length of the prepared values, for cosine.
  void set_norm(uint32_t query, double norm) {
    std::memcpy(values(query) + value_bytes_, &norm, sizeof norm);
  }

  // Whether a query is finite: before run() the caller says so, for itself alone; after finish() the device.
  bool usable(uint32_t query) const { return found_usable_ == nullptr || found_usable_[query] != 0; }
  void set_usable(uint32_t query, bool usable) {
    usable_[query] = usable ? 1 : 0;
    found_usable_ = usable_.data();
  }

  /// Sends the first `count` queries to places from `first` on, and waits.
  virtual void send(uint32_t count, const SentQueries& to, uint32_t first) = 0;

  /// Answers the first `count` queries by a walk and waits for the answers. With `timed` the kernels are timed.
  virtual void run(uint32_t count, const SearchPlan& plan, const DeviceAdmission& admission, bool timed) = 0;

  /// The same in two steps, for vectors of an element that can be compared with the rows: the first queues
  /// all work, which begins with making records of them, the second waits for it. In between the workspace is
  /// left alone.
  virtual void start(uint32_t count, int32_t element, const SearchPlan& plan,
                     const DeviceAdmission& admission) = 0;
  virtual void finish() = 0;
  /// Waits for the work that start() has queued, if finish() has not: after an error of the call.
  virtual void settle() noexcept = 0;

  // The answers, [count, k]: nearest first, equal distances by row; kNoRow and +infinity where there
  // are no more.
  const uint32_t* rows() const { return rows_; }
  const float* distances() const { return distances_; }
  uint64_t distance_count() const { return distance_count_; }
  uint64_t expansion_count() const { return expansion_count_; }
  double kernel_seconds() const { return kernel_seconds_; }

 protected:
  uint32_t capacity_ = 0;
  size_t value_bytes_ = 0;
  size_t record_bytes_ = 0;
  uint8_t vector_flip_ = 0;                // of vectors that are records as they lie; else the device flips
  Array<uint8_t> usable_;                  // [capacity]
  const uint8_t* found_usable_ = nullptr;  // [count] of the last run, or null: all are
  uint8_t* records_ = nullptr;             // [capacity, record_bytes] values and norm of a query
  const uint32_t* rows_ = nullptr;
  const float* distances_ = nullptr;
  uint64_t distance_count_ = 0;
  uint64_t expansion_count_ = 0;
  double kernel_seconds_ = 0;
};

namespace cuda {

/// Places a segment (place/placement.h) and sets block_list_max, which depends on the device.
std::unique_ptr<DevicePlacement> place_for_search(int32_t device, const Segment& segment,
                                                  DeviceBuildResult* built, const Execution& execution);

/// Room for `queries` queries of k answers each, or for as many of them as one run takes. Unless `sent` is null, its
/// runs read these queries of the same placement, and it has no room for others.
std::unique_ptr<DeviceWorkspace> take_workspace(DevicePlacement& placement, uint64_t queries, uint32_t k,
                                                const SentQueries* sent = nullptr);

/// Room for queries on the device alone.
std::unique_ptr<SentQueries> room_for_queries(const DevicePlacement& placement, uint32_t queries);

/// Queries of k answers that a warp each walks for at the same time; 0 where no kernel is made for that.
uint32_t resident_queries(const DevicePlacement& placement, uint32_t k);

/// Answers a batch by a plan, without a copy through the host. With a stream of the caller the work is queued
/// there, and the placement waits for it before it goes. The monitor is asked between pieces of the batch.
/// Errors: ANN_UNSUPPORTED of an exact plan where the smaller of k and the rows is above 1,024.
void search_device_batch(DevicePlacement& placement, const SearchBatch& batch, const SearchPlan& plan,
                         const Execution& execution, SearchCounts* counts);

}  // namespace cuda

/// Whether a block can walk for k answers.
inline bool blocks_serve(const DevicePlacement& placement, uint32_t k) {
  return list_length(k, placement.view().lossless) <= placement.block_list_max;
}

/// Bytes of a row that walks with one list read.
inline size_t walked_row_bytes(const Segment& segment, const DevicePlacement& placement) {
  const HalfView& halves = placement.view().halves;
  return halves.codes != nullptr ? halves.stride : segment.codes.device_walk_stride();
}

/// The same of walks with two lists.
inline size_t two_lists_row_bytes(const Segment& segment, const DevicePlacement& placement) {
  const ScaledView& narrow = placement.view().narrow;
  return narrow.codes != nullptr ? narrow.stride : walked_row_bytes(segment, placement);
}

/// A workspace of a device for the duration of a search.
class DeviceWorkspaceLease {
 public:
  DeviceWorkspaceLease(DevicePlacement& placement, uint64_t queries, uint32_t k,
                       const SentQueries* sent = nullptr)
      : placement_(placement), workspace_(cuda::take_workspace(placement, queries, k, sent)) {}
  ~DeviceWorkspaceLease() {
    workspace_->settle();
    placement_.workspaces().give_back(std::move(workspace_));
  }
  DeviceWorkspaceLease(const DeviceWorkspaceLease&) = delete;
  DeviceWorkspaceLease& operator=(const DeviceWorkspaceLease&) = delete;
  DeviceWorkspace& operator*() const { return *workspace_; }
  DeviceWorkspace* operator->() const { return workspace_.get(); }

 private:
  DevicePlacement& placement_;
  std::unique_ptr<DeviceWorkspace> workspace_;
};

}  // namespace gannet

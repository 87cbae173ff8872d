// Index: the object behind a handle, and which calls may use it when.
//
// A build makes a whole new Snapshot and publishes it in one step; until then searches see none. A search holds
// the snapshot that it finds, so nothing it reads can go away under it. Freeing waits for the calls that are
// running.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "index/parameters.h"
#include "index/snapshot.h"

namespace gannet {

/// Whether rows, to be stored as `stored` (0: as they are), are used where they lie by a build on `device`.
bool stay_on_device(const MatrixView& rows, int32_t device, int32_t stored);

/// Builds the whole of an index over checked parameters (build.cpp). Rows lie on the host, or stay on the
/// plan's device, which then makes a graph.
std::unique_ptr<const PlacedSegment> build(const ann_index_params& shape, const MatrixView& rows,
                                           const uint64_t* ids, const BuildPlan& plan,
                                           const MatrixView* calibration, const Execution& execution);

class Index {
 public:
  Index(const Allocator& memory, uint32_t threads_max, const ann_index_params& shape)
      : memory_(memory), threads_max_(threads_max), shape_(shape) {}

  const Allocator& memory() const { return memory_; }
  uint32_t threads_max() const { return threads_max_; }
  const ann_index_params& shape() const { return shape_; }

  /// A running call; the index outlives it. `snapshot` is null before the build.
  class Call {
   public:
    explicit Call(const Index& index);
    ~Call();
    Call(const Call&) = delete;
    std::shared_ptr<const Snapshot> snapshot;

   private:
    const Index& index_;
  };

  /// The right to build, for one call at a time.
  class BuildRight {
   public:
    explicit BuildRight(Index& index);
    ~BuildRight();
    BuildRight(const BuildRight&) = delete;
    void publish(std::unique_ptr<const PlacedSegment> built);

   private:
    Index& index_;
  };

  void wait_for_calls() const;

 private:
  Allocator memory_;
  uint32_t threads_max_;
  ann_index_params shape_;
  mutable std::mutex mutex_;
  mutable std::condition_variable idle_;
  mutable uint64_t calls_ = 0;
  bool building_ = false;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace gannet

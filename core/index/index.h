// Index: rows, codes, graph and calibration behind one handle, and who may use them when.
//
// A build makes a whole new Built and puts it in place in one step; until then searches see none. A
// search takes hold of the Built that it finds, so nothing it reads can go away under it. Freeing
// waits for the calls that are running.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "index/calibration.h"
#include "index/device_search.h"
#include "index/parameters.h"
#include "index/query_sample.h"

namespace gannet {

/// Search spaces of one index, kept for the next search.
class SearchSpaces {
 public:
  std::unique_ptr<SearchSpace> take(const Dataset& dataset, const Codes& codes,
                                    const SearchGraph& graph, const Allocator& memory);
  void give_back(std::unique_ptr<SearchSpace> space) noexcept;
  uint64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SearchSpace>> idle_;
  size_t made_ = 0;
};

struct Built {
  explicit Built(Dataset&& rows) : dataset(std::move(rows)) {}
  Built(const Built&) = delete;

  /// Checks what of a mapped file has not been yet.
  void touch_all(const Execution& execution = {}) const {
    dataset.touch_all(execution);
    codes.touch_all(execution);
    graph.touch_all(execution);
    queries.touch_all(execution);
  }

  std::shared_ptr<const void> file;  // the mapped file that the members lie over, or null
  uint64_t file_bytes_held = 0;      // host memory that reading it takes
  Dataset dataset;
  Codes codes;
  SearchGraph graph;
  Calibration calibration;
  QuerySample queries;  // of the caller, to calibrate on; none: rows play them
  int32_t graph_kind = 0;
  uint32_t knn_iterations = 0;
  double knn_share = 0;  // of true neighbours in the lists under the graph, where somebody has looked
  uint64_t seed = 0;
  double build_seconds = 0;
  double calibrate_seconds = 0;
  mutable SearchSpaces spaces;
  mutable Placements placements;  // copies on devices, which come and go

  bool has_graph() const { return graph_kind != ANN_GRAPH_NONE; }
  uint64_t bytes() const {
    return dataset.bytes() + codes.bytes() + graph.bytes() + queries.bytes() + spaces.bytes() +
           placements.host_bytes() + file_bytes_held;
  }
};

/// Whether rows, to be stored as `stored` (0: as they are), are used where they lie by a build on `device`.
bool stay_on_device(const MatrixView& rows, int32_t device, int32_t stored);

/// Builds the whole of an index over checked parameters (build.cpp). Rows lie on the host, or stay on the
/// plan's device, which then makes a graph.
std::unique_ptr<const Built> build(const ann_index_params& shape, const MatrixView& rows,
                                   const uint64_t* ids, const BuildPlan& plan,
                                   const MatrixView* calibration, const Execution& execution);

/// Answers queries by the graph (search.cpp).
void search_batch(const Built& built, const MatrixView& queries, uint32_t beam,
                  const ResultsView& results, const Execution& execution, SearchCounts* counts);

class Index {
 public:
  Index(const Allocator& memory, uint32_t threads_max, const ann_index_params& shape)
      : memory_(memory), threads_max_(threads_max), shape_(shape) {}

  const Allocator& memory() const { return memory_; }
  uint32_t threads_max() const { return threads_max_; }
  const ann_index_params& shape() const { return shape_; }

  /// A running call; the index outlives it. `built` is null before the build.
  class Call {
   public:
    explicit Call(const Index& index);
    ~Call();
    Call(const Call&) = delete;
    std::shared_ptr<const Built> built;

   private:
    const Index& index_;
  };

  /// The right to build, for one call at a time.
  class BuildRight {
   public:
    explicit BuildRight(Index& index);
    ~BuildRight();
    BuildRight(const BuildRight&) = delete;
    void publish(std::unique_ptr<const Built> built);

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
  std::shared_ptr<const Built> built_;
};

}  // namespace gannet

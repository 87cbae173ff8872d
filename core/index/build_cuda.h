// The part of a build that runs on a CUDA device: from codes to k-NN lists, or on to a search graph with
// every row reached. Nothing leaves the device in between, and the graph stays there as the index's copy.
//
// Results equal those of the CPU by the same method bit for bit, except for cells, whose lists are of
// the same quality: distances of codes are exact, or summed in the same lanes, and no phase depends on
// the order of threads.
#pragma once

#include <memory>

#include "dataset/ingest.h"
#include "dataset/codes.h"
#include "index/row_measures.h"
#include "index/parameters.h"
#include "knn/knn_graph.h"
#include "place/placement.h"

namespace gannet::cuda {

class Transfers;

/// k-NN lists by a method, ANN_KNN_NN_DESCENT, _EXACT or _CELLS. `device` is an ANN_DEVICE_CUDA + i.
/// `ingest`, which may be null, has the codes there; the host has everything when the call returns.
///
/// Errors of all here: ANN_NO_DEVICE, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED,
/// ANN_DEADLINE. The device's memory is given back on every path.
KnnLists find_neighbors(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, int32_t method,
                        const NnDescentParams& params, int32_t device, const Execution& execution);

/// k-NN lists by inner product with NN-Descent (knn/products.h), which has made `offsets`; codes of bytes.
KnnGraph find_neighbors_by_products(const Codes& codes, const Array<uint32_t>& offsets,
                                    const NnDescentParams& params, int32_t device,
                                    const Execution& execution);

/// k-NN lists by GGNN's build (graph/ggnn.h), those of ggnn_knn. `ingest` as above.
KnnGraph ggnn_knn(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, uint32_t k, uint64_t seed,
                  int32_t device, const Execution& execution);

/// The outcome of finding lists.
struct FoundLists {
  uint32_t iterations = 0;  // rounds of NN-Descent, or those of neighbours' neighbours that cells took
  double share = 0;         // of true neighbours in the lists, by codes, where cells have looked
  double dimension = 0;     // local intrinsic dimension of the rows, by codes, likewise
  SampledLists sampled;     // where they have
};

/// TSDG's graph, from lists by a method or `given` ones, into `graph`, whose `rows` and `entries` are set. Of the
/// ways to diversify the device does those that graph/diversify_cuda.h names, and the CPU the others.
FoundLists build_diversified(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, int32_t method,
                             const KnnGraph* given, const BuildPlan& plan, SearchGraph& graph,
                             const Execution& execution);

/// A search graph on the device that made it.
class GraphOnDevice {
 public:
  virtual ~GraphOnDevice() = default;

  FoundLists found;
  uint32_t degree = 0;  // edges a row: the plan's, or fewer where the data decide
  uint32_t repaired_edges = 0;
  uint32_t unreachable = 0;  // rows that the repair leaves to the CPU, with the edges as before it

  /// Copies the edges to the host, [rows, degree]; also when an index has taken them over, while it lives.
  virtual void fetch(Array<uint32_t>& edges, const Execution& execution) const = 0;
  /// Puts others in their place.
  virtual void replace(const Array<uint32_t>& edges, const Execution& execution) = 0;

  /// Makes the segment's placement on the device of it, once.
  virtual std::unique_ptr<DevicePlacement> place(const Segment& segment, const Execution& execution) = 0;
  /// Likewise, of a segment with other codes than those that have made the graph.
  virtual std::unique_ptr<DevicePlacement> place_edges(const Segment& segment,
                                                       const Execution& execution) = 0;
  /// Copies to and from the device, by memory that has been pinned.
  virtual Transfers& transfers() const = 0;
};

/// Finds k-NN lists by a method, or takes `given` if not null, prunes them, adds reverse edges, and repairs
/// the graph from `entries` on if the plan says so. `ingest` as above. Distances of given
/// lists are read where the plan prunes by them.
std::unique_ptr<GraphOnDevice> build_graph(const Codes& codes, std::unique_ptr<DeviceIngest> ingest,
                                           int32_t method, const KnnLists* given, const BuildPlan& plan,
                                           const Array<uint32_t>& entries, const Execution& execution);

/// The same of ANN_GRAPH_GGNN (graph/ggnn.h): its bottom stays on the device; of `graph` layers, entry points
/// and distances to nearest neighbours are filled in. Equal to build_ggnn on the CPU, and so is the repair.
std::unique_ptr<GraphOnDevice> build_ggnn_graph(const Codes& codes, std::unique_ptr<DeviceIngest> ingest,
                                                const BuildPlan& plan, SearchGraph& graph,
                                                const Execution& execution);

/// Gives the graph of a segment that is placed long edges (graph/long_edges.h), and puts them into the placement, whose
/// starts are then to be replaced. Whether it has. After ANN_DEVICE_NO_MEMORY both graphs have their edges as before.
bool add_long_edges(DevicePlacement& placement, Segment& segment, const Execution& execution);

}  // namespace gannet::cuda

// Segment: the stored data. Rows, ids, codes, k-NN lists and search graph, which never change once they are
// built or opened.
#pragma once

#include <cstdint>
#include <memory>

#include "dataset/codes.h"
#include "dataset/dataset.h"
#include "graph/search_graph.h"
#include "knn/knn_graph.h"
#include "segment/query_sample.h"

namespace gannet {

struct Segment {
  explicit Segment(Dataset&& rows) : dataset(std::move(rows)) {}
  Segment(const Segment&) = delete;

  bool has_graph() const { return graph.kind != ANN_GRAPH_NONE; }
  uint32_t rows() const { return dataset.rows(); }

  /// Checks the parts of a mapped file that have not been checked yet.
  void touch_all(const Execution& execution = {}) const {
    dataset.touch_all(execution);
    codes.touch_all(execution);
    graph.touch_all(execution);
    queries.touch_all(execution);
  }
  uint64_t bytes() const {
    return dataset.bytes() + codes.bytes() + knn.bytes() + graph.bytes() + queries.bytes() + file_bytes_held;
  }

  std::shared_ptr<const void> file;  // the mapped file that the members lie over, or null
  uint64_t file_bytes_held = 0;      // host memory that reading it takes
  Dataset dataset;
  Codes codes;
  KnnLists knn;  // with distances; empty unless they are kept
  SearchGraph graph;
  QuerySample queries;  // of the caller, to calibrate on; none: rows are held out
  uint32_t knn_iterations = 0;
  double knn_share = 0;  // of true neighbours in the lists under the graph; 0: not measured
  uint64_t seed = 0;
};

}  // namespace gannet

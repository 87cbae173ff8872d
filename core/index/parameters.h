// Parameters with their defaults filled in.
#pragma once

#include "ann.h"
#include "graph/diversify.h"
#include "graph/ggnn.h"
#include "graph/search_graph.h"
#include "knn/nn_descent.h"

namespace gannet {

/// Sets up to this size get an exact k-NN graph: 4,096^2 code distances take about 0.1 s, and cells
/// would save little of it.
inline constexpr uint32_t kExactKnnRows = 4096;

/// The shortest lists that NN-Descent makes for a caller.
inline constexpr uint32_t kListLeast = 16;

/// ann_build_params with every zero replaced.
struct BuildPlan {
  int32_t graph = 0;  // its kind, as a file names it: CAGRA for AUTO's too
  int32_t knn = 0;
  int32_t device = ANN_DEVICE_CPU;  // where lists and edges are found
  bool borrow = false;
  bool finished = false;  // knn_graph is the search graph
  bool repair = true;
  bool calibrate = true;
  uint32_t degree = 0;  // edges a row; where the data decide, the most
  uint32_t threads = 0;
  Pruning pruning;                      // of ANN_GRAPH_AUTO and ANN_GRAPH_CAGRA
  Pruning easy_pruning;                 // the same where a device sees that neighbours are easy to tell apart
  DiversifyParams diversify;            // of ANN_GRAPH_TSDG
  GgnnParams ggnn;                      // of ANN_GRAPH_GGNN
  NnDescentParams nn_descent;           // k of any k-NN graph, given or made
  const uint32_t* knn_graph = nullptr;  // [rows, nn_descent.k] for ANN_KNN_GIVEN
  uint64_t memory_limit = 0;
  uint64_t queries_given = 0;  // to calibrate on
};

/// Checks and completes parameters for `rows` rows of an index. `threads_max` 0: no cap.
BuildPlan plan_build(const ann_build_params& params, const ann_index_params& shape, uint64_t rows,
                     uint32_t threads_max);

/// How lists are pruned whose rows have this local intrinsic dimension; 0: it is not known.
const Pruning& pruning_for(const BuildPlan& plan, double dimension);

/// Whether the host reads its copy of rows or codes before a device has built: codes, entry points and edges by product
/// are made of it, a given graph is measured, given lists are pruned by distance.
bool reads_copy(const BuildPlan& plan, bool by_product);

/// Whether a device that builds gets the rows, stored as `element`, ahead of their codes (dataset/ingest.h): where its
/// placement holds both. GGNN's layers are not made twice where that leaves too little memory.
bool sends_rows_ahead(const BuildPlan& plan, int32_t metric, int32_t element);

/// Checks dim, metric and element of an index; fills in a metric of zero.
void check_shape(ann_index_params* shape);

/// Checks the fields that parameters of NN-Descent have in common, and fills in zeros.
NnDescentParams complete_nn_descent(uint32_t k, uint32_t samples, uint32_t iterations, float convergence,
                                    uint64_t seed);

/// The same for lists that the caller gets: shorter ones than kListLeast are searched at that length and cut,
/// since NN-Descent finds little by the few neighbours that a short list remembers.
NnDescentParams complete_list_search(uint32_t k, uint32_t samples, uint32_t iterations, float convergence,
                                     uint64_t seed);

}  // namespace gannet

// sweep.h: builds indexes and measures searches over all combinations of the wanted parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ann.h"
#include "records.h"
#include "vector_file.h"

namespace bench {

enum class Mode {
  kLatency,    // one caller; the library may use `threads`
  kThroughput  // `threads` callers, each call on its caller's thread
};

// Where queries and results lie.
enum class Buffers {
  kHost,
  kDevice  // and each caller has a stream: a call is queued, and waited for
};

struct SweepParams {
  std::string name = "gannet";  // in records
  int32_t metric = ANN_METRIC_L2;
  int32_t element = ANN_ELEMENT_AUTO;  // as stored
  int32_t device = ANN_DEVICE_AUTO;
  uint32_t build_threads = 0;
  std::vector<uint32_t> degrees = {0};  // 0: the library's choice, here as everywhere
  std::vector<uint32_t> knn_degrees = {0};
  std::vector<int32_t> knn_methods = {ANN_KNN_AUTO};
  std::vector<int32_t> graphs = {ANN_GRAPH_AUTO};
  std::vector<int32_t> detours = {ANN_DETOURS_AUTO};
  std::vector<int32_t> reorderings = {ANN_REORDER_AUTO};
  std::vector<int32_t> calibrations = {ANN_ON};
  std::vector<uint64_t> seeds = {1};

  std::vector<int32_t> procedures = {ANN_SEARCH_AUTO};
  std::vector<uint32_t> warps = {1};   // of a query of two lists
  int32_t compare = ANN_COMPARE_AUTO;  // of CAGRA's procedures
  std::vector<uint32_t> k = {10};
  std::vector<uint32_t> batches = {1};
  std::vector<uint32_t> threads = {1};
  std::vector<Mode> modes = {Mode::kLatency};
  std::vector<Buffers> buffers = {Buffers::kHost};
  std::vector<uint32_t> beams;  // those below k are left out
  std::vector<double> recalls;  // targets for the library, as further points
  double seconds_min = 1.0;     // of each measurement
  uint64_t single_queries = 0;  // for batches of one, only so many of the queries; 0: all
};

// Measures everything into `records`; tells how far it is on stderr. Ctrl-C, through `monitor`, makes
// it throw Cancelled; what was measured by then is in `records`.
void run_sweep(const Vectors& rows, const Vectors& queries, const GroundTruth& truth,
               const SweepParams& params, ann_monitor* monitor, Records& records);

}  // namespace bench

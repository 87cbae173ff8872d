// exact_search.h: true neighbours by exact search, of files that may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>

#include "ann.h"
#include "vector_file.h"

struct ExactParams {
  uint32_t k = 100;
  int32_t metric = ANN_METRIC_L2;
  int32_t device = ANN_DEVICE_AUTO;
  uint32_t threads = 0;
  uint64_t rows_max = 0;                     // only the first of a file's rows; 0: all
  uint64_t block_bytes = uint64_t{1} << 30;  // rows in memory at once
  ann_monitor* monitor = nullptr;
  std::vector<ann_status>* status = nullptr;      // gets one for each query, as ann_results has it
  std::function<void(double fraction)> progress;  // after each block; may be empty
};

// The nearest rows of each query by ann_search_exact, nearest first, ties by row number. Rows come
// from the file in blocks, so it may be larger than memory. Throws Cancelled when the monitor is.
GroundTruth exact_neighbours(VectorReader& rows, const ann_matrix& queries, const ExactParams& params);
GroundTruth exact_neighbours(const Vectors& rows, const ann_matrix& queries, const ExactParams& params);

// Room for the neighbours of some queries, with none in it: -1 at infinity.
GroundTruth none_found(uint64_t queries, uint32_t k);

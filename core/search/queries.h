// QueryBlock: the queries of one call, made ready for a dataset once.
#pragma once

#include <cstdint>
#include <cstring>

#include "dataset/dataset.h"
#include "segment/row_set.h"

namespace gannet {

/// Where the answers of a search go; shapes and padding as in ann_results.
struct ResultsView {
  uint32_t k = 0;
  uint64_t* ids = nullptr;       // [queries, k]
  float* distances = nullptr;    // [queries, k], or null
  uint32_t* counts = nullptr;    // [queries], or null
  ann_status* status = nullptr;  // [queries], or null

  /// The same from a query on.
  ResultsView from(uint64_t query) const {
    const auto moved = [](auto* items, uint64_t by) { return items == nullptr ? items : items + by; };
    return {k, ids + query * k, moved(distances, query * k), moved(counts, query), moved(status, query)};
  }
};

/// A neighbour that is reported: nearest first, equal distances by id.
struct Neighbor {
  float distance;
  uint64_t id;

  bool operator<(const Neighbor& other) const {
    return distance < other.distance || (distance == other.distance && id < other.id);
  }
};

/// Writes the answer of one query, padded to k.
inline void write_answer(const ResultsView& results, uint64_t query, const Neighbor* neighbors,
                         uint32_t count, ann_status status) {
  for (uint32_t i = 0; i < results.k; ++i) {
    const uint64_t place = query * results.k + i;
    results.ids[place] = i < count ? neighbors[i].id : ANN_ID_NONE;
    if (results.distances != nullptr) results.distances[place] = i < count ? neighbors[i].distance : INFINITY;
  }
  if (results.counts != nullptr) results.counts[query] = count;
  if (results.status != nullptr) results.status[query] = status;
}

/// Distances computed and rows expanded, for calls that wait for their answers.
struct SearchCounts {
  uint64_t distances = 0;
  uint64_t expansions = 0;

  SearchCounts& operator+=(const SearchCounts& other) {
    distances += other.distances;
    expansions += other.expansions;
    return *this;
  }
};

/// Queries and where their answers go: both in host memory, or both on one device.
struct SearchBatch {
  MatrixView queries;
  ResultsView results;
  void* stream = nullptr;  // the caller's cudaStream_t on a device; null: the library's own, waited for
  BatchAdmission admission = {};  // in memory of the host
};

class QueryBlock {
 public:
  /// Bytes that each query takes.
  static size_t bytes_of_one(const Dataset& dataset) {
    return value_bytes_of(dataset) + sizeof(double) + sizeof(uint8_t);
  }

  QueryBlock(const Dataset& dataset, const MatrixView& queries, const Execution& execution)
      : count_(queries.rows),
        value_bytes_(value_bytes_of(dataset)),
        values_(execution.memory, checked_product(queries.rows, value_bytes_)),
        norms_(execution.memory, queries.rows),
        usable_(execution.memory, queries.rows) {
    const uint64_t grain = items_per_task(queries.dim, 4096);
    parallel_for(execution, count_, grain, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t query = begin; query < end; ++query) {
        PreparedQuery prepared;
        uint8_t* const values = values_.data() + query * value_bytes_;
        usable_[query] = dataset.prepare(queries.row(query), queries.element, values, &prepared) ? 1 : 0;
        if (usable_[query] == 0) std::memset(values, 0, value_bytes_);
        norms_[query] = prepared.norm;
      }
    });
  }

  uint64_t size() const { return count_; }
  bool usable(uint64_t query) const { return usable_[query] != 0; }
  PreparedQuery operator[](uint64_t query) const {
    return {values_.data() + query * value_bytes_, norms_[query]};
  }
  const uint8_t* values() const { return values_.data(); }
  size_t value_bytes() const { return value_bytes_; }
  const double* norms() const { return norms_.data(); }

 private:
  static size_t value_bytes_of(const Dataset& dataset) { return round_up(dataset.query_bytes(), 16); }

  uint64_t count_;
  size_t value_bytes_;
  Array<uint8_t> values_;  // [queries, value_bytes] zeros where a value is not finite
  Array<double> norms_;    // [queries]
  Array<uint8_t> usable_;  // [queries] 0 where a value is not finite
};

}  // namespace gannet

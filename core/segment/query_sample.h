// QuerySample: some of the queries that a caller has given to calibrate on, kept with the index.
//
// Where queries differ from the rows, promises by rows as queries are not kept: of 10M rows whose
// queries came from elsewhere, a search for a recall of 0.95 found 0.91. So a caller passes queries like
// those to come. A CUDA device calibrates when the index is placed there, which may be long after the build,
// by another process and from a file; so the index keeps a sample of them, as searches prepare them
// (dataset/dataset.h): floats for rows of floats, else the elements.
//
// The sample is drawn from equal strata of the queries given and shuffled, so that the first of it are a fair
// sample too, and calibrations that need fewer take the first ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/first_touch.h"
#include "dataset/dataset.h"

namespace gannet {

/// Queries that an index keeps at most: those that the largest calibration takes.
inline constexpr uint32_t kQueriesKept = 2048;

class QuerySample {
 public:
  QuerySample() = default;

  /// A sample of finite queries of any element that can be compared with the rows.
  QuerySample(const Dataset& dataset, const MatrixView& given, uint64_t seed, const Allocator& memory);

  /// A sample read from a file. `touch`, unless null, is called before it is read.
  QuerySample(const Dataset& dataset, Array<uint8_t> values, FirstTouch* touch);

  uint32_t count() const { return count_; }
  const uint8_t* data() const { return values_.data(); }
  uint64_t bytes() const { return values_.bytes(); }
  void touch_all(const Execution& execution = {}) const {
    if (touch_ != nullptr) touch_->touch_all(execution);
  }

  /// The first of them, `most` at most, for readers that have called touch_all() or made them.
  MatrixView first(uint32_t most) const {
    return {values_.data(), std::min(most, count_), dim_, element_, query_bytes_};
  }

 private:
  Array<uint8_t> values_;  // [count, dim] prepared values
  uint32_t count_ = 0;
  uint32_t dim_ = 0;
  int32_t element_ = 0;
  size_t query_bytes_ = 0;
  FirstTouch* touch_ = nullptr;
};

/// Bytes of a sample of `given` queries for rows of an element.
constexpr uint64_t query_sample_bytes(uint64_t given, uint32_t dim, int32_t element) {
  const uint64_t kept = std::min<uint64_t>(given, kQueriesKept);
  return kept * dim * (is_float_element(element) ? sizeof(float) : 1);
}

}  // namespace gannet

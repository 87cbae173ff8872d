#include "segment/query_sample.h"

#include <utility>

#include "base/random.h"

namespace gannet {
namespace {

constexpr uint64_t kGivenStream = 0x676976656e;  // "given"

}  // namespace

QuerySample::QuerySample(const Dataset& dataset, const MatrixView& given, uint64_t seed,
                         const Allocator& memory)
    : QuerySample(dataset,
                  Array<uint8_t>(memory, checked_product(std::min<uint64_t>(given.rows, kQueriesKept),
                                                         dataset.query_bytes())),
                  nullptr) {
  Array<uint32_t> chosen(memory, count_);
  random_strata(given.rows, count_, seed, kGivenStream, chosen.data());
  for (uint32_t i = count_; i > 1; --i)
    std::swap(chosen[i - 1], chosen[random_below(i, seed, kGivenStream + 1, i)]);
  for (uint32_t i = 0; i < count_; ++i) {
    PreparedQuery prepared;
    dataset.prepare(given.row(chosen[i]), given.element, values_.data() + i * query_bytes_, &prepared);
  }
}

QuerySample::QuerySample(const Dataset& dataset, Array<uint8_t> values, FirstTouch* touch)
    : values_(std::move(values)),
      count_(static_cast<uint32_t>(values_.size() / dataset.query_bytes())),
      dim_(dataset.dim()),
      element_(is_float_element(dataset.element()) ? int32_t{ANN_F32} : dataset.element()),
      query_bytes_(dataset.query_bytes()),
      touch_(touch) {}

}  // namespace gannet

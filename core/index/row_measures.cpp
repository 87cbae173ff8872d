#include "index/row_measures.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "search/exact.h"
#include "search/exact_by_codes.h"
#include "search/exact_cuda.h"
#include "search/exact_device.h"
#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint64_t kShareStream = 0x7368617265;  // "share"
constexpr uint32_t kSampleRows = 256;            // a standard error of about 0.004
constexpr uint64_t kRowsPerTask = 8;
constexpr uint32_t kDepth = 32;  // true neighbours of each that are looked for

/// Rows as stored among which the first by code are looked for.
constexpr uint32_t looked_at(uint32_t depth) { return depth + depth / 2 + 64; }

/// A sample of rows as queries, and the nearest rows of each.
struct NearSample {
  const Dataset& dataset;
  const Codes& codes;
  const Array<uint32_t>& rows;
  const Execution& execution;
  uint32_t depth;
  Array<uint8_t> copied{execution.memory, rows.size() * row_bytes()};
  QueryBlock queries{dataset, copies(), execution};
  Array<float> truth{execution.memory, rows.size() * depth};  // [sample, depth] distances, ascending
  Array<uint32_t> first{execution.memory, rows.size() * CodeOrder::kLooked};  // the first rows by code

  void look(const DevicePlacement* placed) {
    if (placed != nullptr && look_on_device(*placed)) return;
    if (codes.wide()) return look_by_bounds();
    nearest_by_codes(dataset, codes, queries, 0, static_cast<uint32_t>(rows.size()), rows.data(), {}, depth,
                     truth.data(), execution, first.data());
  }

  /// The first rows by other codes.
  void look_by(const Codes& other) {
    nearest_by_codes(dataset, other, queries, 0, static_cast<uint32_t>(rows.size()), rows.data(), {},
                     CodeOrder::kLooked, nullptr, execution, first.data());
  }

  double share_of(const SampledLists& lists, uint32_t known) const {
    Array<uint32_t> found(execution.memory, rows.size());
    each_row([&](uint64_t i) {
      const uint32_t* list = lists.neighbors.data() + i * lists.k;
      const uint32_t count = static_cast<uint32_t>(std::find(list, list + lists.k, kNoRow) - list);
      found[i] = count_near(i, list, count, known);
    });
    const uint64_t sum = std::accumulate(found.begin(), found.end(), uint64_t{0});
    return static_cast<double>(sum) / static_cast<double>(rows.size() * known);
  }

  CodeOrder order() const {
    constexpr uint32_t kNear = CodeOrder::kNear;
    constexpr uint32_t kLooked = CodeOrder::kLooked;
    Array<double> ten(execution.memory, rows.size());
    Array<double> twenty(execution.memory, rows.size());
    each_row([&](uint64_t i) {
      const uint32_t* by_code = first.data() + i * kLooked;
      const auto count = static_cast<uint32_t>(std::find(by_code, by_code + kLooked, kNoRow) - by_code);
      ten[i] = count_near(i, by_code, std::min(count, kNear), kNear) / double{kNear};
      twenty[i] = count_near(i, by_code, count, kNear) / double{kNear};
    });
    return order_of(ten, twenty);
  }

 private:
  /// By all threads, which find most of the rows that are compared in no cache.
  template <class Body>
  void each_row(const Body& body) const {
    parallel_for(execution, rows.size(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t i = begin; i < end; ++i) body(i);
    });
  }

  size_t row_bytes() const { return size_t{dataset.dim()} * element_bytes(dataset.element()); }

  MatrixView copies() {
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(copied.data() + i * row_bytes(), dataset.view().row(rows[i]), row_bytes());
    return {copied.data(), rows.size(), dataset.dim(), dataset.element(), row_bytes()};
  }

  /// Where codes are floats, which tiles are slow at. These keep the order of rows except for rounding, so that the
  /// first ones by code are among some more that are nearest as stored.
  void look_by_bounds() {
    constexpr uint32_t kLooked = CodeOrder::kLooked;
    const uint32_t seen = std::min(looked_at(depth), dataset.rows() - 1);
    Array<uint64_t> ids(execution.memory, rows.size() * seen);
    Array<float> distances(execution.memory, ids.size());
    search_exact(dataset, queries, {{}, {}, rows.data()},
                 {seen, ids.data(), distances.data(), nullptr, nullptr}, execution);
    Array<uint8_t> code(execution.memory, codes.walk_query_bytes());
    for (size_t i = 0; i < rows.size(); ++i) {
      execution.check();
      std::copy_n(distances.data() + i * seen, depth, truth.data() + i * depth);
      uint32_t near[looked_at(kDepth)];
      uint32_t by_code[looked_at(kDepth)];
      uint64_t keys[looked_at(kDepth)];
      for (uint32_t j = 0; j < seen; ++j) near[j] = dataset.find(ids[i * seen + j]);
      codes.encode_walk_query(queries[i], code.data());
      codes.walk_distances(code.data(), near, seen, by_code);
      for (uint32_t j = 0; j < seen; ++j) keys[j] = RowKey::of(by_code[j], near[j], false);
      std::sort(keys, keys + seen);
      for (uint32_t j = 0; j < kLooked; ++j)
        first[i * kLooked + j] = j < seen ? RowKey::row(keys[j]) : kNoRow;
    }
  }

  /// How many of some rows are among the `known` nearest of a query; of rows at equal distance any will do.
  uint32_t count_near(size_t query, const uint32_t* list, uint32_t count, uint32_t known) const {
    float distances[ANN_KNN_DEGREE_MAX];
    dataset.distances(queries[query], list, 0, count, distances);
    const float farthest = truth[query * depth + known - 1];
    const auto hits =
        std::count_if(distances, distances + count, [&](float distance) { return distance <= farthest; });
    return std::min(static_cast<uint32_t>(hits), known);
  }

  /// As search_exact_on_device finds them, or false where device memory does not hold that.
  bool look_on_device(const DevicePlacement& placed) {
    Array<uint64_t> ids(execution.memory, truth.size());
    try {
      search_exact_on_device(dataset, queries, rows.data(), ANN_DEVICE_CUDA + placed.device(),
                             {depth, ids.data(), truth.data(), nullptr, nullptr}, execution, &placed);
      first_by_code_on_device(codes, rows, placed, first.data(), execution);
      return true;
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      return false;
    }
  }
};

}  // namespace

Array<uint32_t> rows_to_measure(uint32_t rows, uint64_t seed, const Allocator& memory) {
  Array<uint32_t> sample(memory, std::min(rows, kSampleRows));
  random_strata(rows, static_cast<uint32_t>(sample.size()), seed, kShareStream, sample.data());
  return sample;
}

SampledLists lists_to_measure(const KnnGraph& lists, uint64_t seed, const Allocator& memory) {
  SampledLists sampled{rows_to_measure(lists.rows, seed, memory), {}, lists.k};
  sampled.neighbors = Array<uint32_t>(memory, sampled.rows.size() * lists.k);
  for (size_t i = 0; i < sampled.rows.size(); ++i)
    std::copy_n(lists.list(sampled.rows[i]), lists.k, sampled.neighbors.data() + i * lists.k);
  return sampled;
}

RowMeasures measure_rows(const Dataset& dataset, const Codes& codes, const SampledLists& lists,
                         double by_codes, uint64_t seed, const DevicePlacement* placed,
                         const Execution& execution) {
  RowMeasures measures{by_codes, codes.order()};
  const bool codes_suffice = dataset.metric() == ANN_METRIC_INNER_PRODUCT || codes.lossless();
  if (codes_suffice || dataset.rows() == 0) return measures;
  if (dataset.rows() <= CodeOrder::kLooked + 1) {
    measures.order = {1, 1, 1};
    return measures;
  }
  const uint32_t known = lists.rows.empty() ? 0 : std::min({lists.k, kDepth, dataset.rows() - 2});
  Array<uint32_t> drawn;
  if (known == 0) drawn = rows_to_measure(dataset.rows(), seed, execution.memory);
  NearSample sample{dataset, codes, known == 0 ? drawn : lists.rows, execution,
                    std::max(known, CodeOrder::kNear)};
  sample.look(placed);
  measures.order = sample.order();
  if (known != 0) measures.knn_share = sample.share_of(lists, known);
  return measures;
}

struct OrderSample::State {
  State(const Dataset& dataset, const Codes& codes, uint64_t seed, const Execution& execution)
      : rows(rows_to_measure(dataset.rows(), seed, execution.memory)),
        near{dataset, codes, rows, execution, CodeOrder::kNear} {
    near.look(nullptr);
  }

  Array<uint32_t> rows;
  NearSample near;
};

OrderSample::OrderSample(const Dataset& dataset, const Codes& codes, uint64_t seed,
                         const Execution& execution)
    : state_(std::make_unique<State>(dataset, codes, seed, execution)) {}

OrderSample::~OrderSample() = default;

CodeOrder OrderSample::order_by(const Codes& codes) {
  state_->near.look_by(codes);
  return state_->near.order();
}

uint64_t measure_rows_device_bytes(const PlacedShape& shape) {
  if (shape.lossless()) return 0;
  const uint64_t as_stored = cuda::exact_device_bytes(shape.rows, shape.dim, shape.metric, shape.element,
                                                      kSampleRows, std::max(kDepth, CodeOrder::kNear) + 1);
  const auto columns = static_cast<uint32_t>(shape.code_stride);
  // Codes may be floats.
  const uint64_t by_code = cuda::exact_device_bytes(shape.rows, columns, ANN_METRIC_L2, ANN_F32, kSampleRows,
                                                    CodeOrder::kLooked + 1);
  return std::max(as_stored, by_code);
}

uint64_t measure_rows_bytes(uint32_t dim, size_t stride, uint32_t threads) {
  return kSampleRows * (dim * 8ull + kDepth * 4 + CodeOrder::kLooked * 12 + stride + 96) + 8 * kAlignment +
         std::max(kSampleRows * (looked_at(kDepth) * 12 + nearest_room(looked_at(kDepth)) * 8 + stride) +
                      threads * (uint64_t{1} << 18),
                  nearest_by_codes_bytes(stride, kSampleRows, kDepth, threads));
}

}  // namespace gannet

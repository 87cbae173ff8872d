#include "dataset/scaled_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 256;
constexpr uint32_t kSampleRows = 8192;  // that centres are fitted to
constexpr uint32_t kRounds = 6;         // of k-means
constexpr uint32_t kJudgedRows = 128;
constexpr uint32_t kTileRows = 256;
constexpr uint32_t kNear = 10;
constexpr uint32_t kLooked = 20;
constexpr double kEnough = 0.999;
constexpr double kEnoughOfWorst = 0.99;
constexpr uint64_t kSampleStream = 0x7363616c6564;  // "scaled"

/// A float as an unsigned number of the same order.
uint32_t in_order(float distance) {
  const uint32_t bits = std::bit_cast<uint32_t>(distance);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The k smallest of what it is shown, with their rows; the largest on top of a heap.
template <class Distance, uint32_t k>
struct Smallest {
  std::pair<Distance, uint32_t> heap[k];
  uint32_t size = 0;

  void show(Distance distance, uint32_t row) {
    const std::pair<Distance, uint32_t> item(distance, row);
    if (size == k && !(item < heap[0])) return;
    if (size == k) std::pop_heap(heap, heap + size--);
    heap[size++] = item;
    std::push_heap(heap, heap + size);
  }
};

}  // namespace

ScaledCodes::Query::Query(const ScaledCodes& codes, const Allocator& memory)
    : floats(memory, codes.dim_),
      values(Array<int16_t>::zeroed(memory, codes.columns_)),
      digits(Array<int8_t>::zeroed(memory, size_t{2} * codes.columns_)),
      table(memory, codes.cells_) {}

ScaledCodes::ScaledCodes(const Dataset& dataset, uint32_t cells, uint64_t seed, const Execution& execution)
    : count_(dataset.rows()),
      dim_(dataset.dim()),
      metric_(dataset.metric()),
      element_(is_float_element(dataset.element()) ? int32_t{ANN_F32} : dataset.element()),
      cells_(std::max(1u, std::min(cells, dataset.rows()))),
      columns_(static_cast<uint32_t>(round_up(dim_, kProductAlign))),
      stride_(round_up_to_16(dim_) + sizeof(Terms)),
      products_(row_products()) {
  Array<uint32_t> sample(execution.memory, std::min(count_, kSampleRows));
  const auto sampled = static_cast<uint32_t>(sample.size());
  random_strata(count_, sampled, seed, kSampleStream, sample.data());
  find_mean(dataset, sample.data(), sampled, execution);
  find_centres(dataset, seed, sample.data(), sampled, execution);
  if (metric_ == ANN_METRIC_INNER_PRODUCT) std::fill(mean_.begin(), mean_.end(), 0.0f);
  stored_ = Array<uint8_t>(execution.memory, checked_product(count_, stride_));
  Array<float> scratch(execution.memory, (size_t{dim_} + cells_) * execution.threads);
  parallel_for(execution, count_, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    float* values = scratch.data() + (size_t{dim_} + cells_) * worker;
    for (uint64_t row = begin; row < end; ++row) {
      row_values(dataset, row, values);
      encode(values, nearest_cell(values, values + dim_), stored_.data() + row * stride_);
    }
  });
}

/// The vector that is coded: as it is, or for cosine at length one.
void ScaledCodes::values_of(const uint8_t* vector, int32_t element, double norm, float* values) const {
  const double scale = metric_ == ANN_METRIC_COSINE && norm > 0 ? 1 / norm : 1;
  for (uint32_t column = 0; column < dim_; ++column)
    values[column] = static_cast<float>(element_to_float(vector, element, column) * scale);
}

void ScaledCodes::row_values(const Dataset& dataset, uint64_t row, float* values) const {
  const uint8_t* vector = dataset.view().row(row);
  double squares = 0;
  if (metric_ == ANN_METRIC_COSINE) {
    for (uint32_t column = 0; column < dim_; ++column) {
      const double value = element_to_float(vector, dataset.element(), column);
      squares += value * value;
    }
  }
  values_of(vector, dataset.element(), std::sqrt(squares), values);
}

uint32_t ScaledCodes::nearest_cell(const float* values, float* distances) const {
  if (cells_ == 1) return 0;
  kernels().squared_l2[ANN_F32](values, centres(), nullptr, cells_, distances);
  return static_cast<uint32_t>(std::min_element(distances, distances + cells_) - distances);
}

void ScaledCodes::find_mean(const Dataset& dataset, const uint32_t* sample, uint32_t count,
                            const Execution& execution) {
  mean_ = Array<float>::zeroed(execution.memory, dim_);
  Array<double> sums = Array<double>::zeroed(execution.memory, dim_);
  Array<float> values(execution.memory, dim_);
  for (uint32_t i = 0; i < count; ++i) {
    row_values(dataset, sample[i], values.data());
    for (uint32_t column = 0; column < dim_; ++column) sums[column] += static_cast<double>(values[column]);
  }
  for (uint32_t column = 0; column < dim_ && count > 0; ++column)
    mean_[column] = static_cast<float>(sums[column] / count);
}

/// Lloyd's k-means on the sample, from rows of it. A centre that no row is nearest to stays where it is.
void ScaledCodes::find_centres(const Dataset& dataset, uint64_t seed, const uint32_t* sample, uint32_t count,
                               const Execution& execution) {
  centres_ = Array<float>(execution.memory, size_t{cells_} * dim_);
  if (cells_ == 1) return static_cast<void>(std::copy_n(mean_.data(), dim_, centres_.data()));
  Array<float> values(execution.memory, size_t{count} * dim_);
  for (uint32_t i = 0; i < count; ++i) row_values(dataset, sample[i], values.data() + size_t{i} * dim_);
  Array<uint32_t> first(execution.memory, cells_);
  random_strata(count, cells_, seed, kSampleStream + 1, first.data());
  for (uint32_t cell = 0; cell < cells_; ++cell)
    std::copy_n(values.data() + size_t{first[cell]} * dim_, dim_, centres_.data() + size_t{cell} * dim_);

  Array<uint32_t> cell_of(execution.memory, count);
  Array<double> sums(execution.memory, size_t{cells_} * dim_);
  Array<uint32_t> sizes(execution.memory, cells_);
  Array<float> scratch(execution.memory, size_t{cells_} * execution.threads);
  for (uint32_t round = 0; round < kRounds; ++round) {
    parallel_for(execution, count, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i)
        cell_of[i] = nearest_cell(values.data() + i * dim_, scratch.data() + size_t{cells_} * worker);
    });
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(sizes.begin(), sizes.end(), 0u);
    for (uint32_t i = 0; i < count; ++i) {
      ++sizes[cell_of[i]];
      double* sum = sums.data() + size_t{cell_of[i]} * dim_;
      for (uint32_t column = 0; column < dim_; ++column)
        sum[column] += static_cast<double>(values[size_t{i} * dim_ + column]);
    }
    for (uint32_t cell = 0; cell < cells_; ++cell) {
      for (uint32_t column = 0; column < dim_ && sizes[cell] > 0; ++column) {
        const size_t place = size_t{cell} * dim_ + column;
        centres_[place] = static_cast<float>(sums[place] / sizes[cell]);
      }
    }
  }
}

void ScaledCodes::encode(const float* values, uint32_t cell, uint8_t* code) const {
  const float* about = centre(cell);
  float most = 0;
  for (uint32_t column = 0; column < dim_; ++column)
    most = std::max(most, std::fabs(values[column] - about[column]));
  // Differences beyond all floats, and below what can be divided by, are coded as none.
  const bool sound = most > 1e-36f && most < INFINITY;
  Terms terms = {sound ? most / 127 : 0, 0, cell, 0};
  const float inverse = sound ? 127 / most : 0;
  double squares = 0;
  double cross = 0;
  for (uint32_t column = 0; column < dim_; ++column) {
    // Halves go up: 128.5 and truncation.
    const float steps = sound ? (values[column] - about[column]) * inverse : 0;
    const auto byte = static_cast<uint8_t>(static_cast<int32_t>(std::clamp(steps, -127.0f, 127.0f) + 128.5f));
    code[column] = byte;
    const double part = static_cast<double>(terms.scale) * (int32_t{byte} - 128);
    squares += part * part;
    cross += part * (static_cast<double>(about[column]) - static_cast<double>(mean_[column]));
  }
  std::memset(code + dim_, 128, round_up_to_16(dim_) - dim_);
  if (metric_ != ANN_METRIC_INNER_PRODUCT) terms.offset = static_cast<float>(squares + 2 * cross);
  std::memcpy(code + round_up_to_16(dim_), &terms, sizeof terms);
}

void ScaledCodes::encode_query(const PreparedQuery& prepared, Query& query) const {
  values_of(static_cast<const uint8_t*>(prepared.values), element_, prepared.norm, query.floats.data());
  const bool product = metric_ == ANN_METRIC_INNER_PRODUCT;
  (product ? kernels().dot : kernels().squared_l2)[ANN_F32](query.floats.data(), centres(), nullptr, cells_,
                                                            query.table.data());
  if (product) {
    for (uint32_t cell = 0; cell < cells_; ++cell) query.table[cell] = -query.table[cell];
  }
  float most = 0;
  for (uint32_t column = 0; column < dim_; ++column)
    most = std::max(most, std::fabs(query.floats[column] - mean_[column]));
  const bool sound = most > 1e-33f && most < INFINITY;
  const auto range = static_cast<float>(most_of_query(dim_));
  const float inverse = sound ? range / most : 0;
  query.weight = sound ? (product ? -1.0f : -2.0f) * (most / range) : 0;
  uint32_t sum = 0;
  for (uint32_t column = 0; column < dim_; ++column) {
    const float steps = sound ? (query.floats[column] - mean_[column]) * inverse : 0;
    const auto value = static_cast<int32_t>(std::floor(std::clamp(steps, -range, range) + 0.5f));
    const int32_t low = static_cast<int8_t>(value & 0xff);
    query.values[column] = static_cast<int16_t>(value);
    query.digits[column] = static_cast<int8_t>((value - low) / 256);
    query.digits[columns_ + column] = static_cast<int8_t>(low);
    sum += static_cast<uint32_t>(value);
  }
  query.bias = sum * 128;
}

void ScaledCodes::distances(const Query& query, const uint32_t* ids, uint32_t first, uint32_t count,
                            uint32_t* out) const {
  constexpr uint32_t kPiece = 64;
  const ProductQuery digits = {query.values.data(), query.digits.data(), query.digits.data() + columns_,
                               query.bias};
  int32_t products[kPiece];
  const uint8_t* from = row(first);
  for (uint32_t begin = 0; begin < count; begin += kPiece) {
    const uint32_t piece = std::min(kPiece, count - begin);
    const uint32_t* numbers = ids != nullptr ? ids + begin : nullptr;
    const uint8_t* base = ids != nullptr ? stored_.data() : from + begin * stride_;
    products_(digits, base, stride_, dim_, numbers, piece, products);
    for (uint32_t i = 0; i < piece; ++i) {
      Terms terms;
      std::memcpy(&terms, base + (numbers != nullptr ? numbers[i] : i) * stride_ + round_up_to_16(dim_),
                  sizeof terms);
      const float cross = query.weight * terms.scale * static_cast<float>(products[i]);
      out[begin + i] = in_order(query.table[terms.cell] + (terms.offset + cross));
    }
  }
}

CodeOrder ScaledCodes::measure(const Dataset& dataset, uint64_t seed, const Execution& execution) const {
  CodeOrder order{1, 1, 1};
  if (count_ <= kLooked + 1) return order;
  const uint32_t judged = std::min(count_, kJudgedRows);
  Array<uint32_t> chosen(execution.memory, judged);
  random_strata(count_, judged, seed, kSampleStream + 2, chosen.data());
  Array<double> ten(execution.memory, judged);
  Array<double> twenty(execution.memory, judged);
  parallel_for(execution, judged, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    Query query(*this, execution.memory);
    Array<uint8_t> values(execution.memory, dataset.query_bytes());
    for (uint64_t i = begin; i < end; ++i) {
      PreparedQuery prepared;
      dataset.prepare(dataset.view().row(chosen[i]), dataset.element(), values.data(), &prepared);
      encode_query(prepared, query);
      Smallest<float, kNear> near;
      Smallest<uint32_t, kLooked> looked;
      float exact[kTileRows];
      uint32_t coded[kTileRows];
      for (uint32_t first = 0; first < count_; first += kTileRows) {
        if (first % (kTileRows * 64) == 0) execution.check();
        const uint32_t count = std::min(kTileRows, count_ - first);
        dataset.distances(prepared, nullptr, first, count, exact);
        distances(query, nullptr, first, count, coded);
        for (uint32_t j = 0; j < count; ++j) {
          if (first + j == chosen[i]) continue;
          near.show(exact[j], first + j);
          looked.show(coded[j], first + j);
        }
      }
      // Rows as near as the tenth will do, whichever they are.
      std::sort_heap(looked.heap, looked.heap + looked.size);
      uint32_t hits = 0;
      for (uint32_t j = 0; j < looked.size; ++j) {
        dataset.distances(prepared, &looked.heap[j].second, 0, 1, exact);
        hits += exact[0] <= near.heap[0].first ? 1 : 0;
        if (j + 1 == kNear) ten[i] = std::min(hits, kNear) / double{kNear};
      }
      twenty[i] = std::min(hits, kNear) / double{kNear};
    }
  });
  const auto mean = [](const double* shares, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += shares[i];
    return sum / count;
  };
  order.first_ten = mean(ten.data(), judged);
  order.first_twenty = mean(twenty.data(), judged);
  std::sort(twenty.begin(), twenty.end());
  order.worst_twenty = mean(twenty.data(), std::max(1u, judged / 10));
  return order;
}

std::optional<ScaledCodes> ScaledCodes::choose(const Dataset& dataset, uint64_t seed,
                                               const Execution& execution, CodeOrder* order) {
  for (const uint32_t cells : {1u, kCellsMany}) {
    ScaledCodes codes(dataset, cells, seed, execution);
    const CodeOrder found = codes.measure(dataset, seed, execution);
    if (order != nullptr) *order = found;
    if (found.first_twenty >= kEnough && found.worst_twenty >= kEnoughOfWorst) return codes;
  }
  return std::nullopt;
}

}  // namespace gannet

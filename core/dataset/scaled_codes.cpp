#include "dataset/scaled_codes.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "dataset/column_means.h"
#include "dataset/lengths.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 256;
constexpr uint64_t kColumnsPerSum = 16;
constexpr uint32_t kSampleRows = 8192;  // that centres are fitted to
constexpr uint32_t kRounds = 6;         // of k-means
constexpr uint32_t kSampledRows = 128;
constexpr uint32_t kTileRows = 256;
constexpr uint32_t kNear = CodeOrder::kNear;
constexpr uint32_t kLooked = CodeOrder::kLooked;
constexpr uint64_t kSampleStream = 0x7363616c6564;  // "scaled"

/// The k smallest of the inserted distances, with their rows; the largest on top of a heap.
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

ScaledCodes::ScaledCodes(const Dataset& dataset, uint32_t cells, uint64_t seed, const Execution& execution)
    : count_(dataset.rows()),
      dim_(dataset.dim()),
      metric_(dataset.metric()),
      element_(is_float_element(dataset.element()) ? int32_t{ANN_F32} : dataset.element()),
      cells_(std::max(1u, std::min(cells, dataset.rows()))),
      stride_(code_stride(dim_)),
      products_(row_products()) {
  fit(dataset, seed, execution);
  if (metric_ == ANN_METRIC_INNER_PRODUCT) std::fill_n(centres_.data(), dim_, 0.0f);
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

/// Mean and centres of a sample.
void ScaledCodes::fit(const Dataset& dataset, uint64_t seed, const Execution& execution) {
  Array<uint32_t> sample(execution.memory, std::min(count_, kSampleRows));
  const auto sampled = static_cast<uint32_t>(sample.size());
  random_strata(count_, sampled, seed, kSampleStream, sample.data());
  centres_ = Array<float>(execution.memory, (size_t{cells_} + 1) * dim_);
  Array<float> values(execution.memory, size_t{sampled} * dim_);
  parallel_for(execution, sampled, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; ++i) row_values(dataset, sample[i], values.data() + i * dim_);
  });
  std::fill_n(centres_.data(), dim_, 0.0f);
  if (sampled > 0) find_column_means(values.data(), sampled, dim_, execution, centres_.data());
  find_centres(values.data(), sampled, seed, execution);
}

ScaledCodes::ScaledCodes(const Dataset& dataset, Parts&& parts)
    : count_(dataset.rows()),
      dim_(dataset.dim()),
      metric_(dataset.metric()),
      element_(is_float_element(dataset.element()) ? int32_t{ANN_F32} : dataset.element()),
      cells_(static_cast<uint32_t>(parts.centres.size() / dim_ - 1)),
      stride_(code_stride(dim_)),
      products_(row_products()),
      stored_(std::move(parts.codes)),
      centres_(std::move(parts.centres)),
      touch_(parts.touch) {}

/// The vector that is coded: as it is, or for cosine at length one.
void ScaledCodes::values_of(const uint8_t* vector, int32_t element, double norm, float* values) const {
  const double scale = metric_ == ANN_METRIC_COSINE && norm > 0 ? 1 / norm : 1;
  scale_to_floats(vector, element, dim_, scale, values);
}

void ScaledCodes::row_values(const Dataset& dataset, uint64_t row, float* values) const {
  const uint8_t* vector = dataset.view().row(row);
  const double length = metric_ == ANN_METRIC_COSINE ? length_of(vector, dataset.element(), dim_) : 0;
  values_of(vector, dataset.element(), length, values);
}

uint32_t ScaledCodes::nearest_cell(const float* values, float* distances) const {
  if (cells_ == 1) return 0;
  kernels().squared_l2[ANN_F32](values, cell_rows(), nullptr, cells_, distances);
  return static_cast<uint32_t>(std::min_element(distances, distances + cells_) - distances);
}

/// Lloyd's k-means on the sample, from rows of it. A centre that no row is nearest to stays where it is.
void ScaledCodes::find_centres(const float* values, uint32_t count, uint64_t seed,
                               const Execution& execution) {
  float* const cells = centres_.data() + dim_;
  if (cells_ == 1) return static_cast<void>(std::copy_n(mean(), dim_, cells));
  Array<uint32_t> first(execution.memory, cells_);
  random_strata(count, cells_, seed, kSampleStream + 1, first.data());
  for (uint32_t cell = 0; cell < cells_; ++cell)
    std::copy_n(values + size_t{first[cell]} * dim_, dim_, cells + size_t{cell} * dim_);

  Array<uint32_t> cell_of(execution.memory, count);
  Array<double> sums(execution.memory, size_t{cells_} * dim_);
  Array<uint32_t> sizes(execution.memory, cells_);
  Array<float> scratch(execution.memory, size_t{cells_} * execution.threads);
  for (uint32_t round = 0; round < kRounds; ++round) {
    parallel_for(execution, count, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i)
        cell_of[i] = nearest_cell(values + i * dim_, scratch.data() + size_t{cells_} * worker);
    });
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(sizes.begin(), sizes.end(), 0u);
    for (uint32_t i = 0; i < count; ++i) ++sizes[cell_of[i]];
    parallel_for(execution, dim_, kColumnsPerSum, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint32_t i = 0; i < count; ++i) {
        double* const sum = sums.data() + size_t{cell_of[i]} * dim_;
        const float* const row = values + size_t{i} * dim_;
        for (uint64_t column = begin; column < end; ++column) sum[column] += static_cast<double>(row[column]);
      }
      for (uint32_t cell = 0; cell < cells_; ++cell) {
        for (uint64_t column = begin; column < end && sizes[cell] > 0; ++column) {
          const size_t place = size_t{cell} * dim_ + column;
          cells[place] = static_cast<float>(sums[place] / sizes[cell]);
        }
      }
    });
  }
}

void ScaledCodes::encode(const float* values, uint32_t cell, uint8_t* code) const {
  const float* about = centre(cell);
  float most = 0;
  for (uint32_t column = 0; column < dim_; ++column)
    most = std::max(most, std::fabs(values[column] - about[column]));
  // Differences beyond all floats, and below the smallest divisor, are coded as none.
  const bool sound = most > 1e-36f && most < INFINITY;
  Terms terms = {sound ? most / 127 : 0, 0, cell, 0};
  const float inverse = sound ? 127 / most : 0;
  uint8_t* const __restrict bytes = code;
  for (uint32_t column = 0; column < dim_; ++column) {
    // Halves go up: 128.5 and truncation.
    const float steps = sound ? (values[column] - about[column]) * inverse : 0;
    bytes[column] = static_cast<uint8_t>(static_cast<int32_t>(std::clamp(steps, -127.0f, 127.0f) + 128.5f));
  }
  std::memset(code + dim_, 0, stride_ - dim_);
  if (metric_ != ANN_METRIC_INNER_PRODUCT) terms.offset = offset_of(bytes, cell, terms.scale);
  std::memcpy(code + terms_at(dim_), &terms, sizeof terms);
}

/// The part of a squared distance that depends on the row alone.
float ScaledCodes::offset_of(const uint8_t* code, uint32_t cell, float scale) const {
  const float* about = centre(cell);
  double squares = 0;
  double cross = 0;
  for (uint32_t column = 0; column < dim_; ++column) {
    const double part = static_cast<double>(scale) * (int32_t{code[column]} - 128);
    squares += part * part;
    cross += part * (static_cast<double>(about[column]) - static_cast<double>(mean()[column]));
  }
  return static_cast<float>(squares + 2 * cross);
}

void ScaledCodes::encode_query(const PreparedQuery& prepared, uint8_t* query) const {
  auto* const head = reinterpret_cast<QueryHead*>(query);
  auto* const high = reinterpret_cast<int8_t*>(query + sizeof(QueryHead));
  int8_t* const low = high + stride_;
  auto* const table = reinterpret_cast<float*>(query + table_at());
  auto* const values = reinterpret_cast<int16_t*>(query + values_at());
  auto* const floats = reinterpret_cast<float*>(query + floats_at());
  values_of(static_cast<const uint8_t*>(prepared.values), element_, prepared.norm, floats);
  const bool product = metric_ == ANN_METRIC_INNER_PRODUCT;
  (product ? kernels().dot : kernels().squared_l2)[ANN_F32](floats, cell_rows(), nullptr, cells_, table);
  if (product) {
    for (uint32_t cell = 0; cell < cells_; ++cell) table[cell] = -table[cell];
  }
  float most = 0;
  for (uint32_t column = 0; column < dim_; ++column)
    most = std::max(most, std::fabs(floats[column] - mean()[column]));
  const bool sound = most > 1e-33f && most < INFINITY;
  const auto range = static_cast<float>(most_of_query(dim_));
  const float inverse = sound ? range / most : 0;
  std::memset(values, 0, stride_ * sizeof(int16_t));
  std::memset(high, 0, 2 * stride_);
  uint32_t sum = 0;
  for (uint32_t column = 0; column < dim_; ++column) {
    const float steps = sound ? (floats[column] - mean()[column]) * inverse : 0;
    const auto value = static_cast<int32_t>(std::floor(std::clamp(steps, -range, range) + 0.5f));
    const int32_t digit = static_cast<int8_t>(value & 0xff);
    values[column] = static_cast<int16_t>(value);
    high[column] = static_cast<int8_t>((value - digit) / 256);
    low[column] = static_cast<int8_t>(digit);
    sum += static_cast<uint32_t>(value);
  }
  *head = {sound ? (product ? -1.0f : -2.0f) * (most / range) : 0, sum * 128, {}};
}

void ScaledCodes::distances(const uint8_t* query, const uint32_t* ids, uint32_t first, uint32_t count,
                            uint32_t* out) const {
  constexpr uint32_t kPiece = 64;
  const auto* const head = reinterpret_cast<const QueryHead*>(query);
  const auto* const high = reinterpret_cast<const int8_t*>(query + sizeof(QueryHead));
  const auto* const table = reinterpret_cast<const float*>(query + table_at());
  const ProductQuery digits = {reinterpret_cast<const int16_t*>(query + values_at()), high, high + stride_,
                               head->bias};
  int32_t products[kPiece];
  for (uint32_t begin = 0; begin < count; begin += kPiece) {
    const uint32_t piece = std::min(kPiece, count - begin);
    const uint32_t* numbers = ids != nullptr ? ids + begin : nullptr;
    const uint8_t* base = ids != nullptr ? stored_.data() : row(first + begin);
    if (touch_ != nullptr) touch(numbers, first + begin, piece);
    products_(digits, base, stride_, dim_, numbers, piece, products);
    for (uint32_t i = 0; i < piece; ++i) {
      Terms terms;
      std::memcpy(&terms, base + (numbers != nullptr ? numbers[i] : i) * stride_ + terms_at(dim_),
                  sizeof terms);
      const float cross = head->weight * terms.scale * static_cast<float>(products[i]);
      out[begin + i] = in_order(table[terms.cell] + (terms.offset + cross));
    }
  }
}

void ScaledCodes::touch(const uint32_t* ids, uint32_t first, uint32_t count) const {
  if (ids == nullptr) return touch_->touch(first * stride_, count * stride_);
  for (uint32_t i = 0; i < count; ++i) touch_->touch(ids[i] * stride_, stride_);
}

float ScaledCodes::scale_of(uint32_t number) const {
  float scale;
  static_assert(offsetof(Terms, scale) == 0);
  std::memcpy(&scale, row(number) + terms_at(dim_), sizeof scale);
  return scale;
}

/// By inner product a column of a row lies within half a step of its byte, one of the query within half a step of its
/// digits, and both are given a little more for the rounding of floats; that of sums grows with the columns.
ScaledCodes::Reach ScaledCodes::reach_of(const uint8_t* query) const {
  const auto* const floats = reinterpret_cast<const float*>(query + floats_at());
  const float step = std::fabs(reinterpret_cast<const QueryHead*>(query)->weight);
  if (metric_ != ANN_METRIC_INNER_PRODUCT || step == 0) return {INFINITY, INFINITY};
  float length = 0;  // L1
  for (uint32_t column = 0; column < dim_; ++column) length += std::fabs(floats[column]);
  float farthest = 0;
  for (const float value : centres_) farthest = std::max(farthest, std::fabs(value));
  const auto columns = static_cast<float>(dim_);
  return {0.52f * length + 65.0f * columns * step, 1e-7f * (columns + 64) * length * farthest};
}

CodeOrder order_of(Array<double>& ten, Array<double>& twenty) {
  const auto mean = [](const double* shares, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += shares[i];
    return sum / static_cast<double>(count);
  };
  CodeOrder order;
  order.first_ten = mean(ten.data(), ten.size());
  order.first_twenty = mean(twenty.data(), twenty.size());
  std::sort(twenty.begin(), twenty.end());
  order.worst_twenty = mean(twenty.data(), std::max<size_t>(1, twenty.size() / 10));
  return order;
}

CodeOrder ScaledCodes::measure(const Dataset& dataset, const MatrixView* queries, uint64_t seed,
                               const Execution& execution) const {
  const MatrixView rows{static_cast<const uint8_t*>(dataset.view().data), count_, dim_, dataset.element(),
                        dataset.view().stride};
  const MatrixView& given = queries != nullptr ? *queries : rows;
  const auto sampled = static_cast<uint32_t>(std::min<uint64_t>(given.rows, kSampledRows));
  if (count_ <= kLooked + 1 || sampled == 0) return {1, 1, 1};
  Array<uint32_t> chosen(execution.memory, sampled);
  random_strata(static_cast<uint32_t>(given.rows), sampled, seed, kSampleStream + 2, chosen.data());
  Array<double> ten(execution.memory, sampled);
  Array<double> twenty(execution.memory, sampled);
  parallel_for(execution, sampled, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    Array<uint8_t> query(execution.memory, query_bytes());
    Array<uint8_t> values(execution.memory, dataset.query_bytes());
    for (uint64_t i = begin; i < end; ++i) {
      PreparedQuery prepared;
      dataset.prepare(given.row(chosen[i]), given.element, values.data(), &prepared);
      encode_query(prepared, query.data());
      const uint32_t self = queries != nullptr ? count_ : chosen[i];
      const Reach reach = reach_of(query.data());
      Smallest<float, kNear> near;
      Smallest<uint32_t, kLooked> looked;
      uint32_t coded[kTileRows];
      float exact;
      for (uint32_t first = 0; first < count_; first += kTileRows) {
        if (first % (kTileRows * 64) == 0) execution.check();
        const uint32_t count = std::min(kTileRows, count_ - first);
        distances(query.data(), nullptr, first, count, coded);
        for (uint32_t j = 0; j < count; ++j) {
          const uint32_t number = first + j;
          if (number == self) continue;
          looked.show(coded[j], number);
          // Of 150,000 rows some hundred are left, where comparing all of them took three quarters of the time.
          if (near.size == kNear &&
              reach.least(out_of_order(coded[j]), scale_of(number)) > near.heap[0].first)
            continue;
          dataset.distances(prepared, &number, 0, 1, &exact);
          near.show(exact, number);
        }
      }
      // Rows as near as the tenth will do, whichever they are.
      std::sort_heap(looked.heap, looked.heap + looked.size);
      uint32_t hits = 0;
      for (uint32_t j = 0; j < looked.size; ++j) {
        dataset.distances(prepared, &looked.heap[j].second, 0, 1, &exact);
        hits += exact <= near.heap[0].first ? 1 : 0;
        if (j + 1 == kNear) ten[i] = std::min(hits, kNear) / double{kNear};
      }
      twenty[i] = std::min(hits, kNear) / double{kNear};
    }
  });
  return order_of(ten, twenty);
}

ScaledCodes ScaledCodes::choose(const Dataset& dataset, const MatrixView* queries, uint64_t seed,
                                const Execution& execution, CodeOrder* order) {
  ScaledCodes one(dataset, 1, seed, execution);
  *order = one.measure(dataset, queries, seed, execution);
  if (order->is_enough()) return one;
  ScaledCodes many(dataset, kCellsMany, seed, execution);
  *order = many.measure(dataset, queries, seed, execution);
  return many;
}

uint64_t scaled_codes_bytes(uint64_t rows, uint32_t dim) {
  const uint64_t centres = (ScaledCodes::kCellsMany + uint64_t{1}) * dim * sizeof(float);
  return rows * ScaledCodes::code_stride(dim) + centres;
}

uint64_t fit_scaled_codes_bytes(uint32_t dim, uint32_t threads) {
  constexpr uint64_t kCells = ScaledCodes::kCellsMany;
  const uint64_t sample =
      kSampleRows * (dim * sizeof(float) + 2 * sizeof(uint32_t));  // values, row and cell of each
  const uint64_t centres = kCells * dim * sizeof(float);           // of another choice
  const uint64_t means = (kCells + 1) * dim * sizeof(double) + 2 * kCells * sizeof(uint32_t);
  const uint64_t sampled = kSampledRows * (2 * sizeof(double) + sizeof(uint32_t));
  const uint64_t coding = (dim + 2 * kCells) * sizeof(float);
  const uint64_t ordering = ScaledCodes::query_bytes(dim, kCells) + dim * sizeof(float);
  return sample + centres + means + sampled + threads * (coding + ordering + 2 * kAlignment) + 8 * kAlignment;
}

}  // namespace gannet

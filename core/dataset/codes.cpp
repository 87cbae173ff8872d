#include "dataset/codes.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "dataset/column_means.h"
#include "dataset/lengths.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTaskMax = 512;
constexpr uint32_t kSampleRows = 4096;
constexpr uint32_t kStepsTried = 16;
constexpr uint64_t kRowsPerFit = 256;
constexpr uint32_t kSampledRows = 128;
constexpr float kStepsApart = 16;
constexpr uint32_t kFirstColumns = 64;  // that tell most rows apart
constexpr int64_t kNearShare = 20;
constexpr uint64_t kSampleStream = 0x636f646573;  // "codes"
constexpr float kQueryMax =
    1e15f;  // of a column: a query may lie beyond all rows, but its square stays in range
constexpr uint32_t kHalfRowsMin = 64;
constexpr float kHalfMax = 65504;             // the largest that is finite
constexpr uint32_t kSampledValues = 1 << 16;  // of wide codes, for the step of bytes that stand in for them;
constexpr double kKept = 0.998;               // so many of these are not clipped

/// Counts and sums of the sizes of deviations, by the first of kStepsTried clips beyond them. Clips are equally
/// far apart up to the largest deviation. Most lie below the first few clips, so that one addition would wait for the
/// last: callers take turns between several.
struct Deviations {
  double count[kStepsTried] = {};
  double sum[kStepsTried] = {};
  double squares[kStepsTried] = {};

  void add(double magnitude, double clips_per_unit) {
    const uint32_t clip = std::min(static_cast<uint32_t>(magnitude * clips_per_unit), kStepsTried - 1);
    count[clip] += 1;
    sum[clip] += magnitude;
    squares[clip] += magnitude * magnitude;
  }
  void add(const Deviations& others) {
    for (uint32_t i = 0; i < kStepsTried; ++i) {
      count[i] += others.count[i];
      sum[i] += others.sum[i];
      squares[i] += others.squares[i];
    }
  }

  /// The clip, by its number, that codes them with the least squared error: of deviations below it that of
  /// rounding, of those beyond it the excess.
  uint32_t best_clip(double largest) const {
    uint32_t best = 0;
    double least = INFINITY;
    double beyond_count = 0, beyond_sum = 0, beyond_squares = 0, within = 0;
    for (uint32_t i = 0; i < kStepsTried; ++i) within += count[i];
    for (uint32_t i = kStepsTried; i-- > 0;) {
      const double clip = largest * (i + 1) / kStepsTried;
      const double step = clip / 127;
      const double error =
          beyond_squares - 2 * clip * beyond_sum + clip * clip * beyond_count + within * step * step / 12;
      if (error <= least) {
        least = error;
        best = i;
      }
      beyond_count += count[i];
      beyond_sum += sum[i];
      beyond_squares += squares[i];
      within -= count[i];
    }
    return best;
  }
};

/// Whether rows are compared as they are stored in place of wide codes: halves, of so many columns that it matters little
/// that they start anywhere in a cache line.
constexpr bool half_rows_serve(uint32_t dim, int32_t metric, int32_t element) {
  return metric == ANN_METRIC_L2 && element == ANN_F16 && dim >= kHalfRowsMin;
}

/// Rows that a task compares with all of the kSampledRows, 128 KB of values at most.
constexpr uint64_t rows_per_part(uint64_t columns) { return items_per_task(8 * columns, 64); }

/// The code of a value in steps. Halves go up: 128.5 and truncation, after clipping to a byte's range. A difference
/// beyond the range of a float is clipped like any other.
uint8_t byte_of(float steps) {
  return static_cast<uint8_t>(static_cast<int32_t>(std::min(255.0f, std::max(0.0f, steps + 128.5f))));
}

/// Distances of a query of floats to rows, as numbers: the bits of floats >= 0 keep their order.
void write_as_bits(const uint8_t* query, const RowsView& rows, const uint32_t* ids, uint32_t count,
                   uint32_t* out) {
  float pieces[64];
  for (uint32_t first = 0; first < count; first += 64) {
    const uint32_t piece = std::min(64u, count - first);
    kernels().squared_l2[rows.element](query, rows, ids + first, piece, pieces);
    std::memcpy(out + first, pieces, piece * sizeof(float));
  }
}

}  // namespace

size_t Codes::code_stride(uint32_t dim, int32_t metric, bool wide) {
  return round_up(size_t{code_columns(dim, metric)} * (wide ? sizeof(float) : 1), kCodeAlign);
}

/// Everything that follows from the dataset; where the rows serve, that is all.
Codes::Codes(const Dataset& dataset, int32_t metric)
    : count_(dataset.rows()),
      dim_(dataset.dim()),
      metric_(metric),
      element_(dataset.element()),
      stride_(code_stride(dim_, metric_, false)) {
  lossless_ = metric_ == ANN_METRIC_L2 && !is_float_element(element_);
  flip_ = lossless_ && element_ == ANN_I8 ? 0x80 : 0;
  if (rows_serve(dataset.metric(), element_, dataset.borrowed()))
    data_ = static_cast<const uint8_t*>(dataset.view().data);
  walk_over(data_, stride_);
}

Codes::Codes(const Dataset& dataset, uint64_t seed, const Execution& execution)
    : Codes(dataset, dataset.metric()) {
  make(dataset, seed, execution);
}

Codes Codes::of_rows(const Dataset& dataset, uint64_t seed, const Execution& execution) {
  Codes codes(dataset, ANN_METRIC_L2);
  codes.make(dataset, seed, execution);
  return codes;
}

void Codes::make(const Dataset& dataset, uint64_t seed, const Execution& execution) {
  if (data_ != nullptr) return;
  begin(dataset, seed, execution);
  const RowsView& rows = dataset.view();
  Array<float> scratch(execution.memory, size_t{columns()} * execution.threads);
  parallel_for(execution, count_, items_per_task(columns(), kRowsPerTaskMax),
               [&](uint64_t begin, uint64_t end, uint32_t worker) {
                 float* values = scratch.data() + size_t{columns()} * worker;
                 double lengths[kRowsPerTaskMax];
                 if (needs_lengths())
                   find_lengths(rows.row(begin), rows.stride, end - begin, element_, dim_, lengths);
                 for (uint64_t number = begin; number < end; ++number) {
                   uint8_t* code = stored_.data() + number * stride_;
                   if (lossless_) {
                     std::memcpy(code, rows.row(number), dim_);
                     std::memset(code + dim_, 0, stride_ - dim_);
                   } else {
                     transform(rows.row(number), needs_lengths() ? lengths[number - begin] : 0, values);
                     encode(values, 0, columns(), code);
                   }
                 }
               });
}

/// Everything but the codes, for which there is room then.
void Codes::begin(const Dataset& dataset, uint64_t seed, const Execution& execution) {
  if (!lossless_) {
    if (metric_ == ANN_METRIC_INNER_PRODUCT) {
      Array<double> longest = Array<double>::zeroed(execution.memory, execution.threads);
      parallel_for(execution, count_, items_per_task(columns(), kRowsPerTaskMax),
                   [&](uint64_t begin, uint64_t end, uint32_t worker) {
                     const RowsView& rows = dataset.view();
                     double lengths[kRowsPerTaskMax];
                     find_lengths(rows.row(begin), rows.stride, end - begin, element_, dim_, lengths);
                     for (uint64_t i = 0; i < end - begin; ++i)
                       longest[worker] = std::max(longest[worker], lengths[i]);
                   });
      norm_max_ = *std::max_element(longest.begin(), longest.end());
    }
    const Array<uint32_t> sample = sample_of(count_, seed, execution.memory);
    fit(
        static_cast<uint32_t>(sample.size()), [&](uint64_t i) { return dataset.view().row(sample[i]); },
        execution);
  }
  make_room(execution.memory);
  see_halves(dataset);
}

/// Where halves take fewer cache lines, and rows do not serve.
size_t Codes::half_stride(uint32_t dim, int32_t metric, int32_t element) {
  if (metric == ANN_METRIC_INNER_PRODUCT || half_rows_serve(dim, metric, element)) return 0;
  const size_t stride = round_up(size_t{dim} * sizeof(uint16_t), kCodeAlign);
  return stride < code_stride(dim, metric, true) ? stride : 0;
}

void Codes::make_halves(const Execution& execution) {
  const size_t stride = half_stride(dim_, metric_, element_);
  if (!wide_ || scaled_ != nullptr || stride == 0 || count_ == 0) return;
  halves_ = Array<uint8_t>(execution.memory, checked_product(count_, stride));
  parallel_for(execution, count_, items_per_task(dim_, kRowsPerTaskMax),
               [&](uint64_t begin, uint64_t end, uint32_t) {
                 for (uint64_t row = begin; row < end; ++row) {
                   const float* const values = reinterpret_cast<const float*>(data_ + row * stride_);
                   uint16_t* const halves = reinterpret_cast<uint16_t*>(halves_.data() + row * stride);
                   for (uint32_t column = 0; column < dim_; ++column)
                     halves[column] = f16_of_float(std::clamp(values[column], -kHalfMax, kHalfMax));
                   std::fill(halves + dim_, halves + stride / sizeof(uint16_t), uint16_t{0});
                 }
               });
  walk_by_halves();
}

void Codes::copy_halves(const Codes& all, const uint32_t* rows, const Allocator& memory) {
  halves_ = Array<uint8_t>(memory, checked_product(count_, all.walk_stride_));
  for (uint32_t i = 0; i < count_; ++i)
    std::memcpy(halves_.data() + i * all.walk_stride_, all.walk_row(rows[i]), all.walk_stride_);
  walk_by_halves();
}

void Codes::walk_by_halves() {
  by_halves_ = true;
  walk_over(halves_.data(), half_stride(dim_, metric_, element_));
}

void Codes::drop_halves() {
  halves_ = {};
  halves_touch_ = nullptr;
  by_halves_ = false;
  walk_over(data_, stride_);
}

void Codes::see_halves(const Dataset& dataset) {
  if (!wide_ || !half_rows_serve(dim_, metric_, element_)) return;
  by_halves_ = true;
  halves_touch_ = dataset.vectors_touch();
  walk_over(dataset.view().data, dataset.view().stride);
}

Codes::Codes(const Dataset& dataset, const RowsView& sample, double norm_max, const Execution& execution)
    : Codes(dataset, dataset.metric()) {
  if (lossless_) return;
  norm_max_ = norm_max;
  fit(std::min(count_, kSampleRows), [&](uint64_t i) { return sample.row(i); }, execution);
  make_room(execution.memory);
  see_halves(dataset);
}

Codes Codes::to_be_made(const Dataset& dataset, uint64_t seed, const Execution& execution) {
  Codes codes(dataset, dataset.metric());
  if (codes.data_ == nullptr) codes.begin(dataset, seed, execution);
  return codes;
}

// Gathered bytes are unsigned, so that these codes have nothing to flip.
Codes::Codes(const Codes& all, const uint32_t* rows, uint32_t count, const Allocator& memory)
    : count_(count),
      dim_(all.dim_),
      metric_(all.metric_),
      element_(all.element_),
      stride_(all.stride_),
      lossless_(all.lossless_),
      wide_(all.wide_),
      stored_(memory, checked_product(count, all.stride_)) {
  all.gather(rows, count, stored_.data());
  data_ = stored_.data();
  walk_over(data_, stride_);
}

Codes Codes::as_bytes(const Execution& execution) const {
  const uint32_t width = columns();
  const auto values_of = [&](uint64_t row) { return reinterpret_cast<const float*>(data_ + row * stride_); };
  // From rows at equal steps.
  const auto sampled = static_cast<uint32_t>(std::clamp<size_t>(kSampledValues / width, 1, count_));
  Array<float> sizes(execution.memory, size_t{sampled} * width);
  for (uint32_t i = 0; i < sampled; ++i) {
    const float* values = values_of(uint64_t{i} * count_ / sampled);
    for (uint32_t column = 0; column < width; ++column)
      sizes[i * size_t{width} + column] = std::fabs(values[column]);
  }
  float* const kept = sizes.data() + static_cast<size_t>(kKept * static_cast<double>(sizes.size() - 1));
  std::nth_element(sizes.begin(), kept, sizes.end());
  const float inverse_step = *kept > 0 ? 127 / *kept : 0;

  Codes bytes;
  bytes.count_ = count_;
  bytes.dim_ = dim_;
  bytes.metric_ = metric_;
  bytes.element_ = element_;
  bytes.stride_ = bytes_stride(*this);
  bytes.stored_ = Array<uint8_t>(execution.memory, checked_product(count_, bytes.stride_));
  bytes.data_ = bytes.stored_.data();
  bytes.walk_over(bytes.data_, bytes.stride_);
  parallel_for(execution, count_, items_per_task(width, kRowsPerTaskMax),
               [&](uint64_t begin, uint64_t end, uint32_t) {
                 for (uint64_t row = begin; row < end; ++row) {
                   const float* values = values_of(row);
                   uint8_t* code = bytes.stored_.data() + row * bytes.stride_;
                   for (uint32_t column = 0; column < width; ++column)
                     code[column] = byte_of(values[column] * inverse_step);
                   std::memset(code + width, 0, bytes.stride_ - width);
                 }
               });
  return bytes;
}

Codes Codes::of_projection(const Codes& codes, const ProjectedCodes& projected) {
  Codes view;
  view.count_ = codes.count_;
  view.dim_ = codes.dim_;
  view.metric_ = codes.metric_;
  view.element_ = codes.element_;
  view.stride_ = projected.width();
  view.data_ = projected.data();
  view.walk_over(view.data_, view.stride_);
  view.of_ = &codes;
  view.by_ = &projected;
  return view;
}

Array<uint32_t> Codes::sample_of(uint32_t rows, uint64_t seed, const Allocator& memory) {
  Array<uint32_t> sample(memory, std::min(rows, kSampleRows));
  random_strata(rows, static_cast<uint32_t>(sample.size()), seed, kSampleStream, sample.data());
  return sample;
}

void Codes::make_room(const Allocator& memory) {
  stride_ = code_stride(dim_, metric_, wide_);
  stored_ = Array<uint8_t>(memory, checked_product(count_, stride_));
  data_ = stored_.data();
  walk_over(data_, stride_);
}

Codes::Codes(const Dataset& dataset, Parts&& parts)
    : count_(dataset.rows()),
      dim_(dataset.dim()),
      metric_(dataset.metric()),
      element_(dataset.element()),
      stride_(code_stride(dim_, metric_, parts.wide)),
      lossless_(rows_serve(metric_, element_, false)),
      wide_(parts.wide),
      stored_(std::move(parts.codes)),
      centre_(std::move(parts.centre)),
      inverse_step_(parts.inverse_step),
      norm_max_(parts.norm_max),
      touch_(lossless_ ? dataset.vectors_touch() : parts.touch) {
  data_ = lossless_ ? static_cast<const uint8_t*>(dataset.view().data) : stored_.data();
  flip_ = lossless_ && element_ == ANN_I8 ? 0x80 : 0;
  walk_over(data_, stride_);
  see_halves(dataset);
  if (parts.halves.empty()) return;
  halves_ = std::move(parts.halves);
  halves_touch_ = parts.halves_touch;
  walk_by_halves();
}

double Codes::length_of_row(const uint8_t* row) const {
  return needs_lengths() ? length_of(row, element_, dim_) : 0;
}

/// The vector that is coded: as it is, at length one, or with its extra columns.
void Codes::transform(const uint8_t* row, double length, float* values) const {
  const double scale = metric_ == ANN_METRIC_COSINE && length > 0 ? 1 / length : 1;
  scale_to_floats(row, element_, dim_, scale, values);
  if (metric_ == ANN_METRIC_INNER_PRODUCT) {
    const double rest = std::max(0.0, norm_max_ * norm_max_ - length * length);
    for (uint32_t i = 0; i < kSplit; ++i) values[dim_ + i] = static_cast<float>(std::sqrt(rest / kSplit));
  }
}

/// Columns first ... end of a code; the last call fills the row up with zeros.
void Codes::encode(const float* values, uint32_t first, uint32_t end, uint8_t* code) const {
  // Bytes may lie anywhere, so that loops are vectors only where no pointer of theirs is read again.
  const float* const __restrict centre = centre_.data() + first;
  const float inverse_step = inverse_step_;
  const uint32_t count = end - first;
  if (wide_) {
    uint8_t* const __restrict out = code + first * sizeof(float);
    for (uint32_t i = 0; i < count; ++i) {
      const float kept = std::min(kQueryMax, std::max(-kQueryMax, (values[i] - centre[i]) * inverse_step));
      std::memcpy(out + i * sizeof kept, &kept, sizeof kept);
    }
  } else {
    uint8_t* const __restrict out = code + first;
    for (uint32_t i = 0; i < count; ++i) out[i] = byte_of((values[i] - centre[i]) * inverse_step);
  }
  const size_t used = end * (wide_ ? sizeof(float) : 1);
  if (end == columns()) std::memset(code + used, 0, stride_ - used);
}

/// Chooses centre and step, or a scale, by the rows row_of(0 ... sample_rows).
template <class RowOf>
void Codes::fit(uint32_t sample_rows, const RowOf& row_of, const Execution& execution) {
  const uint32_t width = columns();
  centre_ = Array<float>::zeroed(execution.memory, width);
  if (sample_rows == 0) return;
  Array<float> values(execution.memory, size_t{sample_rows} * width);
  parallel_for(execution, sample_rows, items_per_task(width, 64),
               [&](uint64_t begin, uint64_t end, uint32_t) {
                 for (uint64_t i = begin; i < end; ++i)
                   transform(row_of(i), length_of_row(row_of(i)), values.data() + i * width);
               });
  find_column_means(values.data(), sample_rows, width, execution, centre_.data());
  const uint64_t tasks = (sample_rows + kRowsPerFit - 1) / kRowsPerFit;
  Array<float> largest_of = Array<float>::zeroed(execution.memory, tasks);
  parallel_for(execution, sample_rows, kRowsPerFit, [&](uint64_t begin, uint64_t end, uint32_t) {
    float largest = 0;
    for (uint64_t i = begin; i < end; ++i) {
      if (i % items_per_task(width, 16) == 0) execution.check();
      float* row = values.data() + i * width;
      for (uint32_t column = 0; column < width; ++column) {
        row[column] -= centre_[column];
        if (!std::isfinite(row[column])) row[column] = 0;
        largest = std::max(largest, std::fabs(row[column]));
      }
    }
    largest_of[begin / kRowsPerFit] = largest;
  });
  const float largest = *std::max_element(largest_of.data(), largest_of.data() + tasks);
  Array<Deviations> parts(execution.memory, tasks);
  parallel_for(execution, sample_rows, kRowsPerFit, [&](uint64_t begin, uint64_t end, uint32_t) {
    constexpr uint32_t kTurns = 4;
    Deviations turns[kTurns];
    const double clips_per_unit = largest > 0 ? kStepsTried / double{largest} : 0;
    for (uint64_t row = begin; row < end; ++row) {
      if (row % items_per_task(width, 16) == 0) execution.check();
      const float* const sizes = values.data() + row * width;
      uint32_t column = 0;
      for (; column + kTurns <= width; column += kTurns) {
        for (uint32_t turn = 0; turn < kTurns; ++turn)
          turns[turn].add(std::fabs(sizes[column + turn]), clips_per_unit);
      }
      for (; column < width; ++column) turns[0].add(std::fabs(sizes[column]), clips_per_unit);
    }
    for (uint32_t turn = 1; turn < kTurns; ++turn) turns[0].add(turns[turn]);
    parts[begin / kRowsPerFit] = turns[0];
  });
  Deviations all;
  for (uint64_t i = 0; i < tasks; ++i) all.add(parts[i]);
  const double step = double{largest} * static_cast<double>(all.best_clip(largest) + 1) / kStepsTried / 127;
  wide_ = !bytes_suffice(values.data(), sample_rows, static_cast<float>(step), execution);
  // Rows that all lie within a float's smallest step of their centre get one code; answers are
  // still computed on the rows.
  const double unit = wide_ ? double{largest} : step;
  inverse_step_ = unit > 1e-37 ? static_cast<float>(1 / unit) : 0;
}

/// Whether all but one of kNearShare sampled rows lie kStepsApart from their nearest other row. Where more are nearer
/// it is they whose neighbours are lost: with one of four as the rule, sets of two densities had all rows compared for
/// any recall, and 850,000 image patches, of which 18 % are nearer, gave 100 answers at .99 at 0.79 M queries/s of an
/// H200 instead of 3.2 by floats, and at .95 no more than by floats. Rows equal to another do not count: nothing
/// distinguishes them.
///
/// A task compares all sampled rows with a part of the others, which stays in its processor's cache: by their first columns,
/// and by all of them where these alone are not farther apart. Sums of squares only grow.
bool Codes::bytes_suffice(const float* sample, uint32_t rows, float step, const Execution& execution) const {
  if (!(step > 0)) return true;
  constexpr float kFarEnough = kStepsApart * kStepsApart;
  constexpr float kSurely = 1.001f;  // of a sum in another order
  const uint32_t width = columns();
  const uint32_t sampled = std::min(rows, kSampledRows);
  // In steps, so that no square leaves the range of a float.
  const auto in_steps = [&](uint64_t row, float* to) {
    for (uint32_t column = 0; column < width; ++column) to[column] = sample[row * width + column] / step;
  };
  Array<float> chosen(execution.memory, size_t{sampled} * width);
  for (uint64_t i = 0; i < sampled; ++i) in_steps(i * rows / sampled, chosen.data() + i * width);
  const uint64_t part = rows_per_part(width);
  const uint64_t parts = (rows + part - 1) / part;
  Array<float> others(execution.memory, part * width * execution.threads);
  Array<float> distances(execution.memory, part * execution.threads);
  Array<uint8_t> is_near = Array<uint8_t>::zeroed(execution.memory, parts * sampled);
  parallel_for(execution, rows, part, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    float* there = others.data() + part * width * worker;
    for (uint64_t row = begin; row < end; ++row) in_steps(row, there + (row - begin) * width);
    const RowsView first_columns{there, width * sizeof(float), std::min(width, kFirstColumns), ANN_F32};
    const RowsView whole{there, width * sizeof(float), width, ANN_F32};
    const auto squared = kernels().squared_l2[ANN_F32];
    float* found = distances.data() + part * worker;
    const auto count = static_cast<uint32_t>(end - begin);
    for (uint32_t i = 0; i < sampled; ++i) {
      const float* const one = chosen.data() + size_t{i} * width;
      squared(one, first_columns, nullptr, count, found);
      const bool are_far =
          std::none_of(found, found + count, [](float distance) { return distance <= kSurely * kFarEnough; });
      if (are_far) continue;
      if (width > kFirstColumns) squared(one, whole, nullptr, count, found);
      is_near[begin / part * sampled + i] = std::any_of(
          found, found + count, [](float distance) { return distance > 0 && distance < kFarEnough; });
    }
  });
  int64_t near = 0;
  for (uint32_t i = 0; i < sampled; ++i) {
    uint64_t number = 0;
    while (number < parts && is_near[number * sampled + i] == 0) ++number;
    near += number < parts;
  }
  return near * kNearShare <= static_cast<int64_t>(sampled);
}

void Codes::distances(const uint8_t* code, const uint32_t* ids, uint32_t count, uint32_t* out) const {
  if (touch_ != nullptr) {
    for (uint32_t i = 0; i < count; ++i) touch_->touch(ids[i] * stride_, stride_);
  }
  if (!wide_) {
    kernels().code_gather(code, data_, stride_, flip_, ids, count, out);
    return;
  }
  write_as_bits(code, wide_rows(data_), ids, count, out);
}

void Codes::distances_of_row(uint32_t number, const uint32_t* ids, uint32_t count, uint32_t* out) const {
  if (flip_ == 0) return distances(row(number), ids, count, out);
  alignas(kCodeAlign) uint8_t code[ANN_DIM_MAX];  // bytes, whose stride is no more
  gather(&number, 1, code);
  distances(code, ids, count, out);
}

void Codes::encode_walk_query(const PreparedQuery& query, uint8_t* code) const {
  if (scaled_ != nullptr) return scaled_->encode_query(query, code);
  if (projected_ != nullptr) {
    uint8_t* const plain = code + walk_stride_;
    encode_query(query, plain);
    return projected_->project(plain, plain + stride_, code);
  }
  if (!by_halves_ || has_halves()) return encode_query(query, code);
  const float* values = static_cast<const float*>(query.values);
  for (uint32_t column = 0; column < dim_; ++column) {
    const float kept = std::min(kQueryMax, std::max(-kQueryMax, values[column]));
    std::memcpy(code + column * sizeof kept, &kept, sizeof kept);
  }
}

void Codes::half_distances(const uint8_t* code, const uint32_t* ids, uint32_t count, uint32_t* out) const {
  if (halves_touch_ != nullptr) {
    for (uint32_t i = 0; i < count; ++i) halves_touch_->touch(ids[i] * walk_stride_, walk_stride_);
  }
  write_as_bits(code, {walk_data_, walk_stride_, dim_, ANN_F16}, ids, count, out);
}

void Codes::pack(const uint8_t* block, uint32_t count, uint8_t* packed) const {
  if (wide_) {
    kernels().float_pack(reinterpret_cast<const float*>(block),
                         static_cast<uint32_t>(stride_ / sizeof(float)), count,
                         reinterpret_cast<float*>(packed));
  } else {
    kernels().code_pack(block, stride_, count, packed);
  }
}

void Codes::tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
                 uint32_t* out, size_t out_stride) const {
  if (wide_) {
    kernels().float_tile(reinterpret_cast<const float*>(left), left_count,
                         reinterpret_cast<const float*>(packed), right_count,
                         static_cast<uint32_t>(stride_ / sizeof(float)), out, out_stride);
  } else {
    kernels().code_tile(left, left_count, packed, right_count, stride_, compared_columns(), out, out_stride);
  }
}

/// The factor of a query for inner product: the largest that clips no column (the extra ones are 0).
float Codes::query_scale(const uint8_t* values, int32_t element) const {
  const float most = wide_ ? 1.0f : 127.0f;
  float scale = INFINITY;
  for (uint32_t column = 0; column < dim_; ++column) {
    const float steps = static_cast<float>(element_to_float(values, element, column)) * inverse_step_;
    const float centre = centre_[column] * inverse_step_;
    const float room = steps < 0 ? most - centre : most + centre;
    // No length serves a column whose centre lies farther than codes reach, on the other side.
    if (steps != 0 && room > 0) scale = std::min(scale, room / std::fabs(steps));
  }
  return scale < 1e30f ? scale : 1;
}

void Codes::encode_query(const PreparedQuery& query, uint8_t* code) const {
  if (by_ != nullptr) {
    Array<uint8_t> space(Allocator(), of_->stride_ + by_->scratch_bytes());
    of_->encode_query(query, space.data());
    return by_->project(space.data(), space.data() + of_->stride_, code);
  }
  const uint8_t* values = static_cast<const uint8_t*>(query.values);
  if (lossless_) {
    const uint8_t flip = element_ == ANN_I8 ? 0x80 : 0;
    for (uint32_t column = 0; column < dim_; ++column) code[column] = values[column] ^ flip;
    // Row bytes beyond the dimension are 0 and are flipped with the others when they are read.
    std::memset(code + dim_, flip_, stride_ - dim_);
    return;
  }
  constexpr uint32_t kPiece = 1024;
  const int32_t element = is_float_element(element_) ? int32_t{ANN_F32} : element_;
  const double scale = metric_ == ANN_METRIC_INNER_PRODUCT              ? query_scale(values, element)
                       : metric_ == ANN_METRIC_COSINE && query.norm > 0 ? 1 / query.norm
                                                                        : 1;
  const uint32_t width = columns();
  // In pieces on the stack, so that a search allocates nothing and small stacks do.
  float piece[kPiece];
  for (uint32_t first = 0; first < width; first += kPiece) {
    const uint32_t end = std::min(width, first + kPiece);
    if (element == ANN_F32 && scale == 1) {
      const uint32_t held = std::min(end, dim_) - std::min(first, dim_);
      std::memcpy(piece, values + size_t{first} * sizeof(float), held * sizeof(float));
      std::fill(piece + held, piece + (end - first), 0.0f);
    } else {
      for (uint32_t column = first; column < end; ++column) {
        const double value = column < dim_ ? element_to_float(values, element, column) * scale : 0.0;
        piece[column - first] = static_cast<float>(value);
      }
    }
    encode(piece, first, end, code);
  }
}

void Codes::gather(const uint32_t* ids, uint32_t count, uint8_t* block) const {
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t* target = block + i * stride_;
    std::memcpy(target, row(ids[i]), stride_);
    if (flip_ != 0) {
      for (size_t byte = 0; byte < stride_; ++byte) target[byte] ^= flip_;
    }
  }
}

uint64_t coding_bytes(uint32_t dim, uint32_t threads) {
  const uint64_t columns = dim + Codes::kSplit;
  const uint64_t part = rows_per_part(columns);
  const uint64_t sample = kSampleRows * columns;
  const uint64_t chosen = kSampledRows * columns;
  const uint64_t nearest = (kSampleRows / part + 1) * kSampledRows;
  const uint64_t worker = columns + part * (columns + 1);  // a row's values; a part's, and distances
  return (sample + chosen + nearest + threads * worker) * sizeof(float);
}

}  // namespace gannet

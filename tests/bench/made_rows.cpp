#include "made_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/random.h"
#include "handles.h"
#include "parallel.h"

namespace bench {

namespace {

constexpr uint32_t kBases = 16;  // bases that the clusters share; more would only take memory
constexpr uint32_t kCandidates = 8;
constexpr uint32_t kNearest = 10;
constexpr uint32_t kListed = 24;  // of which the first 10 count: longer lists are found more surely
constexpr uint32_t kSiblingsMax = 2;

// Random numbers of one purpose ("stream"), one after the other.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream, uint64_t item)
      : seed_(gannet::random_word(seed, stream, item)) {}

  uint64_t word() { return gannet::random_word(seed_, 0, counter_++); }
  uint64_t below(uint64_t bound) { return gannet::random_below(bound, seed_, 0, counter_++); }
  // In [0, 1), with 53 bits.
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  // Nearly normal: the sum of twelve uniform numbers of 16 bits. Unlike a logarithm, a sum of
  // integers is the same on every machine.
  float normal() {
    uint64_t sum = 0;
    for (int i = 0; i < 3; ++i) {
      const uint64_t four = word();
      sum += (four & 0xffff) + (four >> 16 & 0xffff) + (four >> 32 & 0xffff) + (four >> 48);
    }
    return static_cast<float>(static_cast<double>(sum) / 65536.0 - 6.0);
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

enum Stream : uint64_t { kCentres, kBasis, kRowsOf, kQueriesOf, kForeignOf, kGrowth };

Stream stream_of(Part part) {
  switch (part) {
    case Part::kRows: return kRowsOf;
    case Part::kQueries: return kQueriesOf;
    default: return kForeignOf;
  }
}

float half_as_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31
                         ? (fraction == 0 ? INFINITY : NAN)
                         : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

double squared_distance(const Vectors& vectors, uint64_t a, uint64_t b) {
  double sum = 0;
  const std::byte* x = vectors.data.data() + a * vectors.row_bytes();
  const std::byte* y = vectors.data.data() + b * vectors.row_bytes();
  for (uint32_t i = 0; i < vectors.dim; ++i) {
    const double gap = static_cast<double>(value_as_float(x, vectors.element, i)) -
                       static_cast<double>(value_as_float(y, vectors.element, i));
    sum += gap * gap;
  }
  return sum;
}

}  // namespace

// --- Made from nothing --------------------------------------------------------------------------

MadeRows::MadeRows(const MadeSet& set) : set_(set) {
  if (set.intrinsic_dim < 1 || set.intrinsic_dim > set.dim) {
    throw std::invalid_argument("the intrinsic dimension is " + std::to_string(set.intrinsic_dim) +
                                "; expected 1 to the dimension, " + std::to_string(set.dim));
  }
  if (set.law == Law::kUniform) return;
  centres_.resize(uint64_t{2} * set.clusters * set.dim);
  for (uint64_t i = 0; i < centres_.size(); ++i) {
    centres_[i] = 1.5f * Draws(set.seed, kCentres, i).normal();
  }
  bases_.resize(uint64_t{2} * kBases * set.dim * set.intrinsic_dim);
  // Rows of a basis have length one on average, whatever the dimension.
  const float scale = 1.0f / std::sqrt(static_cast<float>(set.intrinsic_dim));
  for (uint64_t i = 0; i < bases_.size(); ++i) {
    bases_[i] = scale * Draws(set.seed, kBasis, i).normal();
  }
}

void MadeRows::make_clustered(Part part, uint64_t row, float* out) const {
  Draws draws(set_.seed, stream_of(part), row);
  // Clusters of different sizes: the square makes low numbers more frequent.
  const double pick = draws.uniform();
  uint64_t cluster = static_cast<uint64_t>(pick * pick * set_.clusters);
  uint64_t basis = cluster % kBases;
  if (part == Part::kForeignQueries) {
    cluster += set_.clusters;
    basis += kBases;
  }
  std::vector<float> place(set_.intrinsic_dim);
  for (float& value : place) value = draws.normal();
  const float* centre = centres_.data() + cluster * set_.dim;
  const float* axes = bases_.data() + basis * set_.dim * set_.intrinsic_dim;
  for (uint32_t i = 0; i < set_.dim; ++i) {
    float sum = centre[i];
    for (uint32_t j = 0; j < set_.intrinsic_dim; ++j) {
      sum += place[j] * axes[uint64_t{i} * set_.intrinsic_dim + j];
    }
    out[i] = sum;
  }
}

void MadeRows::make(Part part, uint64_t first, uint64_t count, float* out) const {
  parallel_parts(count, 1024, [&](uint64_t start, uint64_t rows) {
    for (uint64_t i = start; i < start + rows; ++i) {
      float* to = out + i * set_.dim;
      const uint64_t row = first + i;
      Draws draws(~set_.seed, stream_of(part), row);
      switch (set_.law) {
        case Law::kUniform:
          for (uint32_t j = 0; j < set_.dim; ++j) {
            to[j] = static_cast<float>(draws.uniform()) +
                    (part == Part::kForeignQueries ? 1.0f : 0.0f);
          }
          break;
        case Law::kClusters: make_clustered(part, row, to); break;
        case Law::kDuplicates: {
          if (part != Part::kRows) {
            make_clustered(part, row, to);
            break;
          }
          const double distinct =
              std::max(1.0, static_cast<double>(set_.rows) * set_.distinct);
          const double pick = draws.uniform();
          make_clustered(part, static_cast<uint64_t>(pick * pick * pick * distinct), to);
          break;
        }
        case Law::kNorms: {
          make_clustered(part, row, to);
          float length = 0;
          for (uint32_t j = 0; j < set_.dim; ++j) length += to[j] * to[j];
          // Most rows are short, few are a hundred times as long.
          const float pick = static_cast<float>(draws.uniform());
          const float wanted = part == Part::kRows ? 0.1f + 9.9f * pick * pick * pick * pick : 1.0f;
          const float factor = wanted / std::sqrt(std::max(length, 1e-12f));
          for (uint32_t j = 0; j < set_.dim; ++j) to[j] *= factor;
          break;
        }
      }
    }
  });
}

// --- Grown from a real set ----------------------------------------------------------------------

GrownRows::GrownRows(const Vectors& real, const std::vector<uint32_t>& neighbours, uint32_t degree,
                     const Shape& shape)
    : real_(real), neighbours_(neighbours), degree_(degree), shape_(shape), floats_(to_floats(real)) {
  if (shape.neighbours < 1 || shape.neighbours > degree) {
    throw std::invalid_argument("neighbours per source is " + std::to_string(shape.neighbours) +
                                "; expected 1 to " + std::to_string(degree));
  }
}

std::vector<float> GrownRows::neighbourhood_mean(uint64_t source) const {
  const uint32_t dim = real_.dim;
  std::vector<float> mean(floats_.begin() + static_cast<std::ptrdiff_t>(source * dim),
                          floats_.begin() + static_cast<std::ptrdiff_t>((source + 1) * dim));
  for (uint32_t j = 0; j < shape_.neighbours; ++j) {
    const float* other = floats_.data() + uint64_t{neighbours_[source * degree_ + j]} * dim;
    for (uint32_t i = 0; i < dim; ++i) mean[i] += other[i];
  }
  for (float& value : mean) value /= static_cast<float>(shape_.neighbours + 1);
  return mean;
}

void GrownRows::draw(uint64_t source, uint64_t row, uint32_t attempt, float spread,
                     const std::vector<float>& mean, float* out) const {
  const uint32_t dim = real_.dim;
  Draws draws(shape_.seed, kGrowth + attempt, row);
  std::copy(mean.begin(), mean.end(), out);
  const float scale = spread / std::sqrt(static_cast<float>(shape_.neighbours + 1));
  for (uint32_t j = 0; j <= shape_.neighbours; ++j) {
    const uint64_t member =
        j == shape_.neighbours ? source : neighbours_[source * degree_ + j];
    const float* other = floats_.data() + member * dim;
    const float weight = scale * draws.normal();
    for (uint32_t i = 0; i < dim; ++i) out[i] += weight * (other[i] - mean[i]);
  }
}

// Puts the best of several draws at `row`; its siblings with lower numbers are there already.
void GrownRows::place(Vectors& made, uint64_t source, uint64_t row, uint32_t attempt,
                      float spread) const {
  const std::vector<float> mean = neighbourhood_mean(source);
  std::vector<float> values(real_.dim);
  std::vector<std::byte> best;
  std::byte* here = made.data.data() + row * made.row_bytes();
  double best_gap = -1;
  for (uint32_t candidate = 0; candidate < kCandidates; ++candidate) {
    draw(source, row, attempt * kCandidates + candidate, spread, mean, values.data());
    store_values(values.data(), real_.dim, made.element, here);
    double gap = INFINITY;
    const uint64_t siblings_end = attempt == 0 ? row : made.rows;
    for (uint64_t other = source; other < siblings_end; other += real_.rows) {
      if (other != row) gap = std::min(gap, squared_distance(made, row, other));
    }
    if (gap > best_gap) {
      best_gap = gap;
      best.assign(here, here + made.row_bytes());
    }
    if (gap == INFINITY) break;  // no sibling yet
  }
  std::copy(best.begin(), best.end(), here);
}

Vectors GrownRows::make(uint64_t count) const {
  Vectors made;
  made.element = real_.element == ANN_F16 ? ANN_F32 : real_.element;
  made.rows = count;
  made.dim = real_.dim;
  made.data.resize(count * made.row_bytes());
  parallel_parts(std::min(count, real_.rows), 64, [&](uint64_t first, uint64_t sources) {
    for (uint64_t source = first; source < first + sources; ++source) {
      for (uint64_t row = source; row < count; row += real_.rows) {
        place(made, source, row, 0, shape_.spread);
      }
    }
  });
  return made;
}

uint64_t GrownRows::repair(Vectors& made, int rounds) const {
  uint64_t redrawn = 0;
  for (int round = 1; round <= rounds; ++round) {
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.k = kListed;
    std::vector<uint32_t> nearest(made.rows * kListed);
    ann_error error = ANN_ERROR_INIT;
    const ann_matrix rows = made.view();
    check(ann_knn_graph(nullptr, &rows, &params, nearest.data(), nullptr, nullptr, &error), error,
          "finding the neighbours of made rows");
    std::vector<uint8_t> crowded(made.rows, 0);
    for (uint64_t row = 0; row < made.rows; ++row) {
      uint32_t siblings = 0;
      for (uint32_t i = 0; i < kNearest; ++i) {
        const uint32_t other = nearest[row * kListed + i];
        siblings += other != UINT32_MAX && source_of(other) == source_of(row);
      }
      crowded[row] = siblings > kSiblingsMax;
    }
    std::atomic<uint64_t> count{0};
    parallel_parts(std::min(made.rows, real_.rows), 64, [&](uint64_t first, uint64_t sources) {
      for (uint64_t source = first; source < first + sources; ++source) {
        for (uint64_t row = source; row < made.rows; row += real_.rows) {
          if (crowded[row] == 0) continue;
          place(made, source, row, static_cast<uint32_t>(round),
                shape_.spread * (1 + 0.15f * static_cast<float>(round)));
          ++count;
        }
      }
    });
    redrawn = count;
    if (redrawn == 0) break;
  }
  return redrawn;
}

// --- Values -------------------------------------------------------------------------------------

float value_as_float(const std::byte* values, int32_t element, uint64_t index) {
  switch (element) {
    case ANN_F32: {
      float out;
      std::memcpy(&out, values + 4 * index, sizeof out);
      return out;
    }
    case ANN_F16: {
      uint16_t half;
      std::memcpy(&half, values + 2 * index, sizeof half);
      return half_as_float(half);
    }
    case ANN_I8: return static_cast<float>(std::bit_cast<int8_t>(values[index]));
    case ANN_U8: return static_cast<float>(std::to_integer<uint8_t>(values[index]));
    default: throw std::invalid_argument(std::string("no vectors of ") + element_name(element));
  }
}

std::vector<float> to_floats(const Vectors& vectors) {
  std::vector<float> out(vectors.rows * vectors.dim);
  for (uint64_t i = 0; i < out.size(); ++i) {
    out[i] = value_as_float(vectors.data.data(), vectors.element, i);
  }
  return out;
}

void store_values(const float* values, uint64_t count, int32_t element, std::byte* out) {
  const auto rounded = [](float value, float low, float high) {
    return std::clamp(std::nearbyint(value), low, high);
  };
  switch (element) {
    case ANN_F32: std::memcpy(out, values, count * sizeof(float)); break;
    case ANN_I8:
      for (uint64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<std::byte>(static_cast<int8_t>(rounded(values[i], -128, 127)));
      }
      break;
    case ANN_U8:
      for (uint64_t i = 0; i < count; ++i) {
        out[i] = static_cast<std::byte>(static_cast<uint8_t>(rounded(values[i], 0, 255)));
      }
      break;
    default: throw std::invalid_argument(std::string("no values are made as ") + element_name(element));
  }
}

}  // namespace bench

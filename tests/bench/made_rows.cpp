#include "made_rows.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "base/random.h"
#include "parallel.h"

namespace bench {

namespace {

constexpr uint32_t kBases = 16;  // bases that the clusters share; more would only take memory
constexpr float kCentreDeviation = 1.5f;
constexpr uint32_t kCandidates = 8;
constexpr uint32_t kSiblingsMax = 2;
constexpr std::array<float, 5> kShellRadii = {1, 3, 10, 30, 100};
constexpr float kRadiiDeviation = 2.885f;  // of their logarithm to base two, 2 of the natural one
constexpr double kFourDecades = 13.288;    // the logarithm of 10^4 to base two

// Between two powers of two a straight line, since an exponential function is not IEEE's.
float about_power_of_two(float exponent) {
  const float whole = std::floor(exponent);
  return std::ldexp(1 + (exponent - whole), static_cast<int>(whole));
}

// Random numbers of one purpose ("stream"), one after the other.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream, uint64_t item) : seed_(gannet::random_word(seed, stream, item)) {}

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

// Sets that are grown have no branches.
enum Stream : uint64_t { kCentres, kBasis, kRowsOf, kQueriesOf, kForeignOf, kBranches, kGrowth = kBranches };

Stream stream_of(Part part) {
  switch (part) {
    case Part::kRows:
      return kRowsOf;
    case Part::kQueries:
      return kQueriesOf;
    default:
      return kForeignOf;
  }
}

float half_as_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const float size = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                      : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

// Squared distance of two stored rows, or, as soon as it is known to be no less than `enough`, some value
// that is not less either: whoever compares with `enough` sees no difference. Sums run in lanes, so that
// they fit wide registers, and no sum becomes less by what is added, also when it is rounded.
template <typename Value>
double squared_gap(const std::byte* a, const std::byte* b, uint32_t dim, double enough) {
  using Sum = std::conditional_t<std::is_same_v<Value, float>, float, int32_t>;
  constexpr uint32_t lanes = 16;
  constexpr uint32_t between_looks = 8 * lanes;
  Sum sums[lanes] = {};
  const auto* x = reinterpret_cast<const Value*>(a);
  const auto* y = reinterpret_cast<const Value*>(b);
  const auto total = [&] {
    double all = 0;
    for (const Sum lane : sums) all += static_cast<double>(lane);
    return all;
  };
  uint32_t i = 0;
  while (i + lanes <= dim) {
    const uint32_t end = std::min(dim, i + between_looks);
    for (; i + lanes <= end; i += lanes) {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const Sum gap = static_cast<Sum>(x[i + lane]) - static_cast<Sum>(y[i + lane]);
        sums[lane] += gap * gap;
      }
    }
    if (total() >= enough) return total();
  }
  double sum = 0;
  for (; i < dim; ++i) {
    const Sum gap = static_cast<Sum>(x[i]) - static_cast<Sum>(y[i]);
    sum += static_cast<double>(gap * gap);
  }
  return sum + total();
}

double squared_distance(const Vectors& vectors, uint64_t a, uint64_t b, double enough) {
  const std::byte* x = vectors.data.data() + a * vectors.row_bytes();
  const std::byte* y = vectors.data.data() + b * vectors.row_bytes();
  switch (vectors.element) {
    case ANN_F32:
      return squared_gap<float>(x, y, vectors.dim, enough);
    case ANN_I8:
      return squared_gap<int8_t>(x, y, vectors.dim, enough);
    case ANN_U8:
      return squared_gap<uint8_t>(x, y, vectors.dim, enough);
    default:
      throw std::invalid_argument(std::string("no rows are made as ") + element_name(vectors.element));
  }
}

}  // namespace

// --- Made from nothing --------------------------------------------------------------------------

MadeRows::MadeRows(const MadeSet& set) : set_(set) {
  if (set.intrinsic_dim < 1 || set.intrinsic_dim > set.dim) {
    throw std::invalid_argument("the intrinsic dimension is " + std::to_string(set.intrinsic_dim) +
                                "; expected 1 to the dimension, " + std::to_string(set.dim));
  }
  if (set.law == Law::kUniform) return;
  if (set.law == Law::kDecades) set_.clusters = 1;
  centres_.resize(uint64_t{2} * set_.clusters * set.dim);
  for (uint64_t i = 0; i < centres_.size(); ++i) {
    centres_[i] = kCentreDeviation * Draws(set.seed, kCentres, i).normal();
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

// Rows that lie close to a point which they share with others.
void MadeRows::make_near_another(Part part, uint64_t row, float* out) const {
  Draws draws(~set_.seed, stream_of(part), row);
  const auto spread = static_cast<float>(set_.spread != 0            ? set_.spread
                                         : set_.law == Law::kIslands ? 0.3
                                         : set_.law == Law::kCopies  ? 0.02
                                         : set_.law == Law::kEchoes  ? 0.0001
                                                                     : 0.001);
  const uint32_t dim = set_.dim;
  if (set_.law == Law::kIslands) {
    const float* centre = centres_.data() + draws.below(set_.clusters) * dim;
    for (uint32_t j = 0; j < dim; ++j) out[j] = centre[j] + kCentreDeviation * spread * draws.normal();
  } else if (set_.law == Law::kCopies) {
    const double originals = std::max(1.0, static_cast<double>(set_.rows) * set_.distinct);
    make_clustered(Part::kRows, static_cast<uint64_t>(draws.uniform() * originals), out);
    for (uint32_t j = 0; j < dim; ++j) out[j] += spread * draws.normal();
  } else if (set_.law == Law::kEchoes) {
    const double originals = std::max(1.0, static_cast<double>(set_.rows) * set_.distinct);
    const double pick = draws.uniform() * draws.uniform();
    const bool is_exact = draws.uniform() < 0.5;
    make_clustered(Part::kRows, static_cast<uint64_t>(pick * pick * pick * originals), out);
    if (is_exact) return;
    for (uint32_t j = 0; j < dim; ++j) out[j] += spread * draws.normal();
  } else {
    const bool dense = draws.uniform() < set_.share;
    for (uint32_t j = 0; j < dim; ++j) {
      const float place = draws.normal();
      out[j] = dense ? centres_[j] + spread * place : place;
    }
  }
}

// The sum of the places of all groups that a row is in, each about that of the group around it.
void MadeRows::make_in_tree(Part part, uint64_t row, float* out) const {
  constexpr uint64_t kRowsOfIsland = 15;
  Draws draws(~set_.seed, stream_of(part), row);
  const float spread = set_.spread != 0 ? static_cast<float>(set_.spread) : 0.5f;
  const uint64_t branches = std::max(2u, set_.clusters);
  float deviation = kCentreDeviation;
  uint64_t group = part == Part::kForeignQueries ? uint64_t{1} << 32 : 1;
  std::fill_n(out, set_.dim, 0.0f);
  for (uint64_t rows = set_.rows / branches; rows >= kRowsOfIsland; rows /= branches) {
    group = group * branches + draws.below(branches);
    Draws place(set_.seed, kBranches, group);
    for (uint32_t j = 0; j < set_.dim; ++j) out[j] += deviation * place.normal();
    deviation *= spread;
  }
  for (uint32_t j = 0; j < set_.dim; ++j) out[j] += deviation * draws.normal();
}

// Rows as in clusters, changed.
void MadeRows::change_clustered(Part part, uint64_t row, float* out) const {
  Draws draws(~set_.seed, stream_of(part), row);
  make_clustered(part, row, out);
  const uint32_t dim = set_.dim;
  switch (set_.law) {
    case Law::kNorms: {
      float length = 0;
      for (uint32_t j = 0; j < dim; ++j) length += out[j] * out[j];
      // Most rows are short, few are a hundred times as long.
      const float pick = static_cast<float>(draws.uniform());
      const float wanted = part == Part::kRows ? 0.1f + 9.9f * pick * pick * pick * pick : 1.0f;
      const float factor = wanted / std::sqrt(std::max(length, 1e-12f));
      for (uint32_t j = 0; j < dim; ++j) out[j] *= factor;
      break;
    }
    case Law::kContrast: {
      const double pick = 0.03 + draws.uniform();
      const float factor = static_cast<float>(1 / (pick * std::sqrt(pick)));
      for (uint32_t j = 0; j < dim; ++j) out[j] = factor * out[j] + 0.1f * draws.normal();
      break;
    }
    case Law::kDecades: {
      const float* centre = centres_.data() + (part == Part::kForeignQueries ? dim : 0);
      const float factor = about_power_of_two(static_cast<float>(kFourDecades * (draws.uniform() - 0.5)));
      for (uint32_t j = 0; j < dim; ++j) out[j] = factor * (out[j] - centre[j]);
      break;
    }
    case Law::kOutlierColumn:
      out[0] *= 1000;
      break;
    case Law::kOutlierRow:
      if (part != Part::kRows || row != 0) break;
      for (uint32_t j = 0; j < dim; ++j) out[j] *= 10'000;
      break;
    case Law::kOffset:
      for (uint32_t j = 0; j < dim; ++j) out[j] += 1000;
      break;
    case Law::kCorners:
      for (uint32_t j = 0; j < dim; ++j) out[j] = out[j] < 0 ? -1.0f : 1.0f;
      break;
    case Law::kRelu:
      for (uint32_t j = 0; j < dim; ++j) out[j] = std::max(0.0f, out[j] - 1);
      break;
    default:
      break;  // clusters as they are
  }
}

void MadeRows::make_row(Part part, uint64_t row, float* out) const {
  Draws draws(~set_.seed, stream_of(part), row);
  const uint32_t dim = set_.dim;
  switch (set_.law) {
    case Law::kUniform:
      for (uint32_t j = 0; j < dim; ++j)
        out[j] = static_cast<float>(draws.uniform()) + (part == Part::kForeignQueries ? 1.0f : 0.0f);
      break;
    case Law::kDuplicates: {
      if (part != Part::kRows) return make_clustered(part, row, out);
      const double distinct = std::max(1.0, static_cast<double>(set_.rows) * set_.distinct);
      const double pick = draws.uniform();
      return make_clustered(part, static_cast<uint64_t>(pick * pick * pick * distinct), out);
    }
    case Law::kScaled: {
      constexpr std::array<float, 8> scales = {0.01f, 0.03f, 0.1f, 0.3f, 1, 3, 10, 30};
      const float scale = part == Part::kRows ? 1 : scales[draws.below(scales.size())];
      for (uint32_t j = 0; j < dim; ++j) out[j] = scale * draws.normal();
      break;
    }
    case Law::kOnes: {
      constexpr uint32_t kOnesOfRow = 5;
      std::fill_n(out, dim, 0.0f);
      for (uint32_t ones = 0; ones < std::min(kOnesOfRow, dim);) {
        float& value = out[draws.below(dim)];
        ones += value == 0 ? 1 : 0;
        value = 1;
      }
      break;
    }
    case Law::kOneHot: {
      const double pick = draws.uniform();
      const auto hot = static_cast<uint32_t>(pick * pick * dim);
      for (uint32_t j = 0; j < dim; ++j) out[j] = 0.01f * draws.normal() + (j == hot ? 1.0f : 0.0f);
      break;
    }
    case Law::kShells:
    case Law::kRadii: {
      double square = 0;
      for (uint32_t j = 0; j < dim; ++j) {
        out[j] = draws.normal();
        square += static_cast<double>(out[j] * out[j]);
      }
      const float radius = set_.law == Law::kShells ? kShellRadii[draws.below(kShellRadii.size())]
                                                    : about_power_of_two(kRadiiDeviation * draws.normal());
      const float factor = radius / static_cast<float>(std::sqrt(std::max(square, 1e-12)));
      for (uint32_t j = 0; j < dim; ++j) out[j] *= factor;
      break;
    }
    case Law::kScales: {
      constexpr std::array<float, 5> scales = {0.01f, 0.03f, 0.1f, 0.3f, 1};
      const uint64_t cluster =
          draws.below(set_.clusters) + (part == Part::kForeignQueries ? set_.clusters : 0);
      const float* centre = centres_.data() + cluster * dim;
      for (uint32_t j = 0; j < dim; ++j)
        out[j] = centre[j] + scales[cluster % scales.size()] * draws.normal();
      break;
    }
    case Law::kOneVector:
      if (draws.uniform() >= 0.5) return make_clustered(part, row, out);
      std::copy_n(centres_.data(), dim, out);
      break;
    case Law::kTree:
      return make_in_tree(part, row, out);
    case Law::kIslands:
    case Law::kCopies:
    case Law::kEchoes:
    case Law::kDensities:
      return make_near_another(part, row, out);
    default:
      return change_clustered(part, row, out);
  }
}

void MadeRows::make(Part part, uint64_t first, uint64_t count, float* out) const {
  parallel_parts(count, 1024, [&](uint64_t start, uint64_t rows) {
    for (uint64_t i = start; i < start + rows; ++i) make_row(part, first + i, out + i * set_.dim);
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

GrownRows::Neighbourhood GrownRows::neighbourhood_of(uint64_t source, uint32_t neighbours) const {
  const uint32_t dim = real_.dim;
  const uint32_t members = neighbours + 1;
  Neighbourhood out{members, std::vector<float>(dim), std::vector<float>(uint64_t{members} * dim)};
  for (uint32_t j = 0; j < members; ++j) {
    uint64_t member = j == neighbours ? source : neighbours_[source * degree_ + j];
    if (member >= real_.rows) member = source;  // a list that is short
    std::copy_n(floats_.data() + member * dim, dim, out.spread.data() + uint64_t{j} * dim);
    for (uint32_t i = 0; i < dim; ++i) out.mean[i] += floats_[member * dim + i];
  }
  for (float& value : out.mean) value /= static_cast<float>(members);
  for (uint32_t j = 0; j < members; ++j) {
    for (uint32_t i = 0; i < dim; ++i) out.spread[uint64_t{j} * dim + i] -= out.mean[i];
  }
  return out;
}

void GrownRows::draw(const Neighbourhood& around, uint64_t row, uint32_t attempt, float spread,
                     float* out) const {
  const uint32_t dim = real_.dim;
  Draws draws(shape_.seed, kGrowth + attempt, row);
  std::copy(around.mean.begin(), around.mean.end(), out);
  const float scale = spread / std::sqrt(static_cast<float>(around.members));
  for (uint32_t j = 0; j < around.members; ++j) {
    const float* direction = around.spread.data() + uint64_t{j} * dim;
    const float weight = scale * draws.normal();
    for (uint32_t i = 0; i < dim; ++i) out[i] += weight * direction[i];
  }
}

// Room for the rows of one source, of `rows` rows in all: siblings, in the order of their numbers.
Vectors GrownRows::empty_family(uint64_t source, uint64_t rows) const {
  Vectors out;
  out.element = real_.element == ANN_F16 ? ANN_F32 : real_.element;
  out.rows = source < rows ? (rows - source - 1) / real_.rows + 1 : 0;
  out.dim = real_.dim;
  out.data.resize(out.rows * out.row_bytes());
  return out;
}

// Puts the best of several draws at `member` of a family. Its siblings before it are there already; in
// later attempts all others are.
void GrownRows::place(Vectors& family, uint64_t member, const Neighbourhood& around, uint64_t source,
                      uint32_t attempt, float spread) const {
  std::vector<float> values(real_.dim);
  std::vector<std::byte> best;
  std::byte* here = family.data.data() + member * family.row_bytes();
  double best_gap = -1;
  for (uint32_t candidate = 0; candidate < kCandidates; ++candidate) {
    draw(around, source + member * real_.rows, attempt * kCandidates + candidate, spread, values.data());
    store_values(values.data(), real_.dim, family.element, here);
    double gap = INFINITY;
    const uint64_t siblings_end = attempt == 0 ? member : family.rows;
    for (uint64_t other = 0; other < siblings_end && gap > best_gap; ++other) {
      if (other != member) gap = std::min(gap, squared_distance(family, member, other, gap));
    }
    if (gap > best_gap) {
      best_gap = gap;
      best.assign(here, here + family.row_bytes());
    }
    if (gap == INFINITY) break;  // no sibling yet
  }
  std::copy(best.begin(), best.end(), here);
}

Vectors GrownRows::make_family(uint64_t source, uint64_t rows) const {
  Vectors family = empty_family(source, rows);
  const Neighbourhood around = neighbourhood_of(source, shape_.neighbours);
  for (uint64_t member = 0; member < family.rows; ++member) {
    place(family, member, around, source, 0, shape_.spread);
  }
  return family;
}

Vectors GrownRows::make(uint64_t count) const {
  Vectors made = empty_family(0, 0);
  made.rows = count;
  made.data.resize(count * made.row_bytes());
  parallel_parts(std::min(count, real_.rows), 64, [&](uint64_t first, uint64_t sources) {
    for (uint64_t source = first; source < first + sources; ++source) {
      const Vectors family = make_family(source, count);
      for (uint64_t member = 0; member < family.rows; ++member) {
        std::memcpy(made.data.data() + (source + member * real_.rows) * made.row_bytes(),
                    family.data.data() + member * family.row_bytes(), made.row_bytes());
      }
    }
  });
  return made;
}

Vectors GrownRows::queries(uint64_t count) const {
  constexpr uint64_t far = uint64_t{1} << 40;  // numbers that no row has
  count = std::min(count, real_.rows);
  std::vector<uint32_t> sources(count);
  gannet::random_strata(real_.rows, count, shape_.seed, kQueriesOf, sources.data());
  Vectors out = empty_family(0, 0);
  out.rows = count;
  out.data.resize(count * out.row_bytes());
  parallel_parts(count, 64, [&](uint64_t first, uint64_t some) {
    std::vector<float> values(real_.dim);
    for (uint64_t i = first; i < first + some; ++i) {
      const Neighbourhood around = neighbourhood_of(sources[i], shape_.neighbours);
      draw(around, far + i, 0, shape_.spread, values.data());
      store_values(values.data(), real_.dim, out.element, out.data.data() + i * out.row_bytes());
    }
  });
  return out;
}

Vectors GrownRows::family_of(const Vectors& made, uint64_t source) const {
  Vectors family = empty_family(source, made.rows);
  for (uint64_t member = 0; member < family.rows; ++member) {
    std::memcpy(family.data.data() + member * family.row_bytes(),
                made.data.data() + (source + member * real_.rows) * made.row_bytes(), made.row_bytes());
  }
  return family;
}

double GrownRows::third_sibling(const Vectors& made, uint64_t source, uint64_t row) const {
  std::array<double, kSiblingsMax + 1> nearest;  // siblings, ascending
  nearest.fill(INFINITY);
  for (uint64_t other = source; other < made.rows; other += real_.rows) {
    if (other == row) continue;
    const double gap = squared_distance(made, row, other, nearest.back());
    if (gap >= nearest.back()) continue;
    nearest.back() = gap;
    for (size_t i = kSiblingsMax; i > 0 && nearest[i] < nearest[i - 1]; --i) {
      std::swap(nearest[i], nearest[i - 1]);
    }
  }
  return nearest.back();
}

void GrownRows::mark_crowded(const Vectors& made, uint64_t source, std::vector<uint8_t>& wrong) const {
  struct Open {  // a row of which it is not known yet
    uint64_t row;
    double limit;
    uint32_t nearer;
  };
  std::vector<Open> open;
  for (uint64_t row = source; row < made.rows; row += real_.rows) {
    const double limit = third_sibling(made, source, row);
    wrong[row] = limit != INFINITY;  // else there are no more siblings than may be near
    if (limit != INFINITY) open.push_back({row, limit, 0});
  }
  // A family fits the cache, its neighbourhood does not: each row around meets all of the family at once.
  for (uint32_t j = 0; j < degree_ && !open.empty(); ++j) {
    const uint64_t other_source = neighbours_[source * degree_ + j];
    if (other_source >= real_.rows) break;
    for (uint64_t other = other_source; other < made.rows; other += real_.rows) {
      std::erase_if(open, [&](Open& one) {
        one.nearer += squared_distance(made, one.row, other, one.limit) < one.limit;
        if (one.nearer < kNearest - kSiblingsMax) return false;
        wrong[one.row] = 0;
        return true;
      });
    }
  }
}

void GrownRows::mark_crowded(const Vectors& made, const std::vector<uint32_t>& nearest,
                             std::vector<uint8_t>& wrong) const {
  for (uint64_t row = 0; row < made.rows; ++row) {
    uint32_t siblings = 0;
    for (uint32_t i = 0; i < kNearest; ++i) {
      const uint32_t other = nearest[row * kNearest + i];
      siblings += other < made.rows && source_of(other) == source_of(row);
    }
    wrong[row] = siblings > kSiblingsMax;
  }
}

uint64_t GrownRows::repair(Vectors& made, int rounds, const NearestOthers& nearest) const {
  const uint64_t sources = std::min(made.rows, real_.rows);
  // Whose rows changed in the round before: nothing else can have become crowded.
  std::vector<uint8_t> changed(sources, 1);
  std::vector<uint8_t> wrong(made.rows, 0);
  // Wider helps where siblings crowd each other, narrower where a lone source lies off its neighbours.
  const auto spread_of_round = [&](int round) {
    return shape_.spread * (round % 2 == 1 ? 1 + 0.15f * static_cast<float>(round + 1)
                                           : 1 / (1 + 0.15f * static_cast<float>(round)));
  };
  uint64_t redrawn = 0;
  for (int round = 1; round <= rounds; ++round) {
    const auto may_differ = [&](uint64_t source) {
      if (changed[source] != 0) return true;
      for (uint32_t j = 0; j < degree_; ++j) {
        const uint64_t other = neighbours_[source * degree_ + j];
        if (other < sources && changed[other] != 0) return true;
      }
      return false;
    };
    if (nearest) {
      mark_crowded(made, nearest(made), wrong);
    } else {
      parallel_parts(sources, 64, [&](uint64_t first, uint64_t count) {
        for (uint64_t source = first; source < first + count; ++source) {
          if (may_differ(source)) mark_crowded(made, source, wrong);
        }
      });
    }
    std::atomic<uint64_t> drawn{0};
    parallel_parts(sources, 64, [&](uint64_t first, uint64_t count) {
      for (uint64_t source = first; source < first + count; ++source) {
        changed[source] = 0;
        for (uint64_t row = source; row < made.rows; row += real_.rows) {
          if (wrong[row] == 0) continue;
          Vectors family = family_of(made, source);
          const uint64_t member = row / real_.rows;
          // Some rows have so many equals that the usual neighbourhood holds nothing else.
          place(family, member, neighbourhood_of(source, round <= rounds / 2 ? shape_.neighbours : degree_),
                source, static_cast<uint32_t>(round), spread_of_round(round));
          std::memcpy(made.data.data() + row * made.row_bytes(),
                      family.data.data() + member * family.row_bytes(), made.row_bytes());
          changed[source] = 1;
          ++drawn;
        }
      }
    });
    redrawn = drawn;
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
    case ANN_I8:
      return static_cast<float>(std::bit_cast<int8_t>(values[index]));
    case ANN_U8:
      return static_cast<float>(std::to_integer<uint8_t>(values[index]));
    default:
      throw std::invalid_argument(std::string("no vectors of ") + element_name(element));
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
  // To the nearest, halves to even: above 1.5 * 2^23 a float has no digits behind the point. Unlike
  // nearbyint, this fits wide registers.
  const auto rounded = [](float value, float low, float high) {
    constexpr float shift = 12582912.0f;
    return (std::min(std::max(value, low), high) + shift) - shift;
  };
  switch (element) {
    case ANN_F32:
      std::memcpy(out, values, count * sizeof(float));
      break;
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
    default:
      throw std::invalid_argument(std::string("no values are made as ") + element_name(element));
  }
}

}  // namespace bench

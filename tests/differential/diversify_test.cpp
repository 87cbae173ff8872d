// Diversification against its definition: both inequalities, reverse edges, factors and the order of edges, of every
// method, for bytes, floats, cosine and inner product.

#include "graph/diversify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "catch.h"
#include "knn/exact_knn.h"
#include "made_data.h"

using namespace gannet;

namespace {

const Execution kTwoThreads{{}, 2, nullptr};

/// Rows of bytes, or as floats under a metric.
struct Rows {
  Rows(uint32_t rows, uint32_t dim, Shape shape, int32_t metric, bool floats, uint64_t seed)
      : bytes(made_bytes(rows, dim, shape, seed)), values(bytes.begin(), bytes.end()) {
    const MatrixView view = floats ? MatrixView{reinterpret_cast<const uint8_t*>(values.data()), rows, dim,
                                                ANN_F32, dim * sizeof(float)}
                                   : view_of(bytes, dim);
    dataset = std::make_unique<Dataset>(view, nullptr, metric, 0, false, kTwoThreads);
    codes = Codes(*dataset, 1, kTwoThreads);
  }
  double distance(uint32_t a, uint32_t b) const {
    std::vector<uint8_t> code(codes.stride());
    uint32_t out = 0;
    codes.gather(&a, 1, code.data());
    codes.distances(code.data(), &b, 1, &out);
    return codes.wide() ? double{std::bit_cast<float>(out)} : static_cast<double>(out);
  }

  std::vector<uint8_t> bytes;
  std::vector<float> values;
  std::unique_ptr<Dataset> dataset;
  Codes codes;
};

/// One diversification, read aloud from the paper.
struct ByDefinition {
  const Rows& data;
  const DiversifyParams& params;
  std::vector<std::vector<double>> m;  // squares of distances
  std::vector<std::vector<uint32_t>> kept, joined, edges;
  std::vector<std::vector<uint32_t>> factors;

  ByDefinition(const Rows& rows, const KnnGraph& knn, const DiversifyParams& given)
      : data(rows), params(given) {
    const uint32_t n = knn.rows;
    m.resize(n, std::vector<double>(n));
    for (uint32_t a = 0; a < n; ++a)
      for (uint32_t b = 0; b < n; ++b) m[a][b] = data.distance(a, b);
    for (uint32_t row = 0; row < n; ++row) kept.push_back(relax(knn, row));
    joined = kept;
    for (uint32_t row = 0; row < n; ++row) {
      std::vector<uint32_t> reverse;
      for (uint32_t other = 0; other < n; ++other)
        if (std::find(kept[other].begin(), kept[other].end(), row) != kept[other].end())
          reverse.push_back(other);
      sort(row, reverse);
      reverse.resize(std::min<size_t>(reverse.size(), params.reverse_max));
      for (const uint32_t other : reverse)
        if (std::find(joined[row].begin(), joined[row].end(), other) == joined[row].end())
          joined[row].push_back(other);
      sort(row, joined[row]);
      soften(row);
    }
  }

  void sort(uint32_t row, std::vector<uint32_t>& list) const {
    std::sort(list.begin(), list.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(m[row][a], a) < std::pair(m[row][b], b); });
  }

  bool occludes(uint32_t x0, uint32_t xi, uint32_t xj) const {
    const double alpha = double{params.alpha} * params.alpha;
    // The bound of floats is rounded once; one that is that near either way decides nothing here.
    const double bound =
        data.codes.wide() ? double{static_cast<float>(m[x0][xj] / alpha)} : m[x0][xj] / alpha;
    switch (params.method) {
      case ANN_DIVERSIFY_VAMANA:
        return m[xi][xj] <= bound;
      case ANN_DIVERSIFY_SSG: {
        const double a = m[x0][xi], b = m[x0][xj];
        if (a == 0 || b == 0) return false;
        return (a + b - m[xi][xj]) / (2 * std::sqrt(a * b)) > std::cos(params.angle * std::acos(-1.0) / 180);
      }
      default:
        return m[x0][xi] < bound && m[xi][xj] < bound;
    }
  }

  uint32_t lambda(uint32_t x0, uint32_t xj, const std::vector<uint32_t>& list) const {
    uint32_t count = 0;
    for (const uint32_t xi : list)
      if (xi != xj && m[x0][xi] < m[x0][xj] && m[xi][xj] < m[x0][xj]) ++count;
    return count;
  }

  std::vector<uint32_t> relax(const KnnGraph& knn, uint32_t row) const {
    std::vector<uint32_t> list;
    const auto append = [&](uint32_t of) {
      for (uint32_t i = 0; i < knn.k && knn.list(of)[i] != kNoRow; ++i) {
        const uint32_t other = knn.list(of)[i];
        if (other != row && std::find(list.begin(), list.end(), other) == list.end()) list.push_back(other);
      }
    };
    append(row);
    if (params.method == ANN_DIVERSIFY_SSG) {
      const std::vector<uint32_t> direct = list;
      for (const uint32_t other : direct) append(other);
    }
    sort(row, list);
    std::vector<uint32_t> out;
    if (params.method == ANN_DIVERSIFY_DPG) {
      std::vector<std::pair<uint32_t, uint32_t>> order;
      for (uint32_t i = 0; i < list.size(); ++i) order.push_back({lambda(row, list[i], list), i});
      std::sort(order.begin(), order.end());
      order.resize(std::min<size_t>(order.size(), (knn.k + 1) / 2));
      for (const auto& [factor, i] : order) out.push_back(list[i]);
      sort(row, out);
      return out;
    }
    if (params.method == ANN_DIVERSIFY_SSG) list.resize(std::min<size_t>(list.size(), params.pool));
    for (const uint32_t xj : list) {
      if (params.method == ANN_DIVERSIFY_SSG && out.size() == params.degree) break;
      if (std::none_of(out.begin(), out.end(), [&](uint32_t xi) { return occludes(row, xi, xj); }))
        out.push_back(xj);
    }
    return out;
  }

  void soften(uint32_t row) {
    const std::vector<uint32_t>& list = joined[row];
    std::vector<std::pair<uint32_t, uint32_t>> order;
    for (uint32_t i = 0; i < list.size(); ++i)
      order.push_back({params.levels > 1 ? lambda(row, list[i], list) : 0, i});
    std::sort(order.begin(), order.end());
    edges.emplace_back();
    factors.emplace_back();
    for (const auto& [factor, i] : order) {
      if (factor >= params.levels || edges.back().size() == params.degree) break;
      edges.back().push_back(list[i]);
      factors.back().push_back(factor);
    }
  }
};

KnnGraph copy_of(const KnnGraph& knn) {
  KnnGraph copy{Array<uint32_t>({}, knn.neighbors.size()), knn.rows, knn.k, 0};
  std::copy(knn.neighbors.begin(), knn.neighbors.end(), copy.neighbors.begin());
  return copy;
}

SearchGraph diversified(const Rows& data, const KnnGraph& knn, const DiversifyParams& params, bool repair,
                        uint32_t threads = 2) {
  SearchGraph graph;
  graph.rows = knn.rows;
  graph.entries = choose_entries(knn.rows, 2, 1, {});
  diversify(data.codes, copy_of(knn), params, repair, graph, {{}, threads, nullptr});
  return graph;
}

DiversifyParams params_of(int32_t method, uint32_t degree, uint32_t levels, uint32_t reverse_max) {
  DiversifyParams params;
  params.method = method;
  params.alpha = method == ANN_DIVERSIFY_TSDG || method == ANN_DIVERSIFY_VAMANA ? 1.2f : 1.0f;
  params.levels = method == ANN_DIVERSIFY_TSDG ? levels : 1;
  params.degree = degree;
  params.reverse_max = reverse_max;
  params.pool = method == ANN_DIVERSIFY_SSG ? 40 : 0;
  params.angle = 50;
  return params;
}

void compare(const Rows& data, const KnnGraph& knn, const DiversifyParams& params) {
  const ByDefinition expected(data, knn, params);
  const SearchGraph graph = diversified(data, knn, params, false);
  uint64_t relaxed = 0, joined = 0, places = 0;
  for (uint32_t row = 0; row < knn.rows; ++row) {
    const AdjacencyRow found = graph.row(row);
    REQUIRE(std::vector<uint32_t>(found.begin(), found.end()) == expected.edges[row]);
    for (uint32_t level = 0; level < params.levels; ++level) {
      const auto& factors = expected.factors[row];
      const auto below =
          std::count_if(factors.begin(), factors.end(), [&](uint32_t f) { return f <= level; });
      REQUIRE(graph.adjacency().row(row, level).length == static_cast<uint32_t>(below));
    }
    relaxed += expected.kept[row].size();
    joined += expected.joined[row].size();
    places += found.length;
    REQUIRE(found.length <= graph.degree);
  }
  REQUIRE(graph.diversified.relaxed == relaxed);
  REQUIRE(graph.diversified.joined == joined);
  REQUIRE(graph.diversified.soft >= places);
  REQUIRE(graph.edges.size() == places);
}

}  // namespace

TEST_CASE("each way of diversifying keeps the edges that its definition keeps, in order") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates, Shape::kAllEqual}) {
    for (const uint32_t rows : {1u, 2u, 30u, 120u}) {
      const Rows data(rows, 5, shape, ANN_METRIC_L2, false, 3);
      for (const uint32_t k : {4u, 24u}) {
        const KnnGraph knn = exact_knn(data.codes, k, kTwoThreads);
        for (int32_t method = ANN_DIVERSIFY_TSDG; method <= ANN_DIVERSIFY_VAMANA; ++method) {
          compare(data, knn, params_of(method, 16, 4, 200));
          compare(data, knn, params_of(method, 200, 10, 3));
        }
        compare(data, knn, params_of(ANN_DIVERSIFY_TSDG, 200, 64, 200));
      }
    }
  }
}

TEST_CASE("floats, cosine and inner product are diversified by their codes") {
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_COSINE, ANN_METRIC_INNER_PRODUCT}) {
    for (const uint32_t dim : {2u, 12u}) {  // of two columns codes are floats
      const Rows data(90, dim, Shape::kClusters, metric, true, 5);
      const KnnGraph knn = exact_knn(data.codes, 20, kTwoThreads);
      compare(data, knn, params_of(ANN_DIVERSIFY_TSDG, 64, 6, 100));
      compare(data, knn, params_of(ANN_DIVERSIFY_VAMANA, 64, 1, 100));
    }
  }
}

TEST_CASE("lists that are out of order or end early are sorted first") {
  const Rows data(60, 4, Shape::kUniform, ANN_METRIC_L2, false, 8);
  KnnGraph knn = exact_knn(data.codes, 12, kTwoThreads);
  for (uint32_t row = 0; row < knn.rows; ++row) {
    uint32_t* list = knn.neighbors.data() + row * knn.k;
    std::reverse(list, list + knn.k);
    std::fill(list + row % (knn.k + 1), list + knn.k, kNoRow);
  }
  compare(data, knn, params_of(ANN_DIVERSIFY_TSDG, 64, 5, 100));
}

TEST_CASE("a graph of islands is repaired where searches read it, whatever the threads") {
  for (const uint32_t levels : {1u, 3u, 10u}) {
    for (const uint32_t degree : {2u, 4u, 40u}) {
      const Rows data(300, 6, Shape::kIslands, ANN_METRIC_L2, false, 4);
      const KnnGraph knn = exact_knn(data.codes, 10, kTwoThreads);
      DiversifyParams params = params_of(ANN_DIVERSIFY_TSDG, degree, levels, 50);
      const SearchGraph graph = diversified(data, knn, params, true);
      const SearchGraph by_one = diversified(data, knn, params, true, 1);
      REQUIRE(std::equal(graph.edges.begin(), graph.edges.end(), by_one.edges.begin(), by_one.edges.end()));
      REQUIRE(std::equal(graph.prefixes.begin(), graph.prefixes.end(), by_one.prefixes.begin()));

      // What a search reads that chooses nothing: factors below kOcclusionDefault.
      std::vector<uint8_t> reached(graph.rows);
      std::vector<uint32_t> queue(graph.entries.begin(), graph.entries.end());
      for (const uint32_t entry : queue) reached[entry] = 1;
      const uint32_t level = std::min(levels, kOcclusionDefault) - 1;
      for (size_t head = 0; head < queue.size(); ++head) {
        for (const uint32_t target : graph.adjacency().row(queue[head], level)) {
          if (reached[target]++ == 0) queue.push_back(target);
        }
      }
      REQUIRE(queue.size() == graph.rows);
      REQUIRE(count_unreachable(graph, {}) == 0);
      REQUIRE(graph.degree <= std::max(2u, degree));
      for (uint32_t row = 0; row < graph.rows; ++row) {
        const AdjacencyRow edges = graph.row(row);
        std::vector<uint32_t> sorted(edges.begin(), edges.end());
        std::sort(sorted.begin(), sorted.end());
        REQUIRE(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
        REQUIRE(std::find(sorted.begin(), sorted.end(), row) == sorted.end());
        REQUIRE(edges.length == graph.adjacency().row(row, levels - 1).length);
      }
    }
  }
}

TEST_CASE("no diversification takes more memory than was estimated") {
  struct Meter {
    uint64_t now = 0, most = 0;
    static void* allocate(void* user, size_t bytes, size_t alignment) {
      Meter& meter = *static_cast<Meter*>(user);
      meter.now += bytes;
      meter.most = std::max(meter.most, meter.now);
      return std::aligned_alloc(alignment, round_up(bytes, alignment));
    }
    static void release(void* user, void* memory, size_t bytes, size_t) {
      static_cast<Meter*>(user)->now -= bytes;
      std::free(memory);
    }
  };
  for (const Shape shape : {Shape::kUniform, Shape::kAllEqual, Shape::kIslands}) {
    const Rows data(900, 6, shape, ANN_METRIC_L2, false, 4);
    const KnnGraph knn = exact_knn(data.codes, 24, kTwoThreads);
    for (int32_t method = ANN_DIVERSIFY_TSDG; method <= ANN_DIVERSIFY_VAMANA; ++method) {
      const DiversifyParams params = params_of(method, 40, 10, 100);
      Meter meter;
      const Allocator memory{Meter::allocate, Meter::release, &meter};
      SearchGraph graph;
      graph.rows = knn.rows;
      graph.entries = choose_entries(knn.rows, 2, 1, {});
      diversify(data.codes, copy_of(knn), params, true, graph, {memory, 1, nullptr});
      const DiversifyBytes bytes = diversify_bytes(knn.rows, data.codes.stride(), knn.k, params, 1);
      REQUIRE(meter.most <= bytes.peak + (64u << 6));
      REQUIRE(graph.edges.bytes() + graph.offsets.bytes() + graph.prefixes.bytes() <= bytes.graph + 192);
    }
  }
}

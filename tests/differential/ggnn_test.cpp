// GGNN's build: the hierarchy of appendix C.1.1, lists against exact ones, equal graphs on any number of threads,
// few inverse links, odd sets, and files that bring the layers back.

#include <algorithm>
#include <set>

#include "catch.h"
#include "graph/ggnn.h"
#include "index/index.h"
#include "knn/exact_knn.h"
#include "made_data.h"
#include "storage/layers.h"

using namespace gannet;

namespace {

struct Made : MadeData {
  Made(uint32_t rows, Shape shape, const GgnnParams& params, uint32_t threads)
      : MadeData(rows, 16, shape, 5) {
    graph.rows = rows;
    graph.degree = params.k;
    graph.kind = ANN_GRAPH_GGNN;
    links = build_ggnn(codes, params, graph, {{}, threads, nullptr});
  }

  SearchGraph graph;
  double links = 0;
};

GgnnParams params_of(uint32_t k) {
  GgnnParams params;
  params.k = k;
  params.segment = ggnn_segment_of(k);
  params.seed = 3;
  return params;
}

void require_sound(const SearchGraph& graph) {
  uint32_t below = graph.rows;
  const auto require_edges = [&](const Array<uint32_t>& edges, uint32_t rows) {
    REQUIRE(edges.size() == uint64_t{rows} * graph.degree);
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t* list = edges.data() + uint64_t{row} * graph.degree;
      const uint32_t* end = std::find(list, list + graph.degree, kNoRow);
      REQUIRE(std::all_of(end, list + graph.degree, [](uint32_t target) { return target == kNoRow; }));
      const std::set<uint32_t> distinct(list, end);
      REQUIRE(distinct.size() == static_cast<size_t>(end - list));
      REQUIRE((distinct.empty() || *distinct.rbegin() < rows));
      REQUIRE(distinct.count(row) == 0);
    }
  };
  require_edges(graph.edges, graph.rows);
  for (const GraphLayer& layer : graph.upper) {
    REQUIRE(std::is_sorted(layer.base_rows.begin(), layer.base_rows.end()));
    REQUIRE((layer.base_rows.empty() || layer.base_rows[layer.rows - 1] < below));
    require_edges(layer.edges, layer.rows);
    below = layer.rows;
  }
}

}  // namespace

TEST_CASE("GGNN: layers and growth are those of the paper") {
  GgnnParams params = params_of(24);
  const auto shape = [&](uint64_t rows) { return ggnn_shape(rows, params); };
  // Appendix C.1.1: SIFT1M with k = 24 has g = 32 and 33,824 rows in the upper layers.
  REQUIRE(params.segment == 32);
  REQUIRE(shape(1'000'000).growth == 32);
  REQUIRE(shape(1'000'000).layers == 4);
  REQUIRE(shape(1'000'000).upper_rows(32) == 33'824);
  REQUIRE(shape(256).growth == 2);  // section 5.3
  params = params_of(40);           // Table 4: s0 = 30.5 is less than k
  REQUIRE(params.segment == 32);
  REQUIRE(shape(1'000'000).growth == 32);
  REQUIRE(ggnn_segment_of(96) == 64);  // GIST
  params = params_of(24);
  for (uint64_t rows = 0; rows < 64; ++rows) REQUIRE(shape(rows).layers == 1);
  for (uint64_t rows = 64; rows < 100'000; rows += 997) {
    const double bottom = static_cast<double>(rows) / shape(rows).segments(0);
    REQUIRE(bottom > params.k / 2);
  }
}

TEST_CASE("GGNN: lists hold the nearest rows, and few inverse links are needed") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters}) {
    const GgnnParams params = params_of(20);
    const Made made(3000, shape, params, 2);
    require_sound(made.graph);
    REQUIRE(made.graph.upper.size() == 3);
    const KnnGraph truth = exact_knn(made.codes, 10, {{}, 2, nullptr});
    uint32_t hits = 0;
    for (uint32_t row = 0; row < 3000; ++row) {
      const uint32_t* list = made.graph.edges.data() + uint64_t{row} * params.k;
      for (uint32_t i = 0; i < 10; ++i)
        hits += std::find(list, list + 10, truth.list(row)[i]) != list + 10 ? 1 : 0;
    }
    INFO("hits " << hits << ", links " << made.links);
    REQUIRE(hits > 30'000 * 0.95);
    REQUIRE(made.links < params.k / 4.0);  // section 5.2
    REQUIRE(made.links > 0);
    REQUIRE(made.graph.nearest_max >= made.graph.nearest_mean);
    // The entry points are the rows of the top.
    const GraphLayer& top = made.graph.upper.back();
    REQUIRE(made.graph.entries.size() == top.rows);
    REQUIRE(top.rows == params.segment);
  }
}

TEST_CASE("GGNN: the graph does not depend on threads") {
  const GgnnParams params = params_of(12);
  const Made one(1500, Shape::kClusters, params, 1);
  for (const uint32_t threads : {2u, 5u}) {
    const Made other(1500, Shape::kClusters, params, threads);
    REQUIRE(std::equal(one.graph.edges.begin(), one.graph.edges.end(), other.graph.edges.begin()));
    REQUIRE(one.graph.upper.size() == other.graph.upper.size());
    for (size_t i = 0; i < one.graph.upper.size(); ++i)
      REQUIRE(std::equal(one.graph.upper[i].edges.begin(), one.graph.upper[i].edges.end(),
                         other.graph.upper[i].edges.begin()));
  }
}

TEST_CASE("GGNN: refinement, slack and links do what the paper says") {
  const auto recall = [](const GgnnParams& params) {
    const Made made(2000, Shape::kUniform, params, 2);
    const KnnGraph truth = exact_knn(made.codes, 10, {{}, 2, nullptr});
    uint32_t hits = 0;
    for (uint32_t row = 0; row < 2000; ++row) {
      const uint32_t* list = made.graph.edges.data() + uint64_t{row} * params.k;
      for (uint32_t i = 0; i < 10; ++i)
        hits += std::find(list, list + 10, truth.list(row)[i]) != list + 10 ? 1 : 0;
    }
    return std::pair(hits, made.links);
  };
  GgnnParams params = params_of(20);
  params.tau = 0.2f;
  params.refinements = 0;
  const auto rough = recall(params);
  params.refinements = 1;
  const auto refined = recall(params);
  REQUIRE(refined.first > rough.first);  // figure 14
  params.tau = 0.5f;
  const auto slack = recall(params);
  REQUIRE(slack.first >= refined.first);  // figure 8
  params.midpoint = false;
  REQUIRE(recall(params).second < slack.second);  // a path may go farther round
}

TEST_CASE("GGNN: every number of rows, duplicates and equal rows give a graph") {
  for (uint32_t rows = 0; rows <= 140; rows += rows < 8 ? 1 : 11) {
    for (const uint32_t k : {2u, 3u, 24u, 70u}) {
      const Made made(rows, Shape::kUniform, params_of(k), 1);
      require_sound(made.graph);
      REQUIRE(made.graph.entries.size() <= rows);
      REQUIRE((rows == 0 || !made.graph.entries.empty()));
    }
  }
  const Made equal(700, Shape::kAllEqual, params_of(8), 2);
  require_sound(equal.graph);
  REQUIRE(equal.graph.nearest_max == 0);
}

TEST_CASE("GGNN: layers come back from the words of a file, and wrong ones do not") {
  const Made made(800, Shape::kClusters, params_of(6), 1);
  const Array<uint32_t> words = pack_layers(made.graph, {});
  const auto refuses = [&](uint64_t place, uint32_t value) {
    Array<uint32_t> wrong({}, words.size());
    std::copy(words.begin(), words.end(), wrong.begin());
    wrong[place] = value;
    REQUIRE_THROWS_AS(check_layers(wrong.data(), wrong.size(), 800, 6), Error);
  };
  check_layers(words.data(), words.size(), 800, 6);
  REQUIRE_THROWS_AS(check_layers(words.data(), words.size() - 1, 800, 6), Error);
  REQUIRE_THROWS_AS(check_layers(words.data(), 3, 800, 6), Error);
  refuses(0, 8);
  refuses(0, 1);
  refuses(1, words[1] + 1);
  refuses(7, 1);
  refuses(8, 800);
  refuses(9, words[8]);
  refuses(8 + words[1], words[1]);  // an edge beyond its layer
  refuses(8 + words[1], kNoRow);    // a hole before other edges
  Array<uint32_t> copy({}, words.size());
  std::copy(words.begin(), words.end(), copy.begin());
  SearchGraph opened;
  opened.rows = 800;
  opened.degree = 6;
  unpack_layers(std::move(copy), opened);
  REQUIRE(opened.upper.size() == made.graph.upper.size());
  for (size_t i = 0; i < opened.upper.size(); ++i) {
    REQUIRE(std::equal(opened.upper[i].edges.begin(), opened.upper[i].edges.end(),
                       made.graph.upper[i].edges.begin()));
    REQUIRE(std::equal(opened.upper[i].base_rows.begin(), opened.upper[i].base_rows.end(),
                       made.graph.upper[i].base_rows.begin()));
  }
}

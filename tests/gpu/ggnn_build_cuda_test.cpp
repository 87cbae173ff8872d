// Claims about GGNN's build on a CUDA device, made through the C interface: the index is that of the CPU, byte for byte
// of its file, so layers, links, entry points and distances to nearest neighbours are; it is searched; and the device
// memory is what was planned.
//
//   ggnn_build_cuda_test             all claims
//   ggnn_build_cuda_test quick       fewer and smaller cases, for compute-sanitizer
//   ggnn_build_cuda_test race        a handful, for its racecheck, which is slow
//   ggnn_build_cuda_test TEXT        claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <cmath>

#include "twins.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
uint64_t files_compared = 0;

struct Index {
  ann_index* index = nullptr;

  Index(const Rows& rows, int32_t metric, const ann_build_params& params, const std::string& name) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = metric;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, name);
    const ann_matrix matrix = matrix_of(rows);
    expect_ok(ann_build(index, &matrix, nullptr, &params, nullptr, &error), error, name);
  }
  ~Index() { ann_index_free(index); }
  Index(const Index&) = delete;

  std::vector<uint8_t> file() const {
    std::vector<uint8_t> bytes;
    ann_writer writer = ANN_WRITER_INIT;
    writer.user = &bytes;
    writer.write = [](void* context, const void* data, uint64_t count) -> int64_t {
      auto* all = static_cast<std::vector<uint8_t>*>(context);
      const uint8_t* from = static_cast<const uint8_t*>(data);
      all->insert(all->end(), from, from + count);
      return static_cast<int64_t>(count);
    };
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_save_stream(index, &writer, nullptr, nullptr, &error), error, "save");
    return bytes;
  }
};

ann_build_params params_of(uint32_t k) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_GGNN;
  params.degree = k;
  params.calibrate = ANN_OFF;
  params.refinements = 1;
  params.seed = 3;
  return params;
}

struct Graph {
  std::vector<uint32_t> edges;
  uint32_t degree = 0;
};

Graph graph_of(const ann_index* index, uint64_t rows, uint32_t k) {
  Graph graph;
  graph.edges.resize(rows * k);
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_index_graph(index, graph.edges.data(), graph.edges.size(), &graph.degree, &error), error,
            "graph");
  return graph;
}

void compare(const Case& c, const ann_build_params& given) {
  const Rows rows(c.element, c.rows, c.dim, c.values, c.dim);
  ann_build_params params = given;
  params.device = ANN_DEVICE_CPU;
  const Index twin(rows, c.metric, params, c.name());
  params.device = ANN_DEVICE_CUDA;
  const Index device(rows, c.metric, params, c.name());
  const Graph there = graph_of(device.index, c.rows, params.degree);
  const Graph here = graph_of(twin.index, c.rows, params.degree);
  for (uint64_t i = 0; i < here.edges.size(); ++i)
    expect(there.edges[i] == here.edges[i],
           c.name() + ", k " + std::to_string(params.degree) + ": row " + std::to_string(i / params.degree) +
               ", place " + std::to_string(i % params.degree) + " is " + std::to_string(there.edges[i]) +
               ", of the twin " + std::to_string(here.edges[i]));
  expect(device.file() == twin.file(), c.name() + ", k " + std::to_string(params.degree) + ": the file");
  ++files_compared;
}

void claim_elements() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      if (quick && metric != ANN_METRIC_L2 && element != ANN_F16) continue;
      Case c;
      c.element = element;
      c.metric = metric;
      c.rows = quick ? 250 : 1500;
      compare(c, params_of(12));
    }
  }
}

void claim_dims() {
  for (const uint32_t dim : {1u, 2u, 3u, 31u, 64u, 65u, 128u, 260u, 960u}) {
    if (quick && dim != 3 && dim != 65 && dim != 260) continue;
    for (const int32_t element : {ANN_U8, ANN_I8, ANN_F32}) {
      if (quick && element == ANN_I8) continue;
      Case c;
      c.dim = dim;
      c.rows = quick ? 150 : 600;
      c.element = element;
      compare(c, params_of(8));
    }
  }
}

/// k beyond the rows, fewer rows than a segment, no rows.
void claim_sizes() {
  for (const uint32_t rows : {0u, 1u, 2u, 3u, 16u, 31u, 32u, 33u, 63u, 64u, 65u, 129u, 300u, 1000u, 3000u}) {
    if (quick && rows > 300) break;
    for (const uint32_t k : {2u, 3u, 24u, 70u}) {
      if (quick && k != (rows % 2 == 0 ? 24 : 3)) continue;
      Case c;
      c.rows = rows;
      compare(c, params_of(k));
    }
  }
}

void claim_degrees() {
  for (const uint32_t k : {2u, 3u, 7u, 31u, 32u, 33u, 64u, 65u, 100u, 256u}) {
    if (quick && k != 7 && k != 33 && k != 65) continue;
    Case c;
    c.rows = quick ? 300 : 1200;
    compare(c, params_of(k));
  }
}

void claim_parameters() {
  Case c;
  c.rows = quick ? 500 : 4000;
  const auto with = [&](auto change) {
    ann_build_params params = params_of(16);
    change(params);
    compare(c, params);
  };
  with([](ann_build_params& p) { p.refinements = ANN_NONE; });
  with([](ann_build_params& p) { p.refinements = 3; });
  with([](ann_build_params& p) { p.midpoint = ANN_OFF; });
  with([](ann_build_params& p) { p.build_stretch = 1; });
  with([](ann_build_params& p) { p.build_stretch = 2.5f; });
  with([](ann_build_params& p) { p.build_slack = ANN_SLACK_SQUARES; });
  with([](ann_build_params& p) { p.layers = 2; });
  with([](ann_build_params& p) { p.layers = 8; });
  with([](ann_build_params& p) { p.segment_rows = 9; });
  with([](ann_build_params& p) { p.segment_rows = 200; });
  with([](ann_build_params& p) { p.repair = ANN_OFF; });
}

void claim_values() {
  for (const Values values :
       {Values::kDuplicates, Values::kEqual, Values::kGrid, Values::kNormal, Values::kZeros}) {
    for (const int32_t element : {ANN_F32, ANN_U8}) {
      for (const uint32_t dim : {2u, 32u}) {
        if (quick && dim == 2) continue;
        Case c;
        c.values = values;
        c.element = element;
        c.dim = dim;
        c.rows = quick ? 200 : 900;
        compare(c, params_of(10));
      }
    }
  }
}

/// The copy that the build has left on the device answers as the CPU does.
void claim_searches() {
  Case c;
  c.rows = 3000;
  const Rows rows(c.element, c.rows, c.dim, c.values, 1);
  const Rows queries(c.element, 50, c.dim, c.values, 2);
  ann_build_params params = params_of(24);
  params.device = ANN_DEVICE_CUDA;
  const Index built(rows, c.metric, params, "search");
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.procedure = ANN_SEARCH_GGNN;
  search.stretch = 1.4f;
  Answers answers[2];
  for (const int32_t device : {ANN_DEVICE_CPU, ANN_DEVICE_CUDA}) {
    search.device = device;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(
        ask(built.index, matrix_of(queries), 10, search, false, &answers[device == ANN_DEVICE_CPU], &error),
        error, "search");
  }
  expect(answers[0].ids == answers[1].ids && answers[0].distance_count == answers[1].distance_count,
         "the same answers");
}

/// ANN_KNN_GGNN.
void compare_lists(const Case& c) {
  const Rows rows(c.element, c.rows, c.dim, c.values, c.dim);
  const ann_matrix matrix = matrix_of(rows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = c.metric;
  params.method = ANN_KNN_GGNN;
  params.k = c.k;
  std::vector<uint32_t> lists[2];
  std::vector<float> distances[2];
  for (uint32_t i = 0; i < 2; ++i) {
    params.device = i == 0 ? ANN_DEVICE_CPU : ANN_DEVICE_CUDA;
    lists[i].assign(uint64_t{c.rows} * c.k, 7);
    distances[i].assign(lists[i].size(), -7);
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_knn_graph(nullptr, &matrix, &params, lists[i].data(), distances[i].data(), nullptr, &error),
              error, c.name());
  }
  expect(lists[0] == lists[1], c.name() + ": the lists");
  expect(std::memcmp(distances[0].data(), distances[1].data(), distances[0].size() * sizeof(float)) == 0,
         c.name() + ": their distances");
}

void claim_lists() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_COSINE}) {
      Case c;
      c.element = element;
      c.metric = metric;
      c.rows = quick ? 300 : 2000;
      compare_lists(c);
    }
  }
  for (const uint32_t k : {1u, 16u, 40u, 128u}) {
    Case c;
    c.k = k;
    c.rows = quick ? 700 : 3000;
    if (!quick || k < 100) compare_lists(c);
  }
}

void claim_handful() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    for (const uint32_t dim : {1u, 40u}) {
      Case c;
      c.element = element;
      c.dim = dim;
      c.rows = 140;
      ann_build_params params = params_of(6);
      params.refinements = ANN_NONE;
      params.segment_rows = 8;
      compare(c, params);
    }
  }
}

constexpr Claim kClaims[] = {
    {"every element and metric", claim_elements},
    {"dimensions", claim_dims},
    {"every number of rows", claim_sizes},
    {"every degree", claim_degrees},
    {"parameters", claim_parameters},
    {"duplicates, equal rows, equal distances", claim_values},
    {"searches", claim_searches},
    {"k-NN graphs", claim_lists},
};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  const int status = mode == "race" ? run_claims(kRaceClaims) : run_claims(kClaims, quick ? "" : mode);
  std::printf("%llu files are those of the CPU\n", static_cast<unsigned long long>(files_compared));
  return status;
}

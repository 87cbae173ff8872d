// Claims about GGNN's build on a CUDA device, made through the C interface: the index is that of the CPU, byte for byte
// of its file, so layers, links, entry points and distances to nearest neighbours are; it is searched; and the device
// memory is what was planned.
//
//   ggnn_build_cuda_test             all claims
//   ggnn_build_cuda_test quick       fewer and smaller cases, for compute-sanitizer
//   ggnn_build_cuda_test race        a handful, for its racecheck, which is slow
//   ggnn_build_cuda_test TEXT        claims with TEXT in their names
//   ggnn_build_cuda_test figures ROWS QUERIES [K...]   times, consensus and recall on .u8bin files, as bytes and floats
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
    if (quick && dim > 260) break;
    for (const int32_t element : {ANN_U8, ANN_I8, ANN_F32}) {
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
      Case c;
      c.rows = rows;
      compare(c, params_of(k));
    }
  }
}

void claim_degrees() {
  for (const uint32_t k : {2u, 3u, 7u, 31u, 32u, 33u, 64u, 65u, 100u, 256u}) {
    if (quick && k > 65) break;
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
};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

// --- Figures -----------------------------------------------------------------------------------------

Rows as_floats(const Rows& bytes) {
  Rows rows(ANN_F32, 0, bytes.dim, Values::kEqual, 1);
  rows.rows = bytes.rows;
  rows.bytes.resize(bytes.rows * rows.stride);
  float* to = reinterpret_cast<float*>(rows.bytes.data());
  for (uint64_t i = 0; i < uint64_t{bytes.rows} * bytes.dim; ++i) to[i] = bytes.bytes[i];
  return rows;
}

/// Answers of `count` rows in memory, the row itself left out.
Answers answers_of(const ann_index* index, const Rows& queries, uint32_t k, const ann_search_params& params,
                   bool exact) {
  Answers answers;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ask(index, matrix_of(queries), k, params, exact, &answers, &error), error, "figures");
  return answers;
}

double recall_of(const Answers& found, const Answers& truth, uint32_t k, uint32_t truth_k) {
  uint64_t hits = 0;
  for (uint64_t i = 0; i < found.ids.size(); ++i)
    hits += found.distances[i] <= truth.distances[i / k * truth_k + k - 1] ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(found.ids.size());
}

/// Of the lists of the first 10,000 rows: true neighbours among the first one and ten.
void consensus(const ann_index* index, const Rows& rows, uint32_t k) {
  Rows some(rows.element, 0, rows.dim, Values::kEqual, 1);
  some.rows = std::min(10'000u, rows.rows);
  some.bytes.assign(rows.bytes.begin(), rows.bytes.begin() + static_cast<ptrdiff_t>(some.rows * rows.stride));
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  const Answers truth = answers_of(index, some, 11, params, true);
  const Graph graph = graph_of(index, rows.rows, k);
  uint64_t first = 0;
  uint64_t ten = 0;
  for (uint64_t row = 0; row < some.rows; ++row) {
    std::vector<uint64_t> near;
    for (uint32_t i = 0; i < 11 && near.size() < 10; ++i) {
      if (truth.ids[row * 11 + i] != row) near.push_back(truth.ids[row * 11 + i]);
    }
    const uint32_t* list = graph.edges.data() + row * k;
    first += list[0] == near[0] ? 1 : 0;
    for (uint32_t i = 0; i < 10; ++i) ten += std::count(near.begin(), near.end(), list[i]) != 0 ? 1 : 0;
  }
  std::printf("  C@1 %.4f, C@10 %.4f\n", static_cast<double>(first) / some.rows,
              static_cast<double>(ten) / some.rows / 10);
}

void searches(const ann_index* index, const Rows& queries) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  const Answers truth = answers_of(index, queries, 10, params, true);
  params.procedure = ANN_SEARCH_GGNN;
  params.compare = ANN_COMPARE_STORED;
  for (const float tau : {0.20f, 0.30f, 0.42f, 0.65f}) {
    params.stretch = 1 + tau;
    std::printf("  tau %.2f: recall@1 %.4f\n", static_cast<double>(tau),
                recall_of(answers_of(index, queries, 1, params, false), truth, 1, 10));
  }
  for (uint32_t step = 0; step <= 14; ++step) {
    params.stretch = 1 + 0.05f * static_cast<float>(step);
    Answers answers;
    double best = 1e9;
    for (uint32_t turn = 0; turn < 4; ++turn)
      best =
          std::min(best, milliseconds_of([&] { answers = answers_of(index, queries, 10, params, false); }));
    std::printf("  stretch %.2f: recall@10 %.4f, %.3f M queries/s, %.0f distances\n",
                static_cast<double>(params.stretch), recall_of(answers, truth, 10, 10),
                queries.rows / best / 1e3, static_cast<double>(answers.distance_count) / queries.rows);
  }
}

void figures(const std::string& rows_path, const std::string& queries_path, const std::vector<uint32_t>& ks) {
  const Rows byte_rows = read_u8bin(rows_path, UINT32_MAX);
  const Rows byte_queries = read_u8bin(queries_path, UINT32_MAX);
  const Rows float_rows = as_floats(byte_rows);
  const Rows float_queries = as_floats(byte_queries);
  for (const bool floats : {true, false}) {
    const Rows& rows = floats ? float_rows : byte_rows;
    for (const uint32_t k : ks) {
      ann_build_params params = params_of(k);
      params.refinements = 2;
      params.seed = 1;
      params.device = ANN_DEVICE_CUDA;
      ann_index_params shape = ANN_INDEX_PARAMS_INIT;
      shape.dim = rows.dim;
      ann_plan plan = ANN_PLAN_INIT;
      ann_error error = ANN_ERROR_INIT;
      expect_ok(ann_estimate(&shape, rows.rows, rows.element, &params, &plan, &error), error, "estimate");
      double best = 1e9;
      for (uint32_t turn = 0; turn < 2; ++turn)
        best = std::min(best, milliseconds_of([&] { Index index(rows, ANN_METRIC_L2, params, "figures"); }));
      const Index index(rows, ANN_METRIC_L2, params, "figures");
      std::printf("%s, %u rows, k %u: built in %.3f s, %.0f MB of device memory planned\n",
                  element_name(rows.element), rows.rows, k, best / 1e3,
                  static_cast<double>(plan.device_bytes) / 1e6);
      consensus(index.index, rows, k);
      searches(index.index, floats ? float_queries : byte_queries);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "figures" && count > 3) {
    std::vector<uint32_t> ks;
    for (int i = 4; i < count; ++i) ks.push_back(static_cast<uint32_t>(std::atoi(arguments[i])));
    if (ks.empty()) ks = {24, 40};
    try {
      figures(arguments[2], arguments[3], ks);
    } catch (const Failure& failure) {
      std::printf("FAILS: %s\n", failure.what.c_str());
      return 1;
    }
    return 0;
  }
  quick = mode == "quick";
  const int status = mode == "race" ? run_claims(kRaceClaims) : run_claims(kClaims, quick ? "" : mode);
  std::printf("%llu files are those of the CPU\n", static_cast<unsigned long long>(files_compared));
  return status;
}

// Searches: exact search against a sort, best-first search at its limits, codes of every metric
// against the order that they stand for, calibration against its promise.

#include <algorithm>
#include <cmath>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "../scale.h"
#include "catch.h"
#include "graph/covering_heads.h"
#include "index/index.h"
#include "made_data.h"
#include "search/exact.h"
#include "search/slack.h"

using namespace gannet;

namespace {

struct Floats {
  Floats(uint32_t rows, uint32_t dim, uint64_t seed, double spread) : dim(dim) {
    for (uint64_t row = 0; row < rows; ++row) {
      const double length =
          std::exp(spread * (static_cast<double>(random_below(1000, seed, 1, row)) / 1000 - 0.5));
      for (uint64_t column = 0; column < dim; ++column) {
        double value = 0;  // nearly normal: a sum of uniform numbers
        for (uint64_t i = 0; i < 4; ++i)
          value += static_cast<double>(random_below(2001, seed, 2 + row, column * 4 + i)) / 1000 - 1;
        values.push_back(static_cast<float>(value * length));
      }
    }
  }
  MatrixView view() const {
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() / dim, dim, ANN_F32,
            dim * sizeof(float)};
  }
  uint32_t dim;
  std::vector<float> values;
};

double true_distance(const float* x, const float* q, uint32_t dim, int32_t metric) {
  double dot = 0, l2 = 0, xx = 0, qq = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    dot += double{x[i]} * q[i];
    l2 += (double{x[i]} - q[i]) * (double{x[i]} - q[i]);
    xx += double{x[i]} * x[i];
    qq += double{q[i]} * q[i];
  }
  if (metric == ANN_METRIC_L2) return l2;
  return metric == ANN_METRIC_INNER_PRODUCT ? -dot : 1 - dot / std::sqrt(xx * qq);
}

std::unique_ptr<const PlacedSegment> build_floats(const Floats& rows, int32_t metric, bool calibrate,
                                                  int32_t graph = ANN_GRAPH_AUTO, uint32_t degree = 0) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = metric;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = calibrate ? ANN_ON : ANN_OFF;
  params.graph = graph;
  params.degree = degree;
  const BuildPlan plan = plan_build(params, shape, rows.view().rows, 2);
  return build(shape, rows.view(), nullptr, plan, nullptr, {{}, 2, nullptr});
}

struct Answers {
  Answers(uint64_t queries, uint32_t k) : k(k), ids(queries * k), distances(queries * k) {}
  ResultsView view() { return {k, ids.data(), distances.data(), nullptr, nullptr}; }
  double recall_against(const Answers& truth) const {
    uint64_t hits = 0;
    for (size_t query = 0; query < ids.size() / k; ++query)
      for (uint32_t i = 0; i < k; ++i)
        hits += std::find(truth.ids.begin() + query * k, truth.ids.begin() + (query + 1) * k,
                          ids[query * k + i]) != truth.ids.begin() + (query + 1) * k;
    return static_cast<double>(hits) / ids.size();
  }
  uint32_t k;
  std::vector<uint64_t> ids;
  std::vector<float> distances;
};

/// Answers of best-first search with a beam.
void search_by_beam(const PlacedSegment& built, const MatrixView& queries, uint32_t beam,
                    const ResultsView& results, SearchCounts* counts) {
  kBestFirst.run_on_host(built.host, {queries, results, nullptr, {}},
                         BeamPlan{std::min(beam, built.segment.rows())}, {{}, 2, nullptr}, counts);
}

}  // namespace

TEST_CASE("exact search answers as a sort in double precision does") {
  const Floats rows(400, 23, 1, 1);
  const Floats queries(20, 23, 2, 1);
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Dataset dataset(rows.view(), nullptr, metric, 0, false, {});
    const QueryBlock block(dataset, queries.view(), {});
    Answers answers(20, 10);
    search_exact(dataset, block, {}, answers.view(), {{}, 2, nullptr});
    for (uint32_t query = 0; query < 20; ++query) {
      std::vector<double> all;
      for (uint32_t row = 0; row < 400; ++row)
        all.push_back(true_distance(&rows.values[row * 23], &queries.values[query * 23], 23, metric));
      std::vector<double> sorted = all;
      std::sort(sorted.begin(), sorted.end());
      for (uint32_t i = 0; i < 10; ++i) {
        const uint32_t place = query * 10 + i;
        const double scale = std::fabs(sorted[i]) + 1;
        REQUIRE(std::fabs(answers.distances[place] - sorted[i]) < 1e-4 * scale);
        REQUIRE(std::fabs(all[answers.ids[place]] - sorted[i]) < 1e-4 * scale);
      }
    }
  }
}

TEST_CASE("a beam as long as the rows finds what exact search finds") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kIslands, Shape::kAllEqual}) {
    const MadeData data(500, 12, shape, 13);
    ann_index_params index_shape = ANN_INDEX_PARAMS_INIT;
    index_shape.dim = 12;
    index_shape.metric = ANN_METRIC_L2;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = 6;
    params.calibrate = ANN_OFF;
    const MatrixView rows = view_of(data.bytes, 12);
    const auto built =
        build(index_shape, rows, nullptr, plan_build(params, index_shape, 500, 2), nullptr, {});
    Answers found(500, 7);
    Answers truth(500, 7);
    SearchCounts counts;
    search_by_beam(*built, rows, 500, found.view(), &counts);
    search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, rows, {}), {}, truth.view(), {});
    REQUIRE(found.ids == truth.ids);
    REQUIRE(found.distances == truth.distances);
  }
}

TEST_CASE("searches on codes answer each metric, with the distances of the stored rows") {
  const Floats queries(200, 40, 4, 1);
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Floats rows(6000, 40, 3, 1.2);
    const auto built = build_floats(rows, metric, false);
    Answers found(200, 10);
    Answers truth(200, 10);
    SearchCounts counts;
    search_by_beam(*built, queries.view(), 200, found.view(), &counts);
    search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, queries.view(), {}), {},
                 truth.view(), {});
    INFO("metric " << metric);
    REQUIRE(found.recall_against(truth) > 0.95);
    for (uint32_t query = 0; query < 200; ++query) {
      for (uint32_t i = 0; i < 10; ++i) {
        const uint32_t place = query * 10 + i;
        const auto same =
            std::find(truth.ids.begin() + query * 10, truth.ids.begin() + (query + 1) * 10, found.ids[place]);
        if (same != truth.ids.begin() + (query + 1) * 10)
          REQUIRE(found.distances[place] == truth.distances[static_cast<size_t>(same - truth.ids.begin())]);
      }
    }
    REQUIRE(counts.distances > 0);
    REQUIRE(counts.expansions > 0);
  }
}

TEST_CASE("walks compare rows of halves as they are stored where codes would be floats") {
  for (const uint32_t dim : {63u, 64u, 200u}) {
    // Every row has another within a thousandth of the distance to the rest, which bytes cannot tell apart.
    Floats rows(1200, dim, 9, 0);
    for (size_t i = 0; i < rows.values.size() / 2; ++i)
      rows.values[rows.values.size() / 2 + i] = rows.values[i] + (i % dim == 0 ? 0.002f : 0.0f);
    const Dataset dataset(rows.view(), nullptr, ANN_METRIC_L2, ANN_F16, false, {});
    const Codes codes(dataset, 1, {});
    REQUIRE(codes.wide());
    const bool halves = dim >= 64;
    CHECK(codes.walk_stride() == (halves ? dim * 2 : codes.stride()));
    Floats queries(20, dim, 10, 0);
    queries.values[0] = 3e38f;  // its square leaves the range of a float
    std::vector<uint8_t> values(dataset.query_bytes()), code(codes.walk_query_bytes());
    std::vector<uint32_t> ids(dataset.rows()), walked(ids.size());
    std::iota(ids.begin(), ids.end(), 0u);
    std::vector<float> stored(ids.size());
    for (uint64_t q = 0; q < queries.view().rows; ++q) {
      PreparedQuery query;
      dataset.prepare(queries.view().row(q), ANN_F32, values.data(), &query);
      codes.encode_walk_query(query, code.data());
      codes.walk_distances(code.data(), ids.data(), dataset.rows(), walked.data());
      dataset.distances(query, ids.data(), 0, dataset.rows(), stored.data());
      for (size_t row = 0; row < ids.size(); ++row) {
        const float distance = std::bit_cast<float>(walked[row]);
        CHECK(std::isfinite(distance));
        if (halves && q != 0) CHECK(distance == stored[row]);
      }
    }
  }
}

TEST_CASE("halves of wide codes are the floats rounded, and finite") {
  for (const uint32_t dim : {17u, 24u, 33u, 100u}) {
    Floats rows(1200, dim, 9, 0);
    for (size_t i = 0; i < rows.values.size() / 2; ++i)
      rows.values[rows.values.size() / 2 + i] = rows.values[i] + (i % dim == 0 ? 0.002f : 0.0f);
    const Dataset dataset(rows.view(), nullptr, ANN_METRIC_L2, ANN_F32, false, {});
    Codes codes(dataset, 1, {});
    REQUIRE((codes.wide() && !codes.has_halves()));
    const size_t floats = codes.walk_stride();
    codes.make_halves({});
    REQUIRE(codes.has_halves());
    REQUIRE(codes.walk_stride() == round_up(size_t{dim} * 2, kCodeAlign));
    REQUIRE(codes.device_walk_stride() == floats);
    for (uint32_t row = 0; row < codes.rows(); ++row) {
      const uint8_t* const half_row = codes.walk_row(row);
      for (uint32_t column = 0; column < codes.walk_stride() / 2; ++column) {
        const float half = element_to_float(half_row, ANN_F16, column);
        const float exact = column < dim ? element_to_float(codes.row(row), ANN_F32, column) : 0;
        REQUIRE(std::abs(half - exact) <= std::abs(exact) / 2048 + (column < dim ? 0x1p-25f : 0));
      }
    }
    // Copies of some rows walk by the same.
    const uint32_t some[] = {3, 1199, 700};
    Codes copies(codes, some, 3, {});
    copies.copy_halves(codes, some, {});
    for (uint32_t i = 0; i < 3; ++i)
      REQUIRE(std::memcmp(copies.walk_row(i), codes.walk_row(some[i]), codes.walk_stride()) == 0);
    codes.drop_halves();
    REQUIRE((codes.walk_stride() == floats && codes.walk_row(5) == codes.row(5)));
  }
}

TEST_CASE("a masked row is neither returned nor walked through") {
  const MadeData data(300, 8, Shape::kClusters, 17);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 8;
  shape.metric = ANN_METRIC_L2;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = ANN_OFF;
  const auto built =
      build(shape, view_of(data.bytes, 8), nullptr, plan_build(params, shape, 300, 1), nullptr, {});
  SearchWorkspace workspace(built->segment.dataset, built->segment.codes, built->segment.graph, {});
  for (uint32_t row = 0; row < 300; ++row) {
    PreparedQuery query;
    std::vector<uint8_t> values(8);
    built->segment.dataset.prepare(&data.bytes[row * 8], ANN_U8, values.data(), &query);
    SearchCounts counts;
    const uint32_t found =
        search_best_first(built->segment.dataset, built->segment.codes, built->segment.graph, query,
                          {{}, {}, row}, 10, 300, workspace, &counts);
    REQUIRE(found == 10);
    for (uint32_t i = 0; i < found; ++i) REQUIRE(workspace.neighbors[i].id != row);
  }
}

TEST_CASE("searches that take turns find and count what each does alone") {
  const Floats rows(3000, 24, 41, 0.5);
  Floats queries(70, 24, 42, 0.5);
  queries.values[4 * 24 + 7] = std::numeric_limits<float>::quiet_NaN();
  constexpr uint32_t kWanted = 7;
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const auto built = build_floats(rows, metric, false);
    const Segment& segment = built->segment;
    RowSet removed({}, 3000);
    for (uint32_t row = 0; row < 3000; row += 3) removed.insert(row);
    std::vector<uint32_t> masked(70);
    for (uint32_t query = 0; query < 70; ++query) masked[query] = 40 * query;
    SearchWorkspace workspace(segment.dataset, segment.codes, segment.graph, {});
    for (const bool by_slack : {false, true}) {
      for (const BatchAdmission& admission : {BatchAdmission{}, BatchAdmission{removed.view(), {}, nullptr},
                                              BatchAdmission{{}, {}, masked.data()}}) {
        for (const uint32_t count : {1u, 2u, 3u, 5u, 70u}) {
          INFO("metric " << metric << ", slack " << by_slack << ", " << count << " queries");
          Answers found(count, kWanted);
          std::vector<uint32_t> counts(count);
          std::vector<ann_status> status(count);
          MatrixView part = queries.view();
          part.rows = count;
          SearchCounts together;
          const SearchBatch batch = {
              part,
              {kWanted, found.ids.data(), found.distances.data(), counts.data(), status.data()},
              nullptr,
              admission};
          if (by_slack)
            kSlack.run_on_host(built->host, batch, TwoListsPlan{0.05f, 0, 1}, {{}, 1, nullptr}, &together);
          else
            kBestFirst.run_on_host(built->host, batch, BeamPlan{20}, {{}, 1, nullptr}, &together);
          SearchCounts alone;
          for (uint32_t query = 0; query < count; ++query) {
            PreparedQuery prepared;
            const bool usable =
                segment.dataset.prepare(part.row(query), part.element, workspace.values.data(), &prepared);
            REQUIRE(usable == (query != 4));
            REQUIRE(status[query] == (usable ? ANN_OK : ANN_NOT_FINITE));
            if (!usable) {
              REQUIRE(counts[query] == 0);
              continue;
            }
            const uint32_t number =
                by_slack ? search_with_slack(segment.dataset, segment.codes, segment.graph, prepared,
                                             admission.of(query), kWanted, 0.05f, workspace, &alone)
                         : search_best_first(segment.dataset, segment.codes, segment.graph, prepared,
                                             admission.of(query), kWanted, 20, workspace, &alone);
            REQUIRE(counts[query] == number);
            for (uint32_t i = 0; i < number; ++i) {
              REQUIRE(found.ids[query * kWanted + i] == workspace.neighbors[i].id);
              REQUIRE(found.distances[query * kWanted + i] == workspace.neighbors[i].distance);
            }
          }
          REQUIRE(together.distances == alone.distances);
          REQUIRE(together.expansions == alone.expansions);
        }
      }
    }
  }
}

TEST_CASE("recall asked for is recall got, on queries that calibration has not seen") {
  const Floats rows(test_scale() > 1 ? 8000 : 20000, 24, 5, 0);  // a sanitizer makes builds slow
  const Floats queries(500, 24, 6, 0);
  const auto built = build_floats(rows, ANN_METRIC_L2, true);
  for (const uint32_t k : {1u, 10u, 37u, 100u}) {
    Answers truth(500, k);
    search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, queries.view(), {}), {},
                 truth.view(), {{}, 2, nullptr});
    for (const float recall : {0.8f, 0.9f, 0.95f, 0.99f}) {
      Answers found(500, k);
      SearchCounts counts;
      search_by_beam(*built, queries.view(), built->calibration.known().beam(k, recall), found.view(),
                     &counts);
      INFO("k " << k << " recall " << recall);
      REQUIRE(found.recall_against(truth) >= recall - 0.01);
    }
  }
}

TEST_CASE("walks over variable rows find what walks over the same rows, padded, find") {
  const Floats rows(600, 12, 31, 0);
  const Floats queries(40, 12, 32, 0);
  const auto padded = build_floats(rows, ANN_METRIC_L2, false);
  const auto variable = build_floats(rows, ANN_METRIC_L2, false);
  // Every row loses its last edges, a number of its own.
  SearchGraph& fixed = const_cast<SearchGraph&>(padded->segment.graph);
  SearchGraph& cut = const_cast<SearchGraph&>(variable->segment.graph);
  std::vector<uint32_t> edges;
  cut.offsets = Array<uint64_t>({}, fixed.rows + 1);
  for (uint32_t row = 0; row < fixed.rows; ++row) {
    cut.offsets[row] = edges.size();
    const uint32_t length = fixed.degree - row % 5;
    uint32_t* list = fixed.table().row(row);
    for (uint32_t i = 0; i < length && list[i] != kNoRow; ++i) edges.push_back(list[i]);
    std::fill(list + length, list + fixed.degree, kNoRow);
  }
  cut.offsets[fixed.rows] = edges.size();
  cut.edges = Array<uint32_t>({}, edges.size());
  std::copy(edges.begin(), edges.end(), cut.edges.begin());
  REQUIRE_FALSE(cut.is_fixed());
  for (const Procedure* procedure : {&kBestFirst, &kCagraSingleCta, &kCagraMultiCta}) {
    Answers wanted(40, 10);
    Answers found(40, 10);
    SearchRequest request{ANN_SEARCH_PARAMS_INIT, 0.95f, 40, 10, 10};
    request.params.procedure = procedure->id;
    SearchCounts counts[2];
    for (const auto& built : {&padded, &variable}) {
      const SearchPlan plan = procedure->plan({(*built)->host}, request, {64, 0, 0});
      Answers& answers = built == &padded ? wanted : found;
      procedure->run_on_host((*built)->host, {queries.view(), answers.view(), nullptr, {}}, plan,
                             {{}, 2, nullptr}, &counts[built == &padded ? 0 : 1]);
    }
    REQUIRE(found.ids == wanted.ids);
    REQUIRE(found.distances == wanted.distances);
    REQUIRE(counts[0].distances == counts[1].distances);
    REQUIRE(counts[0].expansions == counts[1].expansions);
  }
}

TEST_CASE("a snapshot of two segments answers as one of all rows does") {
  const Floats all(500, 9, 41, 0);
  const Floats queries(30, 9, 42, 0);
  Floats halves[2] = {all, all};
  halves[0].values.assign(all.values.begin(), all.values.begin() + 200 * 9);
  halves[1].values.assign(all.values.begin() + 200 * 9, all.values.end());
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 9;
  shape.metric = ANN_METRIC_L2;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = ANN_OFF;
  Snapshot snapshot;
  uint64_t first_id = 0;
  for (const Floats& half : halves) {
    const MatrixView rows = half.view();
    std::vector<uint64_t> ids(rows.rows);
    for (uint64_t& id : ids) id = first_id++;
    snapshot.segments.push_back(
        build(shape, rows, ids.data(), plan_build(params, shape, rows.rows, 2), nullptr, {{}, 2, nullptr}));
  }
  const Dataset dataset(all.view(), nullptr, ANN_METRIC_L2, 0, false, {});
  for (const uint32_t k : {1u, 10u, 250u, 600u}) {
    Answers truth(30, k);
    search_exact(dataset, QueryBlock(dataset, queries.view(), {}), {}, truth.view(), {});
    for (const int32_t procedure : {ANN_SEARCH_EXACT, ANN_SEARCH_BEST_FIRST}) {
      Answers found(30, k);
      ann_search_params search = ANN_SEARCH_PARAMS_INIT;
      search.procedure = procedure;
      search.beam = procedure == ANN_SEARCH_EXACT ? 0 : 600;
      SearchCounts counts;
      search_snapshot(snapshot, search, 0.95f, ANN_DEVICE_CPU, {queries.view(), found.view(), nullptr, {}},
                      {{}, 2, nullptr}, &counts);
      REQUIRE(found.ids == truth.ids);
      REQUIRE(found.distances == truth.distances);
      REQUIRE(counts.distances >= 30 * 400);
    }
  }
}

/// The furthest effort of a procedure of the CPU.
Effort furthest(const Procedure& procedure, const SearchTarget& target, uint32_t k) {
  Effort effort{400, 0, 1};
  if (procedure.knob_at == nullptr) return effort;
  for (uint32_t step = 0; const auto knob = procedure.knob_at(target, k, step); ++step) effort.knob = *knob;
  return effort;
}

TEST_CASE("no procedure returns a removed row, or walks one that is held out") {
  constexpr uint32_t kRows = 3000;
  const Floats rows(kRows, 12, 51, 0);
  const auto built = build_floats(rows, ANN_METRIC_L2, false);
  const auto blocked = build_floats(rows, ANN_METRIC_L2, false);
  RowSet removed({}, kRows);
  RowSet held_out({}, kRows);
  for (uint32_t row = 0; row < kRows; ++row) {
    if (random_below(3, 52, 0, row) == 0) removed.insert(row);
    if (random_below(9, 53, 0, row) != 0) continue;
    held_out.insert(row);
    // No walk that expands the row finds its neighbours by it here.
    const EdgeTable edges = const_cast<SearchGraph&>(blocked->segment.graph).table();
    std::fill(edges.row(row), edges.row(row) + edges.degree, kNoRow);
  }
  SearchBatch batch{rows.view(), {}, nullptr, {removed.view(), held_out.view(), nullptr}};
  batch.queries.rows = 100;
  Answers truth(100, 10);
  search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, batch.queries, {}), batch.admission,
               truth.view(), {{}, 2, nullptr});
  uint32_t procedures_tried = 0;
  for (const Procedure* procedure : procedures()) {
    if (!procedure->on_host) continue;
    INFO(procedure->name);
    ++procedures_tried;
    SearchRequest request{ANN_SEARCH_PARAMS_INIT, 0.95f, 100, 10, 10};
    request.params.procedure = procedure->id;
    const SearchTarget target{built->host};
    const SearchPlan plan = procedure->plan(target, request, furthest(*procedure, target, 10));
    Answers found(100, 10);
    Answers without(100, 10);
    SearchCounts counts[2];
    batch.results = found.view();
    procedure->run_on_host(built->host, batch, plan, {{}, 2, nullptr}, &counts[0]);
    batch.results = without.view();
    procedure->run_on_host(blocked->host, batch, plan, {{}, 2, nullptr}, &counts[1]);
    for (const uint64_t id : found.ids) {
      REQUIRE(id < kRows);
      REQUIRE_FALSE(removed.holds(static_cast<uint32_t>(id)));
      REQUIRE_FALSE(held_out.holds(static_cast<uint32_t>(id)));
    }
    REQUIRE(found.recall_against(truth) > 0.9);
    REQUIRE(found.ids == without.ids);
    REQUIRE(counts[0].distances == counts[1].distances);
  }
  REQUIRE(procedures_tried >= 5);
}

TEST_CASE("a removed row is walked through, one that is held out is not") {
  // Rows on a line, each with edges to the next ones only: the way from the first to the last leads by all.
  constexpr uint32_t kRows = 64;
  Floats rows(kRows, 4, 61, 0);
  for (uint32_t i = 0; i < rows.values.size(); ++i) rows.values[i] = static_cast<float>(i / 4);
  const auto built = build_floats(rows, ANN_METRIC_L2, false);
  SearchGraph& graph = const_cast<SearchGraph&>(built->segment.graph);
  std::fill(graph.edges.data(), graph.edges.data() + graph.edges.size(), kNoRow);
  for (uint32_t row = 0; row < kRows; ++row) {
    if (row > 0) graph.table().edge(row, 0) = row - 1;
    if (row + 1 < kRows) graph.table().edge(row, row > 0 ? 1 : 0) = row + 1;
  }
  graph.entries = Array<uint32_t>({}, 1);
  graph.entries[0] = 0;
  RowSet gate({}, kRows);
  gate.insert(20);
  SearchBatch batch{rows.view(), {}, nullptr, {}};
  batch.queries.data = reinterpret_cast<const uint8_t*>(&rows.values[40 * 4]);
  batch.queries.rows = 1;
  const auto nearest = [&](const BatchAdmission& admission) {
    Answers found(1, 3);
    SearchCounts counts;
    batch.results = found.view();
    batch.admission = admission;
    kBestFirst.run_on_host(built->host, batch, BeamPlan{kRows}, {}, &counts);
    return found.ids[0];
  };
  REQUIRE(nearest({}) == 40);
  REQUIRE(nearest({gate.view(), {}, nullptr}) == 40);
  REQUIRE(nearest({{}, gate.view(), nullptr}) == 19);
}

TEST_CASE("rows that a snapshot has removed are in no answer") {
  const Floats all(400, 9, 71, 0);
  const Floats queries(30, 9, 72, 0);
  const auto built = build_floats(all, ANN_METRIC_L2, false);
  const auto removed = std::make_shared<RowSet>(Allocator(), 400);
  for (uint32_t row = 0; row < 400; row += 2) removed->insert(row);
  Snapshot snapshot;
  snapshot.segments.emplace_back(built.get(), [](const PlacedSegment*) {});
  snapshot.removed.push_back(removed);
  for (const int32_t procedure :
       {ANN_SEARCH_EXACT, ANN_SEARCH_BEST_FIRST, ANN_SEARCH_SLACK, ANN_SEARCH_AUTO}) {
    Answers found(30, 20);
    ann_search_params search = ANN_SEARCH_PARAMS_INIT;
    search.procedure = procedure;
    search.beam = procedure == ANN_SEARCH_EXACT || procedure == ANN_SEARCH_SLACK ? 0 : 200;
    SearchCounts counts;
    search_snapshot(snapshot, search, 0.95f, ANN_DEVICE_CPU, {queries.view(), found.view(), nullptr, {}},
                    {{}, 2, nullptr}, &counts);
    for (const uint64_t id : found.ids) REQUIRE(id % 2 == 1);
  }
}

TEST_CASE("a procedure that is named keeps the recall that is asked for, by a calibration of its own") {
  const Floats rows(test_scale() > 1 ? 6000 : 12000, 16, 81, 0);  // a sanitizer makes builds slow
  const Floats queries(300, 16, 82, 0);
  const auto built = build_floats(rows, ANN_METRIC_L2, true);
  Snapshot snapshot;
  snapshot.segments.emplace_back(built.get(), [](const PlacedSegment*) {});
  for (const Procedure* procedure : procedures()) {
    if (!procedure->on_host || procedure->knob == Knob::kNone) continue;
    for (const uint32_t k : {1u, 10u, 40u}) {
      Answers truth(300, k);
      search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, queries.view(), {}), {},
                   truth.view(), {{}, 2, nullptr});
      uint64_t before = 0;
      for (const float recall : {0.9f, 0.99f}) {
        INFO(procedure->name << " k " << k << " recall " << recall);
        ann_search_params search = ANN_SEARCH_PARAMS_INIT;
        search.procedure = procedure->id;
        Answers found(300, k);
        SearchCounts counts;
        search_snapshot(snapshot, search, recall, ANN_DEVICE_CPU, {queries.view(), found.view(), nullptr, {}},
                        {{}, 2, nullptr}, &counts);
        REQUIRE(found.recall_against(truth) >= recall - 0.01);
        REQUIRE(counts.distances >= before);
        before = counts.distances;
      }
    }
  }
}

/// What search/slack.h tells, step by step, over the standard library's containers.
struct PlainSlackWalk {
  using Near = std::pair<uint32_t, uint32_t>;  // code distance, row

  const Segment& segment;
  const Admission& admission;
  uint32_t k;
  double slack;
  Array<uint8_t> code = Array<uint8_t>({}, segment.codes.walk_query_bytes());
  std::set<Near> list = {};
  std::set<Near> open = {};  // of the list, not expanded
  std::set<uint32_t> met = {};
  double bound = INFINITY;  // as a walk's distance, floats as they are
  size_t sure = SIZE_MAX;   // the list's first rows up to the last answer
  uint64_t distances = 0;
  uint64_t expansions = 0;
  std::span<const uint32_t> covering = {};

  double value(uint32_t distance) const {
    if (segment.codes.scaled() != nullptr) return out_of_order(distance);
    return segment.codes.wide() ? std::bit_cast<float>(distance) : distance;
  }
  std::vector<uint32_t> meet(const uint32_t* rows, uint32_t count) {
    std::vector<uint32_t> fresh;
    for (uint32_t i = 0; i < count && rows[i] != kNoRow; ++i) {
      if (met.insert(rows[i]).second && admission.walks(rows[i])) fresh.push_back(rows[i]);
    }
    return fresh;
  }
  /// Of covering heads only those within the bound are noted as met, so that `is_met` is false.
  void compare(const std::vector<uint32_t>& rows, bool is_met = true) {
    distances += rows.size();
    std::vector<uint32_t> found(rows.size());
    segment.codes.walk_distances(code.data(), rows.data(), static_cast<uint32_t>(rows.size()), found.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (value(found[i]) >= bound || (!is_met && meet(&rows[i], 1).empty())) continue;
      list.insert({found[i], rows[i]});
      open.insert({found[i], rows[i]});
    }
    while (list.size() > std::min(slack_list(k), segment.rows())) {
      open.erase(*std::prev(list.end()));
      list.erase(std::prev(list.end()));
    }
    uint32_t answers = 0;
    size_t place = 0;
    for (const Near& near : list) {
      ++place;
      answers += admission.answers(near.second) ? 1 : 0;
      if (answers < k) continue;
      sure = place;
      const double last = value(near.first);
      const double beyond = last + ((1 + slack) * (1 + slack) - 1) * std::fabs(last);
      const bool floats = segment.codes.wide() || segment.codes.scaled() != nullptr;
      bound = floats ? static_cast<float>(beyond) : std::floor(beyond);
      break;
    }
  }
  uint32_t next() {
    if (open.empty()) return kNoRow;
    const auto before = static_cast<size_t>(std::distance(list.begin(), list.find(*open.begin())));
    if (before >= sure && value(open.begin()->first) >= bound) return kNoRow;
    const uint32_t row = open.begin()->second;
    open.erase(open.begin());
    ++expansions;
    return row;
  }
  void walk(const PreparedQuery& query) {
    segment.codes.encode_walk_query(query, code.data());
    // Twice as many at once as before, up to so many as there are entry points, or edges of a row.
    const Array<uint32_t>& entries = segment.graph.entries;
    const size_t most = std::max<size_t>(segment.graph.degree, entries.size());
    std::span<const uint32_t> starts = covering;
    if (starts.empty()) starts = {entries.data(), entries.size()};
    for (size_t first = 0, some = std::min<size_t>(32, most); first < starts.size();
         first += some, some = std::min(2 * some, most)) {
      some = std::min(some, starts.size() - first);
      const auto chunk = starts.subspan(first, some);
      if (covering.empty())
        compare(meet(chunk.data(), static_cast<uint32_t>(some)));
      else
        compare({chunk.begin(), chunk.end()}, false);
    }
    std::vector<uint32_t> waiting;
    while (true) {
      const uint32_t row = next();
      if (row == kNoRow && waiting.empty()) return;
      std::vector<uint32_t> requested;
      if (row != kNoRow) {
        const AdjacencyRow edges = segment.graph.row(row);
        requested = meet(edges.targets, edges.length);
      }
      compare(waiting);
      waiting = requested;
    }
  }
  std::vector<uint64_t> answer(const PreparedQuery& query) {
    walk(query);
    std::vector<uint32_t> rows;
    size_t place = 0;
    for (const Near& near : list) {
      if (++place > sure && value(near.first) >= bound) break;
      if (admission.answers(near.second)) rows.push_back(near.second);
    }
    rows.resize(std::min<size_t>(rows.size(), rerank_count(k)));
    std::vector<float> stored(rows.size());
    segment.dataset.distances(query, rows.data(), 0, static_cast<uint32_t>(rows.size()), stored.data());
    if (!segment.codes.lossless()) distances += rows.size();
    std::vector<std::pair<float, uint64_t>> sorted;
    for (size_t i = 0; i < rows.size(); ++i) sorted.push_back({stored[i], rows[i]});
    std::sort(sorted.begin(), sorted.end());
    sorted.resize(std::min<size_t>(sorted.size(), k));
    std::vector<uint64_t> ids;
    for (const auto& near : sorted) ids.push_back(near.second);
    return ids;
  }
};

TEST_CASE("a walk with slack takes the steps that its essay tells, with rows removed and held out") {
  struct Case {
    uint32_t dim;  // 2: codes are floats
    int32_t metric;
    int32_t graph = ANN_GRAPH_AUTO;
  };
  RowSet some({}, 1500);
  for (uint32_t row = 0; row < 1500; row += 3) some.insert(row);
  for (const Case one : {Case{2, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2, ANN_GRAPH_GGNN},
                         {24, ANN_METRIC_L2, ANN_GRAPH_TSDG},
                         {24, ANN_METRIC_COSINE},
                         {24, ANN_METRIC_INNER_PRODUCT}}) {
    const Floats rows(1500, one.dim, 91, 1);
    const Floats queries(6, one.dim, 92, 1);
    const auto built = build_floats(rows, one.metric, false, one.graph);
    const Segment& segment = built->segment;
    REQUIRE(segment.codes.wide() == (one.dim == 2));
    REQUIRE((segment.codes.scaled() != nullptr) == (one.metric == ANN_METRIC_INNER_PRODUCT));
    const QueryBlock block(segment.dataset, queries.view(), {});
    for (const BatchAdmission admission : {BatchAdmission{}, BatchAdmission{some.view(), {}, nullptr},
                                           BatchAdmission{{}, some.view(), nullptr}}) {
      for (const uint32_t k : {1u, 10u, 200u}) {
        for (const float slack : {0.f, 0.05f, 0.5f}) {
          INFO("dim " << one.dim << " metric " << one.metric << " graph " << one.graph << " k " << k
                      << " slack " << slack);
          Answers found(6, k);
          SearchCounts counts;
          SearchBatch batch{queries.view(), found.view(), nullptr, {}};
          batch.admission = admission;
          kSlack.run_on_host(built->host, batch, TwoListsPlan{slack, 0, 1}, {{}, 2, nullptr}, &counts);
          SearchCounts plain;
          for (uint32_t query = 0; query < 6; ++query) {
            const Admission own = admission.of(query);
            PlainSlackWalk walk{segment, own, k, slack};
            std::vector<uint64_t> wanted = walk.answer(block[query]);
            wanted.resize(k, ANN_ID_NONE);
            REQUIRE(std::equal(wanted.begin(), wanted.end(), found.ids.begin() + query * k));
            plain.distances += walk.distances;
            plain.expansions += walk.expansions;
          }
          REQUIRE(counts.distances == plain.distances);
          REQUIRE(counts.expansions == plain.expansions);
        }
      }
    }
  }
}

TEST_CASE("a walk with slack starts at covering heads where its plan says so, whoever searched before") {
  Floats rows(12'000, 8, 91, 1);
  // Twenty copies of 600 rows: more heads than entry points.
  for (size_t i = 600 * 8; i < rows.values.size(); ++i) rows.values[i] = rows.values[i - 600 * 8];
  const Floats queries(20, 8, 92, 1);
  const auto built = build_floats(rows, ANN_METRIC_L2, false, ANN_GRAPH_AUTO, 8);
  const Array<uint32_t> heads = covering_heads(built->segment.graph, built->segment.codes, {});
  REQUIRE(!heads.empty());
  const QueryBlock block(built->segment.dataset, queries.view(), {});
  const auto search_at = [&](const HostPlacement& host, std::span<const uint32_t> covering) {
    Answers found(20, 10);
    SearchCounts counts;
    kSlack.run_on_host(host, {queries.view(), found.view(), nullptr, {}},
                       TwoListsPlan{0.1f, 0, 1, 0, false, covering}, {{}, 1, nullptr}, &counts);
    uint64_t distances = 0;
    for (uint32_t query = 0; query < 20; ++query) {
      const Admission all;
      PlainSlackWalk walk{built->segment, all, 10, 0.1f};
      walk.covering = covering;
      const std::vector<uint64_t> wanted = walk.answer(block[query]);
      REQUIRE(std::equal(wanted.begin(), wanted.end(), found.ids.begin() + query * 10));
      distances += walk.distances;
    }
    REQUIRE(counts.distances == distances);
    return distances;
  };
  const auto search = [&](std::span<const uint32_t> covering) { return search_at(built->host, covering); };
  const uint64_t plain = search({});
  REQUIRE(search({heads.data(), heads.size()}) != plain);
  REQUIRE(search({}) == plain);
  // As a forged file may have it: few entry points, and far more covering heads than a workspace holds at once.
  Array<uint32_t> few({}, 4);
  std::copy_n(built->segment.graph.entries.begin(), 4, few.begin());
  const_cast<PlacedSegment&>(*built).segment.graph.entries = std::move(few);
  std::vector<uint32_t> many(1000);
  for (uint32_t i = 0; i < many.size(); ++i) many[i] = 7 * i;
  const HostPlacement fresh{built->segment};
  search_at(fresh, many);
  // Others than those whose codes have been copied.
  search_at(fresh, std::span(many).first(500));
}

TEST_CASE("codes of covering heads are those of the rows, for these heads alone") {
  const std::vector<uint32_t> heads = {3, 4, 250, 511, 1000, 1999};
  const auto check = [&](const PlacedSegment& built, const MatrixView& queries) {
    const Codes& codes = built.segment.codes;
    CoveringCodes covering;
    REQUIRE(covering.bytes() == 0);
    const Codes* const copied = covering.of(heads, codes, Execution{});
    REQUIRE((copied != nullptr && covering.bytes() >= heads.size() * codes.stride()));
    REQUIRE(covering.of(std::span(heads).first(5), codes, Execution{}) == nullptr);
    REQUIRE(covering.of(heads, codes, Execution{}) == copied);
    const QueryBlock block(built.segment.dataset, queries, {});
    std::vector<uint8_t> code(codes.walk_query_bytes());
    const std::vector<uint32_t> places = {0, 1, 2, 3, 4, 5};
    std::vector<uint32_t> wanted(6), found(6);
    for (uint32_t query = 0; query < queries.rows; ++query) {
      codes.encode_walk_query(block[query], code.data());
      codes.walk_distances(code.data(), heads.data(), 6, wanted.data());
      copied->distances(code.data(), places.data(), 6, found.data());
      REQUIRE(found == wanted);
    }
  };
  for (const uint32_t dim : {2u, 24u}) {  // 2: codes are floats
    const Floats rows(2000, dim, 95, 1);
    const Floats queries(20, dim, 96, 1);
    const auto built = build_floats(rows, ANN_METRIC_L2, false);
    REQUIRE(built->segment.codes.wide() == (dim == 2));
    check(*built, queries.view());
  }
  const MadeData bytes(2000, 24, Shape::kUniform, 97);
  for (const int32_t element : {ANN_U8, ANN_I8}) {
    const MatrixView rows{bytes.bytes.data(), 2000, 24, element, 24};
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = 24;
    shape.metric = ANN_METRIC_L2;
    shape.element = element;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.calibrate = ANN_OFF;
    const auto built =
        build(shape, rows, nullptr, plan_build(params, shape, 2000, 2), nullptr, {{}, 2, nullptr});
    REQUIRE(built->segment.codes.flip() == (element == ANN_I8 ? 0x80 : 0));
    check(*built, {bytes.bytes.data(), 20, 24, element, 24});
  }
  // Rows with a scale each.
  const Floats rows(2000, 24, 98, 1);
  const auto product = build_floats(rows, ANN_METRIC_INNER_PRODUCT, false);
  CoveringCodes none;
  REQUIRE(none.of(heads, product->segment.codes, Execution{}) == nullptr);
}

TEST_CASE("a walk with slack reads whole rows, whoever searched before") {
  const Floats rows(1500, 24, 91, 1);
  const Floats queries(20, 24, 92, 1);
  const auto built = build_floats(rows, ANN_METRIC_L2, false, ANN_GRAPH_TSDG);
  Answers before(20, 10);
  Answers after(20, 10);
  const auto search = [&](Answers& answers) {
    SearchCounts counts;
    kSlack.run_on_host(built->host, {queries.view(), answers.view(), nullptr, {}}, TwoListsPlan{0.05f, 0, 1},
                       {{}, 1, nullptr}, &counts);
    return counts;
  };
  const SearchCounts wanted = search(before);
  SearchRequest request{ANN_SEARCH_PARAMS_INIT, 0.95f, 20, 10, 10};
  request.params.procedure = ANN_SEARCH_BEST_FIRST;
  request.params.occlusion_max = 1;  // the shortest prefixes
  Answers others(20, 10);
  SearchCounts counts;
  kBestFirst.run_on_host(built->host, {queries.view(), others.view(), nullptr, {}},
                         kBestFirst.plan({built->host}, request, {64, 0, 0}), {{}, 1, nullptr}, &counts);
  const SearchCounts found = search(after);
  REQUIRE(after.ids == before.ids);
  REQUIRE(found.distances == wanted.distances);
  REQUIRE(found.expansions == wanted.expansions);
}

TEST_CASE(
    "a walk with slack starts from groups of entry points where its plan says so, whoever searched before") {
  Floats rows(4000, 8, 91, 1);
  // Forty copies of 100 rows: more entry points than others.
  for (size_t i = 100 * 8; i < rows.values.size(); ++i) rows.values[i] = rows.values[i - 100 * 8];
  const Floats queries(20, 8, 92, 1);
  const auto built = build_floats(rows, ANN_METRIC_L2, false);
  const auto search = [&](bool from_groups) {
    Answers answers(20, 10);
    SearchCounts counts;
    kSlack.run_on_host(built->host, {queries.view(), answers.view(), nullptr, {}},
                       TwoListsPlan{0.05f, 0, 1, 0, from_groups}, {{}, 1, nullptr}, &counts);
    return counts.distances;
  };
  const auto search_by_list = [&](bool from_groups) {
    Answers answers(20, 10);
    SearchCounts counts;
    kBestFirst.run_on_host(built->host, {queries.view(), answers.view(), nullptr, {}},
                           BeamPlan{20, kWholeRows, kAllEdges, from_groups}, {{}, 1, nullptr}, &counts);
    return counts.distances;
  };
  const uint64_t all = search(false);
  const uint64_t groups = search(true);
  REQUIRE(groups < all);
  const uint64_t list = search_by_list(false);
  REQUIRE(search(false) == all);
  REQUIRE(search_by_list(true) < list);
  REQUIRE(search(false) == all);
  REQUIRE(search(true) == groups);
  REQUIRE(search_by_list(false) == list);
}

TEST_CASE("a walk with slack is the CPU's, and goes by a rule where nothing can be measured") {
  REQUIRE((kSlack.on_host && !kSlack.on_device));
  SearchRequest request;
  request.params = ANN_SEARCH_PARAMS_INIT;
  request.params.delta = 1.25f;
  REQUIRE(kSlack.given(request)->knob == 0.25);
  for (const auto& [recall, slack] : {std::pair{0.5f, 0.1}, {0.95f, 0.1}, {0.96f, 0.15}, {0.99f, 0.25}}) {
    request.recall = recall;
    REQUIRE(std::fabs(kSlack.unmeasured(request, 64).knob - slack) < 1e-9);
  }
}

TEST_CASE("with enough slack a walk finds what exact search finds") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kIslands, Shape::kAllEqual}) {
    const MadeData data(500, 12, shape, 13);
    ann_index_params shape_of_index = ANN_INDEX_PARAMS_INIT;
    shape_of_index.dim = 12;
    shape_of_index.metric = ANN_METRIC_L2;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.calibrate = ANN_OFF;
    const MatrixView rows = view_of(data.bytes, 12);
    const auto built =
        build(shape_of_index, rows, nullptr, plan_build(params, shape_of_index, 500, 2), nullptr, {});
    MatrixView queries = rows;
    queries.rows = 40;
    Answers truth(40, 10);
    search_exact(built->segment.dataset, QueryBlock(built->segment.dataset, queries, {}), {}, truth.view(),
                 {{}, 2, nullptr});
    Answers found(40, 10);
    SearchCounts counts;
    kSlack.run_on_host(built->host, {queries, found.view(), nullptr, {}}, TwoListsPlan{1e6f, 0, 1},
                       {{}, 2, nullptr}, &counts);
    REQUIRE(found.distances == truth.distances);
  }
}

TEST_CASE("the table of procedures has one row for each name of ann.h, and none for deprecated ones") {
  for (int32_t id = ANN_SEARCH_BEST_FIRST; id <= ANN_SEARCH_SLACK; ++id) {
    const Procedure* procedure = find_procedure(id);
    if (id == ANN_SEARCH_BLOCK || id == ANN_SEARCH_WIDE_BLOCK) {
      REQUIRE(procedure == nullptr);
      continue;
    }
    REQUIRE(procedure != nullptr);
    REQUIRE(procedure->id == id);
    REQUIRE(procedure->on_host == (procedure->run_on_host != nullptr));
    REQUIRE((procedure->on_host || procedure->on_device));
  }
  REQUIRE(procedures().size() == ANN_SEARCH_SLACK - 2);
  REQUIRE(find_procedure(ANN_SEARCH_AUTO) == nullptr);
}

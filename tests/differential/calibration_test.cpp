// What calibration rests on: one walk that tells of many beams, and edges past rows that stand for queries.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "../scale.h"
#include "catch.h"
#include "graph/bypass_edges.h"
#include "graph/bypass_rule.h"
#include "index/index.h"
#include "made_data.h"
#include "search/best_first.h"
#include "search/exact.h"
#include "search/slack.h"
#include "index/choose.h"
#include "index/reach.h"
#include "tune/device_calibration.h"
#include "tune/row_queries.h"
#include "tune/search_work.h"
#include "tune/trials.h"

using namespace gannet;

namespace {

/// Calibration needs some thousand rows, and a sanitizer takes minutes for more of them.
uint32_t fewer(uint32_t rows) { return test_scale() > 1 ? rows / 3 : rows; }

/// [rows, dim] floats, nearly normal.
std::vector<float> made_floats(uint32_t rows, uint32_t dim, uint64_t seed) {
  std::vector<float> values(size_t{rows} * dim);
  for (size_t i = 0; i < values.size(); ++i) {
    for (uint64_t part = 0; part < 4; ++part)
      values[i] += static_cast<float>(random_below(2001, seed, part, i)) / 1000 - 1;
  }
  return values;
}

/// Directions nearly evenly about the origin, at radii of about exp(2 N(0, 1)): neighbours of a row lie nearer to the
/// origin in all directions, and do not know each other.
std::vector<float> made_radii(uint32_t rows, uint32_t dim, uint64_t seed) {
  std::vector<float> values = made_floats(rows, dim, seed);
  const std::vector<float> exponents = made_floats(rows, 1, seed + 100);
  for (uint32_t row = 0; row < rows; ++row) {
    float* vector = values.data() + size_t{row} * dim;
    const float length = std::sqrt(std::inner_product(vector, vector + dim, vector, 0.0f));
    for (uint32_t column = 0; column < dim; ++column)
      vector[column] *= std::exp(1.73f * exponents[row]) / length;
  }
  return values;
}

MatrixView view_of_floats(const std::vector<float>& values, uint32_t dim) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() / dim, dim, ANN_F32,
          dim * sizeof(float)};
}

std::unique_ptr<const PlacedSegment> built_of(const MatrixView& rows, int32_t metric, int32_t calibrate,
                                              int32_t graph = ANN_GRAPH_AUTO) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = metric;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = calibrate;
  params.graph = graph;
  return build(shape, rows, nullptr, plan_build(params, shape, rows.rows, 2), nullptr, {{}, 2, nullptr});
}

template <class T>
Array<T> copy_of(const Array<T>& from) {
  Array<T> copy({}, from.size());
  std::copy(from.begin(), from.end(), copy.begin());
  return copy;
}

/// Rows or queries near points of which some have very many, the same or so near that only stored rows tell them apart.
std::vector<float> made_common(uint32_t rows, uint32_t dim, uint64_t seed) {
  constexpr uint32_t kPoints = 2000;
  const std::vector<float> points = made_floats(kPoints, dim, 1);
  std::vector<float> values = made_floats(rows, dim, seed);
  for (uint32_t row = 0; row < rows; ++row) {
    const double pick = static_cast<double>(random_below(1 << 20, seed, 9, row)) * 0x1p-20;
    const auto point = static_cast<uint32_t>(kPoints * std::pow(pick, 8));
    const bool is_same = random_below(2, seed, 10, row) == 0;
    for (uint32_t j = 0; j < dim; ++j) {
      float& value = values[size_t{row} * dim + j];
      value = points[size_t{point} * dim + j] + (is_same ? 0 : 1e-4f * value);
    }
  }
  return values;
}

}  // namespace

TEST_CASE("walks for a hundred answers tell how many of the first they find") {
  constexpr uint32_t kDim = 24, kQueries = 1000, kAnswers = 100;
  const std::vector<float> rows = made_common(fewer(20'000), kDim, 2);
  const std::vector<float> to_come = made_common(kQueries, kDim, 3);
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_OFF);
  const Segment& segment = built->segment;
  const Execution two{{}, 2, nullptr};
  const SearchTarget target{built->host, nullptr};
  const TwoListsPlan plan{0, 0, 1};

  const CalibrationQueries queries(target, kHostQueriesMax, two);
  const Sample sample(target, queries, kHostQueriesMax, kAnswers, two);
  Trials trials(target, sample, kAnswers, two);
  const Outcome of_all = trials.run(kSlack, plan);

  std::vector<uint64_t> ids(kQueries * kAnswers);
  std::vector<float> truth(ids.size()), found(ids.size());
  const QueryBlock block(segment.dataset, view_of_floats(to_come, kDim), two);
  search_exact(segment.dataset, block, {}, {kAnswers, ids.data(), truth.data(), nullptr, nullptr}, two);
  SearchCounts counts;
  const SearchBatch batch{view_of_floats(to_come, kDim),
                          {kAnswers, ids.data(), found.data(), nullptr, nullptr}};
  kSlack.run_on_host(built->host, batch, plan, two, &counts);
  for (const uint32_t answers : {1u, 10u, kAnswers}) {
    uint32_t hits = 0;
    for (uint32_t i = 0; i < kQueries * kAnswers; ++i)
      hits += i % kAnswers < answers && found[i] <= truth[i / kAnswers * kAnswers + answers - 1] ? 1 : 0;
    const double got = static_cast<double>(hits) / (kQueries * answers);
    const Outcome outcome = trials.first_of(answers);
    CAPTURE(answers, got, outcome.recall, outcome.error);
    REQUIRE(std::fabs(outcome.recall - got) <= 4 * outcome.error + 0.01);
  }
  REQUIRE(trials.first_of(kAnswers).recall == of_all.recall);
  REQUIRE(trials.first_of(1).recall < of_all.recall - 0.03);
}

TEST_CASE("true neighbours that a smaller sample knows are those that a larger one finds") {
  constexpr uint32_t kDim = 24;
  const std::vector<float> rows = made_common(fewer(20'000), kDim, 2);
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_OFF);
  const Execution two{{}, 2, nullptr};
  const SearchTarget target{built->host, nullptr};
  const CalibrationQueries queries(target, kHostQueriesMax, two);
  REQUIRE(queries.count() > 100);
  const Sample small(target, queries, 100, 20, two);
  for (const uint32_t count : {60u, 100u, queries.count()}) {
    const Sample with(target, queries, count, 10, two, &small);
    const Sample without(target, queries, count, 10, two);
    for (uint32_t query = 0; query < count; ++query) {
      for (uint32_t k = 1; k <= 10; ++k) REQUIRE(with.farthest(query, k) == without.farthest(query, k));
    }
  }
}

TEST_CASE("one walk finds at each beam what a walk with that beam finds") {
  struct Case {
    uint32_t dim;  // 2: codes are floats
    int32_t metric;
    int32_t graph = ANN_GRAPH_AUTO;
    bool has_heads = false;
  };
  constexpr BeamStop kStops[] = {{1, 1},   {8, 1},     {10, 10},   {11, 10},
                                 {40, 10}, {100, 100}, {700, 100}, {3000, 10}};
  for (const Case one : {Case{2, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2, ANN_GRAPH_TSDG},
                         {24, ANN_METRIC_COSINE},
                         {24, ANN_METRIC_INNER_PRODUCT},
                         {8, ANN_METRIC_L2, ANN_GRAPH_AUTO, true}}) {
    const uint32_t count = one.has_heads ? 4000 : 2000;
    RowSet some({}, count);
    for (uint32_t row = 0; row < count; row += 3) some.insert(row);
    std::vector<float> rows = made_floats(count, one.dim, 1);
    // Forty copies of 100 rows: short lists start from groups of entry points, and take other steps than longer ones.
    for (size_t i = 100 * one.dim; one.has_heads && i < rows.size(); ++i) rows[i] = rows[i - 100 * one.dim];
    const std::vector<float> queries = made_floats(20, one.dim, 2);
    const auto built = built_of(view_of_floats(rows, one.dim), one.metric, ANN_OFF, one.graph);
    const Segment& segment = built->segment;
    const QueryBlock block(segment.dataset, view_of_floats(queries, one.dim), {});
    SearchWorkspace workspace(segment.dataset, segment.codes, segment.graph, {});
    SearchWorkspace other(segment.dataset, segment.codes, segment.graph, {});
    workspace.from_groups = other.from_groups = true;
    REQUIRE(workspace.starts_from_groups(8) == one.has_heads);
    for (const Admission& admission : {Admission{}, Admission{{}, some.view(), 7}}) {
      for (uint32_t query = 0; query < 20; query += static_cast<uint32_t>(test_scale())) {
        size_t stops = 0;
        trace_best_first(
            segment.dataset, segment.codes, segment.graph, block[query], admission, kStops, workspace,
            [&](size_t stop, uint32_t compared, const SearchCounts&) {
              INFO("dim " << one.dim << " metric " << one.metric << " beam " << kStops[stop].beam);
              REQUIRE(stop == stops++);
              SearchCounts counts;
              REQUIRE(compared == compare_best_first(segment.dataset, segment.codes, segment.graph,
                                                     block[query], admission, kStops[stop].k,
                                                     kStops[stop].beam, other, &counts));
              REQUIRE(std::equal(workspace.distances.data(), workspace.distances.data() + compared,
                                 other.distances.data()));
              REQUIRE(std::equal(workspace.rows.data(), workspace.rows.data() + compared, other.rows.data()));
              return true;
            });
        REQUIRE(stops == std::size(kStops));
        trace_best_first(segment.dataset, segment.codes, segment.graph, block[query], admission, kStops,
                         workspace, [&](size_t stop, uint32_t, const SearchCounts&) {
                           stops -= 1;
                           return stop == 0;
                         });
        REQUIRE(stops == std::size(kStops) - 2);
      }
    }
  }
}

TEST_CASE("a walk by slack that stops once is the search, and one that stops often is near it") {
  struct Case {
    uint32_t dim;  // 2: codes are floats
    int32_t metric;
    int32_t graph = ANN_GRAPH_AUTO;
    bool from_groups = false;
  };
  RowSet some({}, 3000);
  for (uint32_t row = 0; row < 3000; row += 3) some.insert(row);
  for (const Case one : {Case{2, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2},
                         {24, ANN_METRIC_L2, ANN_GRAPH_TSDG},
                         {24, ANN_METRIC_COSINE},
                         {24, ANN_METRIC_L2, ANN_GRAPH_AUTO, true}}) {
    std::vector<float> rows = made_floats(3000, one.dim, 1);
    // Thirty copies of 100 rows.
    for (size_t i = 100 * one.dim; one.from_groups && i < rows.size(); ++i) rows[i] = rows[i - 100 * one.dim];
    const std::vector<float> queries = made_floats(40, one.dim, 2);
    const auto built = built_of(view_of_floats(rows, one.dim), one.metric, ANN_OFF, one.graph);
    const Segment& segment = built->segment;
    const QueryBlock block(segment.dataset, view_of_floats(queries, one.dim), {});
    SearchWorkspace workspace(segment.dataset, segment.codes, segment.graph, {});
    SearchWorkspace other(segment.dataset, segment.codes, segment.graph, {});
    workspace.from_groups = other.from_groups = one.from_groups;
    REQUIRE(workspace.entries.exist() == one.from_groups);
    uint64_t traced = 0;
    uint64_t alone = 0;
    for (const Admission& admission : {Admission{}, Admission{{}, some.view(), 7}}) {
      for (uint32_t query = 0; query < 40; query += static_cast<uint32_t>(test_scale())) {
        const auto search = [&](uint32_t k, float slack) {
          SearchCounts counts;
          const uint32_t found = search_with_slack(segment.dataset, segment.codes, segment.graph,
                                                   block[query], admission, k, slack, other, &counts);
          REQUIRE(found == k);
          return counts.expansions;
        };
        for (const uint32_t k : {1u, 10u, 100u}) {
          for (const float slack : {0.0f, 0.05f, 0.3f}) {
            SlackFront front{k, {&slack, 1}};
            uint32_t stops = 0;
            trace_with_slack(
                segment.dataset, segment.codes, segment.graph, block[query], admission, {&front, 1},
                workspace, [&](const SlackFront& at, uint32_t compared, const SearchCounts& counts) {
                  INFO("dim " << one.dim << " k " << k << " slack " << slack);
                  REQUIRE(at.slacks.front() == slack);
                  REQUIRE(compared >= k);
                  REQUIRE(counts.expansions == search(k, slack));
                  // The search has sorted what the trace leaves in the order of the list.
                  std::vector<float> mine(workspace.distances.data(), workspace.distances.data() + compared);
                  std::sort(mine.begin(), mine.end());
                  for (uint32_t i = 0; i < k; ++i) REQUIRE(mine[i] == other.neighbors[i].distance);
                  ++stops;
                  return true;
                });
            REQUIRE(stops == 1);
          }
        }
        SlackFront fronts[] = {{1, kSlacksTried}, {10, kSlacksTried}, {100, kSlacksTried}};
        size_t stops[3] = {};
        trace_with_slack(segment.dataset, segment.codes, segment.graph, block[query], admission, fronts,
                         workspace, [&](const SlackFront& at, uint32_t, const SearchCounts& counts) {
                           const size_t place = at.k == 1 ? 0 : at.k == 10 ? 1 : 2;
                           REQUIRE(at.slacks.front() == kSlacksTried[stops[place]++]);
                           traced += counts.expansions;
                           alone += search(at.k, at.slacks.front());
                           return at.k != 10 || stops[1] < 5;  // 10 answers are given up half-way
                         });
        REQUIRE(stops[0] == std::size(kSlacksTried));
        REQUIRE(stops[1] == 5);
        REQUIRE(stops[2] == std::size(kSlacksTried));
      }
    }
    REQUIRE(static_cast<double>(traced) == Approx(static_cast<double>(alone)).epsilon(0.02));
  }
}

TEST_CASE("AUTO takes what reaches the recall at the least counted work") {
  // Half of the rows lie near a space of four columns, where walks end early: a beam is too long for them.
  std::vector<float> rows = made_floats(fewer(30000), 24, 8);
  for (size_t i = 0; i < rows.size(); ++i)
    if (i / 24 % 2 == 0 && i % 24 >= 4) rows[i] *= 0.02f;
  const auto built = built_of(view_of_floats(rows, 24), ANN_METRIC_L2, ANN_ON);
  const Segment& segment = built->segment;
  const Calibration& calibration = built->calibration.known();
  REQUIRE(calibration.slack().count() == 3);
  uint32_t by_slack = 0;
  uint32_t by_all_rows[2] = {};
  for (const uint32_t k : {1u, 10u, 50u, 100u}) {
    for (const float recall : {0.5f, 0.8f, 0.95f, 0.99f, 0.999f, 1.0f}) {
      for (const uint64_t queries : {1, 4000}) {
        SearchRequest request{ANN_SEARCH_PARAMS_INIT, recall, queries, k, k};
        const Choice choice = choose(*built, nullptr, request, {});
        INFO("k " << k << " recall " << recall << " queries " << queries << " " << choice.procedure->name);
        const size_t row_bytes = segment.codes.walk_stride();
        const auto starts = static_cast<double>(segment.graph.entries.size());
        double least = exact_work(segment.dataset, queries, k);
        const Procedure* wanted = &kExact;
        const bool in_steps = !segment.graph.heads.empty();
        const double edges =
            static_cast<double>(calibration.edges_part(k, recall, in_steps, segment.graph.degree)) /
            kAllEdges;
        const double by_beam = walk_work(segment.graph, row_bytes, calibration.beam(k, recall) * edges);
        if (calibration.reaches(k, recall) && by_beam <= least) {
          least = by_beam;
          wanted = &kBestFirst;
        }
        const KnobCurves& slack = calibration.slack();
        if (slack.reaches(k, recall) &&
            slack_work(segment.graph, starts, row_bytes,
                       slack.cost(&KnobPoint::bound, k, slack.knob(k, recall))) <= least)
          wanted = &kSlack;
        REQUIRE(choice.procedure == wanted);
        REQUIRE(choice.effort.recall >= static_cast<double>(recall) - 0.0011);
        by_slack += wanted == &kSlack ? 1 : 0;
        by_all_rows[queries > 1] += wanted == &kExact ? 1 : 0;
        // A beam of the caller is one of BEST_FIRST's.
        request.params.beam = 2 * k;
        REQUIRE(choose(*built, nullptr, request, {}).procedure == &kBestFirst);
      }
    }
  }
  REQUIRE(by_slack > 0);
  REQUIRE(by_slack < 48);
  // Batches share the comparison of all rows.
  REQUIRE(by_all_rows[0] < by_all_rows[1]);
  // More answers than there are curves for.
  const SearchRequest many{ANN_SEARCH_PARAMS_INIT, 0.9f, 100, 101, 101};
  REQUIRE(choose(*built, nullptr, many, {}).procedure != &kSlack);
  // A search by name goes by the same curves.
  SearchRequest named{ANN_SEARCH_PARAMS_INIT, 0.95f, 100, 10, 10};
  named.params.procedure = ANN_SEARCH_SLACK;
  REQUIRE(choose(*built, nullptr, named, {}).effort.knob == calibration.slack().knob(10, 0.95f));
  // By inner product there are none, and only parts of the edges that were tried serve.
  rows.resize(size_t{5000} * 24);
  const auto product = built_of(view_of_floats(rows, 24), ANN_METRIC_INNER_PRODUCT, ANN_ON);
  REQUIRE_FALSE(product->calibration.known().empty());
  SearchRequest by_beam{ANN_SEARCH_PARAMS_INIT, 0.8f, 100, 100, 100};
  by_beam.params.procedure = ANN_SEARCH_BEST_FIRST;
  uint32_t parts = 0;
  for (; by_beam.recall < 0.99f; by_beam.recall += 0.002f) {
    const uint32_t part = std::get<BeamPlan>(choose(*product, nullptr, by_beam, {}).plan).edges_part;
    CAPTURE(by_beam.recall);
    REQUIRE(std::ranges::count(std::array{77u, 103u, 128u, 154u, 205u, kAllEdges}, part) == 1);
    parts += part < kAllEdges ? 1 : 0;
  }
  REQUIRE(parts > 0);
  REQUIRE(product->calibration.known().slack().empty());
}

TEST_CASE("edges past hidden rows lead to the nearest of theirs that a list could hold, and are put back") {
  constexpr uint32_t kRows = 3000;
  constexpr uint32_t kDim = 24;
  const MadeData data(kRows, kDim, Shape::kUniform, 5);
  for (const int32_t kind : {ANN_GRAPH_CAGRA, ANN_GRAPH_TSDG}) {
    const auto built = built_of(view_of(data.bytes, kDim), ANN_METRIC_L2, ANN_OFF, kind);
    SearchGraph graph;
    graph.rows = kRows;
    graph.degree = built->segment.graph.degree;
    graph.edges = copy_of(built->segment.graph.edges);
    graph.offsets = copy_of(built->segment.graph.offsets);
    const std::vector<uint32_t> before(graph.edges.begin(), graph.edges.end());
    const auto row_before = [&](uint32_t row) {
      const AdjacencyRow edges = graph.row(row);
      const auto first = before.begin() + (edges.targets - graph.edges.data());
      return std::vector<uint32_t>(first, first + edges.length);
    };
    RowSet hidden({}, kRows);
    for (uint32_t row = 3; row < kRows; row += 20) hidden.insert(row);
    uint32_t changed = 0;
    uint32_t unknown = 0;    // nearer rows to which fewer than two other neighbours lead
    uint32_t strangers = 0;  // edges that would go past hidden rows with more of the row's neighbours
    uint32_t later = 0;      // edges to hidden rows in second halves, which stay
    {
      const BypassEdges bypass(data.codes, graph, hidden.words().data(), {{}, 2, nullptr});
      for (uint32_t row = 0; row < kRows; ++row) {
        const AdjacencyRow now = graph.row(row);
        std::vector<uint32_t> own = row_before(row);
        std::map<uint32_t, uint32_t> known;  // by how many
        for (const uint32_t between : own) {
          if (between == kNoRow || hidden.holds(between)) continue;
          const std::vector<uint32_t> theirs = row_before(between);
          for (const uint32_t target : std::set<uint32_t>(theirs.begin(), theirs.end())) ++known[target];
        }
        uint32_t reach = 0;
        for (uint32_t place = 0; place < now.length / 2; ++place) {
          if (own[place] != kNoRow && !hidden.holds(own[place]))
            reach = std::max(reach, data.distance(row, own[place]));
        }
        for (uint32_t place = 0; place < now.length; ++place) {
          uint32_t wanted = own[place];
          const bool is_hidden = wanted != kNoRow && !hidden.holds(row) && hidden.holds(wanted);
          const bool is_later = place >= now.length / 2;
          later += is_hidden && is_later ? 1 : 0;
          if (is_hidden && !is_later) {
            const AdjacencyRow theirs = graph.row(own[place]);
            uint64_t nearest = UINT64_MAX;
            uint32_t shared = 0;
            for (const uint32_t target : theirs) {
              if (target == kNoRow || target == row || hidden.holds(target)) continue;
              const bool is_own = std::find(own.begin(), own.end(), target) != own.end();
              shared += is_own ? 1 : 0;
              if (is_own || data.distance(row, target) > reach) continue;
              unknown += known[target] < 2 ? 1 : 0;
              if (known[target] >= 2)
                nearest = std::min(nearest, uint64_t{data.distance(row, target)} << 32 | target);
            }
            const bool are_strangers = shared < BypassRule::shared_least(now.length);
            strangers += are_strangers && nearest != UINT64_MAX ? 1 : 0;
            if (nearest != UINT64_MAX && !are_strangers) wanted = static_cast<uint32_t>(nearest);
          }
          REQUIRE(now.targets[place] == wanted);
          changed += own[place] != wanted ? 1 : 0;
          own[place] = wanted;
        }
      }
    }
    REQUIRE(changed > kRows / 4);
    REQUIRE(unknown > 0);
    REQUIRE(strangers > 0);
    REQUIRE(later > 0);
    REQUIRE(std::equal(before.begin(), before.end(), graph.edges.begin(), graph.edges.end()));
  }
}

TEST_CASE("walks find the rows of a graph, or too many are missed") {
  const Execution two{{}, 2, nullptr};
  for (const uint32_t rows : {2u, 3u, 299u, 4001u}) {
    const MadeData data(rows, 12, Shape::kClusters, 7);
    const auto built = built_of(view_of(data.bytes, 12), ANN_METRIC_L2, ANN_OFF);
    const Segment& segment = built->segment;
    CAPTURE(rows);
    REQUIRE(walks_find_rows(segment, kRowsPerMissOnHost, two));
    REQUIRE(walks_find_rows(segment, kRowsPerMissOnDevice, two));
    // Without edges walks find the rows where they start, and copies of these.
    SearchGraph& graph = const_cast<SearchGraph&>(segment.graph);
    std::fill(graph.edges.begin(), graph.edges.end(), kNoRow);
    const bool starts_everywhere = graph.entries.size() == rows;
    REQUIRE(starts_everywhere == (rows < 64));
    REQUIRE(walks_find_rows(segment, kRowsPerMissOnHost, two) == starts_everywhere);
    REQUIRE(walks_find_rows(segment, kRowsPerMissOnDevice, two) == starts_everywhere);
  }
}

TEST_CASE("rows beside which walks come want no long edges, those of which walks see nothing do") {
  const Execution two{{}, 2, nullptr};
  const MadeData data(4000, 8, Shape::kUniform, 7);
  const auto built = built_of(view_of(data.bytes, 8), ANN_METRIC_L2, ANN_OFF);
  SearchGraph& graph = const_cast<SearchGraph&>(built->segment.graph);
  // No edge leads to one row in ten, though each leads to its neighbours.
  const auto is_hard = [](uint32_t row) { return row % 10 == 3; };
  std::replace_if(
      graph.edges.begin(), graph.edges.end(), [&](uint32_t row) { return row != kNoRow && is_hard(row); },
      kNoRow);
  REQUIRE(walks_find_rows(built->segment, kRowsPerMissOnHost, two));
  for (uint32_t row = 0; row < graph.rows; ++row) {
    if (is_hard(row)) std::fill_n(graph.edges.data() + size_t{row} * graph.degree, graph.degree, kNoRow);
  }
  REQUIRE_FALSE(walks_find_rows(built->segment, kRowsPerMissOnHost, two));
  REQUIRE_FALSE(walks_find_rows(built->segment, kRowsPerMissOnDevice, two));
}

namespace {

bool are_equal(const KnobCurves& a, const KnobCurves& b) {
  bool equal = a.count() == b.count();
  for (uint32_t c = 0; equal && c < a.count(); ++c) {
    equal = a[c].k == b[c].k && a[c].count == b[c].count;
    for (uint32_t i = 0; equal && i < a[c].count; ++i)
      equal = a[c].points[i].knob == b[c].points[i].knob && a[c].points[i].recall == b[c].points[i].recall;
  }
  return equal;
}

}  // namespace

TEST_CASE("a postponed calibration is measured by the first call that is not cancelled, for all") {
  const MadeData data(4000, 12, Shape::kClusters, 6);
  const auto built = built_of(view_of(data.bytes, 12), ANN_METRIC_L2, ANN_OFF);
  const Segment& segment = built->segment;
  HostCalibration postponed;
  REQUIRE_FALSE(postponed.exists());
  postponed.postpone();
  REQUIRE((postponed.exists() && !postponed.is_known()));
  Monitor cancelled;
  cancelled.cancel();
  REQUIRE_THROWS(postponed.get(segment, {{}, 2, &cancelled}));
  REQUIRE_FALSE(postponed.is_known());
  std::vector<std::thread> callers;
  for (uint32_t i = 0; i < 4; ++i) callers.emplace_back([&] { postponed.get(segment, {{}, 2, nullptr}); });
  for (std::thread& caller : callers) caller.join();
  REQUIRE(postponed.is_known());
  Calibration measured;
  measured.measure(segment, {{}, 1, nullptr});
  REQUIRE_FALSE(measured.empty());
  REQUIRE(&postponed.get(segment, {}) == &postponed.known());
  for (const uint32_t k : {1u, 10u, 100u}) {
    for (const float recall : {0.8f, 0.95f, 0.99f})
      REQUIRE(postponed.known().beam(k, recall) == measured.beam(k, recall));
  }
}

TEST_CASE("a postponed calibration is that of the build") {
  const MadeData data(26000, 12, Shape::kClusters, 6);  // of fewer none are hidden
  const auto built = built_of(view_of(data.bytes, 12), ANN_METRIC_L2, ANN_ON);
  const Segment& segment = built->segment;
  const std::vector<uint32_t> edges(segment.graph.edges.begin(), segment.graph.edges.end());
  HostCalibration postponed;
  postponed.postpone();
  const Calibration& measured = postponed.get(segment, {{}, 2, nullptr});
  const Calibration& own = built->calibration.known();
  REQUIRE(are_equal(measured.curves(), own.curves()));
  REQUIRE(are_equal(measured.slack(), own.slack()));
  REQUIRE(std::equal(edges.begin(), edges.end(), segment.graph.edges.begin()));
  // Without memory for a copy of the edges rows are masked.
  const size_t whole = segment.graph.edges.bytes();
  const Allocator short_of_memory{
      [](void* user, size_t bytes, size_t alignment) -> void* {
        return bytes == *static_cast<size_t*>(user) ? nullptr : std::aligned_alloc(alignment, bytes);
      },
      [](void*, void* memory, size_t, size_t) { std::free(memory); }, const_cast<size_t*>(&whole)};
  Calibration masked;
  masked.measure(segment, {short_of_memory, 2, nullptr});
  REQUIRE_FALSE(masked.empty());
  REQUIRE_FALSE(are_equal(masked.curves(), own.curves()));
  // Likewise where the copy leaves too little for the walks.
  struct Budget {
    std::atomic<int64_t> left;
    std::atomic<int64_t> least;
  } budget{INT64_MAX / 2, INT64_MAX};
  const Allocator counted{[](void* user, size_t bytes, size_t alignment) -> void* {
                            auto& budget = *static_cast<Budget*>(user);
                            const int64_t left = budget.left -= static_cast<int64_t>(bytes);
                            if (left < budget.least) budget.least = left;
                            if (left >= 0) return std::aligned_alloc(alignment, bytes);
                            budget.left += static_cast<int64_t>(bytes);
                            return nullptr;
                          },
                          [](void* user, void* memory, size_t bytes, size_t) {
                            static_cast<Budget*>(user)->left += static_cast<int64_t>(bytes);
                            std::free(memory);
                          },
                          &budget};
  Calibration ample;
  ample.measure(segment, {counted, 2, nullptr});
  REQUIRE(are_equal(ample.curves(), own.curves()));
  REQUIRE(budget.left == INT64_MAX / 2);
  const int64_t most = budget.left - budget.least;
  budget.left = most - static_cast<int64_t>(whole / 2);
  Calibration after_copy;
  after_copy.measure(segment, {counted, 2, nullptr});
  REQUIRE(are_equal(after_copy.curves(), masked.curves()));
  REQUIRE(are_equal(after_copy.slack(), masked.slack()));
  budget.left = 4096;
  REQUIRE_THROWS(Calibration().measure(segment, {counted, 2, nullptr}));
}

TEST_CASE("between a list and a part of the shortest one's edges lies the shortest list") {
  KnobCurves curves;
  const auto add = [&](uint32_t k, std::initializer_list<KnobPoint> points) {
    KnobCurve& curve = curves.add(k);
    for (const KnobPoint& point : points) curve.points[curve.count++] = point;
  };
  add(1, {{4, 0.9}, {8, 0.95}, {20, 0.99}});
  add(10, {{7, 0.85}, {12, 0.95}, {40, 0.99}});
  add(100, {{30, 0.95}, {100, 0.98}, {120, 0.99}});
  for (uint32_t k = 11; k < 100; ++k) {
    CAPTURE(k);
    REQUIRE(curves.knob(k, 0.95) > k);
    REQUIRE(curves.knob(k, 0.84) < k);
    REQUIRE(curves.recall(k, k) < 0.95);
  }
  REQUIRE(curves.knob(3, 0.95) >= 8);
  REQUIRE(curves.knob(3, 0.84) < 8);
  for (const uint32_t k : {1u, 3u, 10u, 15u, 50u, 100u}) {
    double before = 0;
    for (double recall = 0.8; recall < 0.995; recall += 0.001) {
      const double knob = curves.knob(k, recall);
      REQUIRE(knob >= before);
      REQUIRE(curves.recall(k, knob * 1.0001) >= std::min(recall, 0.99) - 1e-4);
      before = knob;
    }
  }
}

TEST_CASE("a slack between two curves goes by the larger one's walks") {
  KnobCurves curves(KnobScale::kSlack);
  const auto add = [&](uint32_t k, std::initializer_list<KnobPoint> points) {
    KnobCurve& curve = curves.add(k);
    for (const KnobPoint& point : points) curve.points[curve.count++] = point;
  };
  add(1, {{0.02, 0.9}, {0.06, 0.99}});
  add(10, {{0.01, 0.9}, {0.1, 0.99}});
  for (const auto& [k, wanted] : {std::pair{1u, 0.06}, {2u, 0.1}, {9u, 0.1}, {10u, 0.1}, {11u, 0.1}}) {
    CAPTURE(k);
    REQUIRE(curves.knob_most(k, 0.99) == wanted);
    REQUIRE(curves.knob(k, 0.99) <= wanted);
  }
  REQUIRE(curves.knob_most(5, 0.9) == 0.02);
}

TEST_CASE("calibration leaves the graph as it was") {
  const MadeData data(12000, 12, Shape::kClusters, 6);
  const auto plain = built_of(view_of(data.bytes, 12), ANN_METRIC_L2, ANN_OFF);
  const auto calibrated = built_of(view_of(data.bytes, 12), ANN_METRIC_L2, ANN_ON);
  REQUIRE_FALSE(calibrated->calibration.known().empty());
  const Array<uint32_t>& edges = calibrated->segment.graph.edges;
  REQUIRE(std::equal(edges.begin(), edges.end(), plain->segment.graph.edges.begin()));
}

namespace {

/// Queries on an index with their true k nearest, for the recall of BEST_FIRST.
class GroundTruth {
 public:
  GroundTruth(const PlacedSegment& built, const MatrixView& queries, uint32_t k)
      : built_(built), queries_(queries), k_(k), ids_(queries.rows * k), distances_(ids_.size()) {
    const Dataset& dataset = built.segment.dataset;
    search_exact(dataset, QueryBlock(dataset, queries, {}), {}, results(), {{}, 2, nullptr});
    for (size_t query = 0; query < queries.rows; ++query) farthest_.push_back(distances_[query * k + k - 1]);
  }

  double recall_of(const SearchPlan& plan, SearchCounts* counts) {
    kBestFirst.run_on_host(built_.host, {queries_, results(), nullptr, {}}, plan, {{}, 2, nullptr}, counts);
    uint64_t hits = 0;
    for (size_t i = 0; i < ids_.size(); ++i) hits += distances_[i] <= farthest_[i / k_] ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(ids_.size());
  }

 private:
  ResultsView results() { return {k_, ids_.data(), distances_.data(), nullptr, nullptr}; }

  const PlacedSegment& built_;
  MatrixView queries_;
  uint32_t k_;
  std::vector<uint64_t> ids_;
  std::vector<float> distances_;
  std::vector<float> farthest_;
};

}  // namespace

TEST_CASE("a recall is asked for at little more than the beam that gets it") {
  constexpr uint32_t kDim = 24;
  constexpr uint32_t kQueries = 1000;
  const std::vector<float> rows = made_floats(52000, kDim, 8);  // enough for 1,024 hidden ones
  const std::vector<float> values = made_floats(kQueries, kDim, 9);
  const MatrixView queries = view_of_floats(values, kDim);
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_ON);
  for (const uint32_t k : {1u, 10u}) {
    GroundTruth truth(*built, queries, k);
    const auto recall_of = [&](uint32_t beam) {
      SearchCounts counts;
      return truth.recall_of(BeamPlan{beam}, &counts);
    };
    for (const float recall : {0.9f, 0.95f, 0.99f}) {
      const uint32_t beam = built->calibration.known().beam(k, recall);
      INFO("k " << k << " recall " << recall << " beam " << beam);
      REQUIRE(recall_of(beam) >= recall - 0.01);
      // Masked rows instead of hidden ones asked for 1.2 to 1.5 times the beam. A sample leaves more doubt of one answer.
      const uint32_t least = k == 1 ? beam * 2 / 3 : beam * 4 / 5;
      REQUIRE(recall_of(least) < recall + 0.002);
    }
  }
}

TEST_CASE("rows whose neighbours do not know each other promise no more than queries find") {
  constexpr uint32_t kDim = 32;
  constexpr uint32_t kQueries = 2000;
  const std::vector<float> rows = made_radii(fewer(90000), kDim, 12);
  const std::vector<float> values = made_radii(kQueries, kDim, 13);
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_ON);
  GroundTruth truth(*built, view_of_floats(values, kDim), 10);
  for (const float recall : {0.8f, 0.9f, 0.95f}) {
    SearchCounts counts;
    const double got = truth.recall_of(BeamPlan{built->calibration.known().beam(10, recall)}, &counts);
    CAPTURE(recall);
    REQUIRE(got >= recall - 0.01);
  }
}

TEST_CASE("what the shortest beam finds more of than is asked for takes fewer edges of a row") {
  constexpr uint32_t kDim = 8;
  constexpr uint32_t kQueries = 1000;
  const std::vector<float> rows = made_floats(fewer(30000), kDim, 10);
  const std::vector<float> values = made_floats(kQueries, kDim, 11);
  const MatrixView queries = view_of_floats(values, kDim);
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_ON);
  const KnobCurves& curves = built->calibration.known().curves();
  for (uint32_t c = 0; c < curves.count(); ++c) {
    for (uint32_t at = 0; at < curves[c].count; ++at) {
      INFO("k " << curves[c].k << " knob " << curves[c].points[at].knob);
      REQUIRE(curves[c].points[at].knob == std::floor(curves[c].points[at].knob));  // as files hold it
      REQUIRE((at == 0 || curves[c].points[at].knob > curves[c].points[at - 1].knob));
    }
  }
  for (const uint32_t k : {1u, 10u, 40u, 100u}) {
    GroundTruth truth(*built, queries, k);
    SearchRequest request;
    request.params = ANN_SEARCH_PARAMS_INIT;
    request.params.procedure = ANN_SEARCH_BEST_FIRST;
    request.queries = kQueries;
    request.k = request.k_asked = k;
    uint64_t most = 0;
    const auto search = [&](float recall) {
      request.recall = recall;
      const Choice choice = choose(*built, nullptr, request, {});
      SearchCounts counts;
      const double got = truth.recall_of(choice.plan, &counts);
      INFO("k " << k << " recall " << recall << " got " << got);
      REQUIRE(got >= recall - 0.01);
      REQUIRE(choice.effort.recall >= recall - 1e-4);
      REQUIRE(counts.distances >= most);
      most = counts.distances;
      return choice;
    };
    const BeamPlan least = std::get<BeamPlan>(search(0.8f).plan);
    INFO("k " << k);
    REQUIRE(least.beam == std::max(k, 8u));
    REQUIRE(least.edges_part < kAllEdges);
    const uint64_t of_least = most;
    search(0.85f);
    search(0.9f);
    search(0.95f);
    REQUIRE(std::get<BeamPlan>(search(0.997f).plan).edges_part == kAllEdges);
    REQUIRE(of_least < most);
    // A beam of the caller's reads all edges, and so does a bound on factors.
    request.recall = 0.8f;
    request.params.beam = k;
    REQUIRE(std::get<BeamPlan>(choose(*built, nullptr, request, {}).plan).edges_part == kAllEdges);
    request.params.beam = 0;
    request.params.occlusion_max = 5;
    REQUIRE(std::get<BeamPlan>(choose(*built, nullptr, request, {}).plan).edges_part == kAllEdges);
  }
}

TEST_CASE("between two parts of the edges that were tried lies one in proportion, of whole edges") {
  constexpr uint32_t kDegree = 64;
  const std::vector<float> rows = made_floats(fewer(30000), 8, 10);
  const auto built = built_of(view_of_floats(rows, 8), ANN_METRIC_L2, ANN_ON);
  const Calibration& calibration = built->calibration.known();
  const auto part_of = [](uint32_t tenths) { return (kAllEdges * tenths + 9) / 10; };
  uint32_t between = 0;
  for (uint32_t place = 0; place < 3; ++place) {
    const KnobCurve& curve = calibration.curves()[place];
    const auto knob_of = [&](uint32_t tenths) {
      return static_cast<double>((std::max(curve.k, 8u) * tenths + 9) / 10);
    };
    std::vector<uint32_t> tried;  // tenths, of those with the same knob the largest
    for (const uint32_t tenths : {10u, 8u, 6u, 5u, 4u, 3u})
      if (tried.empty() || knob_of(tenths) != knob_of(tried.front())) tried.insert(tried.begin(), tenths);
    for (float recall = 0.8f; recall < 0.99f; recall += 0.001f) {
      const double knob = curve.knob(recall);
      const uint32_t part = calibration.edges_part(curve.k, recall, false, kDegree);
      const uint32_t part_in_steps = calibration.edges_part(curve.k, recall, true, kDegree);
      const uint32_t edges = edges_read(kDegree, part);
      CAPTURE(curve.k, recall, knob);
      const auto above =
          std::ranges::find_if(tried, [&](uint32_t tenths) { return knob_of(tenths) >= knob; });
      REQUIRE(part_in_steps == (above == tried.end() ? kAllEdges : part_of(*above)));
      REQUIRE(part <= part_in_steps);
      if (above == tried.end() || knob == knob_of(*above) || above == tried.begin()) {
        REQUIRE(part == part_in_steps);
        continue;
      }
      const uint32_t from = edges_read(kDegree, part_of(above[-1]));
      const uint32_t to = edges_read(kDegree, part_of(*above));
      const double share = (knob - knob_of(above[-1])) / (knob_of(*above) - knob_of(above[-1]));
      REQUIRE(edges >= from + share * (to - from) - 1e-6);
      REQUIRE(edges <= from + share * (to - from) + 1);
      REQUIRE(calibration.recall_of_part(curve.k, part) <= curve.recall(knob_of(*above)));
      if (*above < 10)
        REQUIRE(calibration.recall_of_part(curve.k, part_of(*above)) == curve.recall(knob_of(*above)));
      ++between;
    }
  }
  REQUIRE(between > 20);
}

TEST_CASE("a part of the edges for numbers of answers between two curves is the larger of theirs") {
  const std::vector<float> rows = made_floats(fewer(30000), 8, 10);
  const auto built = built_of(view_of_floats(rows, 8), ANN_METRIC_L2, ANN_ON);
  const Calibration& calibration = built->calibration.known();
  for (const uint32_t degree : {32u, 48u, 64u, 96u}) {
    for (const uint32_t k : {2u, 8u, 9u, 11u, 14u, 16u, 18u, 40u, 95u, 99u}) {
      uint32_t before[4] = {};
      for (float recall = 0.8f; recall < 0.99f; recall += 0.003f) {
        CAPTURE(degree, k, recall);
        const uint32_t low = k < 10 ? 1 : 10;
        const uint32_t high = 10 * low;
        for (const bool in_steps : {false, true}) {
          const uint32_t part = calibration.edges_part(k, recall, in_steps, degree);
          REQUIRE(part == std::max(calibration.edges_part(low, recall, in_steps, degree),
                                   calibration.edges_part(high, recall, in_steps, degree)));
          REQUIRE(calibration.recall_of_part(k, part) <= calibration.recall_of_part(low, part));
          REQUIRE(calibration.recall_of_part(k, part) <= calibration.recall_of_part(high, part));
        }
        // More recall reads no fewer edges, of rows that are shorter than others neither.
        const uint32_t part = calibration.edges_part(k, recall, false, degree);
        const uint32_t lengths[4] = {degree, degree - 1, 2 * degree / 3, 5};
        for (uint32_t i = 0; i < 4; ++i) {
          REQUIRE(edges_read(lengths[i], part) >= before[i]);
          before[i] = edges_read(lengths[i], part);
        }
      }
    }
  }
}

TEST_CASE("a part of a row's edges is rounded up") {
  REQUIRE(edges_read(32, kAllEdges) == 32);
  REQUIRE(edges_read(32, 64) == 8);
  REQUIRE(edges_read(33, 64) == 9);
  REQUIRE(edges_read(1, 1) == 1);
  REQUIRE(edges_read(0, 64) == 0);
}

TEST_CASE("rows of few copies each, too many to be hidden, promise nothing") {
  constexpr uint32_t kRows = 500, kCopies = 10, kDim = 24;
  const std::vector<float> codes = made_floats(kRows / kCopies, kDim, 1);
  std::vector<float> rows;
  for (uint32_t copy = 0; copy < kCopies; ++copy) rows.insert(rows.end(), codes.begin(), codes.end());
  const auto built = built_of(view_of_floats(rows, kDim), ANN_METRIC_L2, ANN_ON);
  const Execution two{{}, 2, nullptr};
  REQUIRE(!built->curves(two).reaches(10, 0.5f));
  REQUIRE(!built->curves(two).slack().reaches(10, 0.5f));
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  const Choice choice = choose(*built, nullptr, {params, 0.8f, 100, 10, 10}, two);
  REQUIRE(choice.procedure == &kExact);
  // Beams that a caller names, or asks for by procedure, are walked.
  params.procedure = ANN_SEARCH_BEST_FIRST;
  REQUIRE(choose(*built, nullptr, {params, 0.8f, 100, 10, 10}, two).procedure == &kBestFirst);
}

TEST_CASE("where a device's recall rises in a step, its upper end is taken") {
  DeviceCalibration::Curve curve;
  curve.k = 10;
  curve.count = 3;
  curve.points[0] = {0.72, -0.02, 4096, 10};
  curve.points[1] = {0.72, -0.0005, 4096, 12};
  curve.points[2] = {0.88, 0, 4096, 12};
  for (const double recall : {0.73, 0.8, 0.88}) {
    DeviceCalibration::Point point;
    REQUIRE(curve.find(recall, 0, &point));
    REQUIRE((point.slack == 0 && point.recall == 0.88));
  }

  // Of many points some give way to feet, and all slacks are those of points.
  DeviceCalibration::Curve steps;
  steps.k = 10;
  steps.count = DeviceCalibration::kPoints - 4;
  for (uint32_t i = 0; i < steps.count; ++i)
    steps.points[i] = {1 - 0.9 * std::pow(0.7, i), -0.1 + 0.01 * i, 4096, 10.0 + i};
  const DeviceCalibration::Curve before = steps;
  steps.make_steps();
  REQUIRE((steps.count > DeviceCalibration::kPoints / 2 && steps.count <= DeviceCalibration::kPoints));
  for (uint32_t i = 1; i < steps.count; ++i) {
    REQUIRE(steps.points[i].slack > steps.points[i - 1].slack);
    REQUIRE(steps.points[i].recall >= steps.points[i - 1].recall);
  }
  REQUIRE(steps.points[steps.count - 1].recall == before.points[before.count - 1].recall);
  for (double recall = 0.05; recall < before.points[before.count - 1].recall; recall += 0.003) {
    DeviceCalibration::Point found;
    REQUIRE(steps.find(recall, 0, &found));
    const auto* const end = before.points + before.count;
    const auto* at = std::find_if(before.points, end, [&](const auto& p) { return p.slack == found.slack; });
    CAPTURE(recall, found.slack, found.recall);
    REQUIRE((at != end && at->recall == found.recall && found.recall >= recall));
  }
}

namespace {

/// Groups of rows one after another, each row with edges to four of its group.
SearchGraph ring_of_groups(uint32_t rows, uint32_t of_group) {
  constexpr uint32_t kSteps[] = {1, 3, 9, 20};
  SearchGraph graph;
  graph.rows = rows;
  graph.degree = std::size(kSteps);
  graph.make_fixed({});
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < graph.degree; ++i)
      graph.edges[row * graph.degree + i] = row - row % of_group + (row + kSteps[i]) % of_group;
  }
  return graph;
}

}  // namespace

TEST_CASE("rows of floats that were rounded stand for queries that are not") {
  constexpr uint32_t kRows = 40, kDim = 7;
  std::vector<float> rows = made_floats(kRows, kDim, 5);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 5 == 0 ? 0 : rows[i] * (i % 3 == 0 ? 1e-7f : 300);
  const Execution one;
  Array<uint32_t> numbers({}, kRows / 2);
  for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = 2 * i;
  const SearchGraph graph = ring_of_groups(kRows, kRows);
  for (const int32_t element : {ANN_F32, ANN_F16, ANN_BF16}) {
    const Dataset dataset(view_of_floats(rows, kDim), nullptr, ANN_METRIC_L2, element, false, one);
    const CopiedRows rows_as_queries = copy_as_queries(dataset, graph, numbers, 9, one);
    const Array<uint8_t>& copied = rows_as_queries.values;
    REQUIRE(!rows_as_queries.are_crowded);
    REQUIRE(query_element(element) == ANN_F32);
    REQUIRE(copied.size() == numbers.size() * kDim * sizeof(float));
    uint32_t moved = 0;
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      for (uint32_t j = 0; j < kDim; ++j) {
        const float value = element_to_float(copied.data() + size_t{i} * kDim * sizeof(float), ANN_F32, j);
        const float stored = element_to_float(dataset.row(numbers[i]), element, j);
        CAPTURE(element, stored, value);
        moved += value != stored ? 1 : 0;
        REQUIRE((stored != 0 || value == 0));
        if (element == ANN_F32) continue;
        // Rounded it is the row again, but for values next to a power of two, below which the grid is finer.
        const float again =
            element == ANN_F16 ? float_of_f16(f16_of_float(value)) : float_of_bf16(bf16_of_float(value));
        REQUIRE(std::fabs(again - stored) <= std::fabs(stored) * (element == ANN_F16 ? 0x1p-11f : 0x1p-8f));
      }
    }
    REQUIRE((element == ANN_F32 ? moved == 0 : moved > numbers.size() * kDim / 2));
  }
  REQUIRE((query_element(ANN_I8) == ANN_I8 && query_element(ANN_U8) == ANN_U8));
}

TEST_CASE(
    "rows that were near before they were rounded stand for queries at the bounds between their places") {
  constexpr uint32_t kOfGroup = 64, kRows = 20 * kOfGroup, kDim = 16;
  const SearchGraph graph = ring_of_groups(kRows, kOfGroup);
  Array<uint32_t> numbers({}, kRows);
  for (uint32_t i = 0; i < kRows; ++i) numbers[i] = i;
  for (const int32_t element : {ANN_F16, ANN_BF16}) {
    // All values are from 1 to 2, where units are the same, and rows of a group a tenth of a unit apart.
    const float unit = element == ANN_F16 ? 0x1p-10f : 0x1p-7f;
    std::vector<float> rows = made_floats(kRows, kDim, 6);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto centre = static_cast<float>(random_below(1 << 20, 7, i / (kOfGroup * kDim), i % kDim));
      rows[i] = 1.1f + 0.8f * centre * 0x1p-20f + 0.1f * unit * rows[i];
    }
    const Dataset dataset(view_of_floats(rows, kDim), nullptr, ANN_METRIC_L2, element, false, {});
    const CopiedRows rows_as_queries = copy_as_queries(dataset, graph, numbers, 9, {});
    const Array<uint8_t>& copied = rows_as_queries.values;
    REQUIRE(rows_as_queries.are_crowded);
    REQUIRE(std::equal(copied.begin(), copied.end(),
                       copy_as_queries(dataset, graph, numbers, 9, {{}, 3, nullptr}).values.begin()));
    const auto* const moved = reinterpret_cast<const float*>(copied.data());
    const auto stored = [&](uint32_t row, uint32_t column) {
      return element_to_float(dataset.row(row), element, column);
    };
    // In units, from bounds that some of a group are beyond, and from values that all of a group have.
    double were = 0, are = 0, are_alone = 0, farthest = 0;
    uint32_t crossed = 0, alone = 0;
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t j = 0; j < kDim; ++j) {
        const float own = stored(row, j);
        float bound = 0;
        for (uint32_t i = 0; i < kOfGroup; ++i) {
          const float other = stored(row - row % kOfGroup + i, j);
          if (other != own) bound = (own + other) / 2;
        }
        const size_t at = size_t{row} * kDim + j;
        const double from_own = std::fabs(moved[at] - own) / unit;
        farthest = std::max(farthest, from_own);
        if (bound != 0) {
          were += std::fabs(rows[at] - bound) / unit;
          are += std::fabs(moved[at] - bound) / unit;
          ++crossed;
        } else {
          are_alone += from_own;
          ++alone;
        }
      }
    }
    REQUIRE((crossed > kRows && alone > kRows));
    CAPTURE(element, were / crossed, are / crossed, are_alone / alone);
    REQUIRE(farthest < 0.501);
    // Anywhere within their places they would be half a unit from bounds.
    REQUIRE(were / crossed < 0.2);
    REQUIRE((are > 0.75 * were && are < 1.33 * were));
    REQUIRE((are_alone > 0.2 * alone && are_alone < 0.3 * alone));
  }
}

// Figures of GGNN's paper that compare sets and starts rather than efforts.
//
//   ggnn_sets ROWS QUERIES [cpu] WHAT...     .u8bin files; on the first CUDA device unless "cpu" is said
//
//   sizes=N,N,...   figure 7: of the first N rows the seconds of a build, and answers a second and recall with slacks that
//                   stay; then the exponent with which seconds grow with N
//   starts=N        table 8: over GGNN's graph of the first N rows, made on the CPU, searches that start from its top layer,
//                   from the row next to the centroid, and from the one farthest from it: recall and distances
//   parts=N         table 9: the rows as four indexes, whose answers are merged by distance, in the order of the file and
//                   shuffled N times: the mean recall and its deviation
//
// 10 neighbours. Graphs have 24 edges. A call is timed by a clock around it, host to host, the best of three. An answer
// counts as found if it is no farther than the tenth true neighbour. Ends with 77 where a device is wanted and there is
// none.

#include <ann.h>

#include <cmath>
#include <numeric>
#include <random>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "ggnn_answers.h"
#include "graph/ggnn.h"
#include "search/ggnn.h"

namespace {

using namespace gannet;
using namespace gannet::test;

constexpr uint32_t kNeighbors = 10;
constexpr uint32_t kParts = 4;

struct Figures {
  Rows rows;
  Rows queries;
  int32_t device;

  ann_search_params exact() const {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = device;
    return params;
  }
  ann_search_params walk(float tau) const {
    ann_search_params params = exact();
    params.procedure = ANN_SEARCH_GGNN;
    params.stretch = 1 + tau;
    return params;
  }
  ann_build_params graph(uint64_t seed = 1) const {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = ANN_GRAPH_GGNN;
    params.calibrate = ANN_OFF;
    params.device = device;
    params.seed = seed;
    return params;
  }

  void sizes(const std::vector<uint32_t>& counts) const;
  void starts(uint32_t count) const;
  void parts(uint32_t turns) const;
};

/// The slope of a line through the points, by least squares.
double slope(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double above = 0;
  double below = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    above += (x[i] - mean_x) * (y[i] - mean_y);
    below += (x[i] - mean_x) * (x[i] - mean_x);
  }
  return above / below;
}

void Figures::sizes(const std::vector<uint32_t>& counts) const {
  std::vector<double> logs;
  std::vector<double> log_seconds;
  for (const uint32_t count : counts) {
    if (count > rows.rows) {
      std::printf("figure 7: %u rows: the file has %u\n", count, rows.rows);
      continue;
    }
    const Rows some = first_of(rows, count);
    double seconds = 1e9;
    std::unique_ptr<Index> index;
    for (uint32_t turn = 0; turn < 2; ++turn) {
      index.reset();
      const double spent = milliseconds_of([&] { index = std::make_unique<Index>(some, graph(), nullptr); });
      seconds = std::min(seconds, spent / 1e3);
    }
    logs.push_back(std::log(static_cast<double>(count)));
    log_seconds.push_back(std::log(seconds));
    std::printf("figure 7: %u rows built in %.3f s\n", count, seconds);
    const Answers truth = answers_of(index->index, queries, kNeighbors, exact(), true);
    for (const float tau : {0.08f, 0.12f}) {
      Answers found;
      double best = 1e9;
      for (uint32_t turn = 0; turn < 3; ++turn)
        best = std::min(
            best, milliseconds_of([&] { found = answers_of(index->index, queries, kNeighbors, walk(tau)); }));
      std::printf("  tau %.2f: recall@10 %.4f, %.4g M queries/s, %.0f distances\n", static_cast<double>(tau),
                  recall_of(found, truth, kNeighbors, kNeighbors), queries.rows / best / 1e3,
                  static_cast<double>(found.distance_count) / queries.rows);
    }
    std::fflush(stdout);
  }
  if (logs.size() > 1)
    std::printf("figure 7: seconds grow with the power %.3f of the rows\n", slope(logs, log_seconds));
}

/// The row next to the centroid, and the one farthest from it.
std::pair<uint32_t, uint32_t> around_centroid(const Rows& rows) {
  std::vector<double> centroid(rows.dim);
  for (uint32_t row = 0; row < rows.rows; ++row) {
    for (uint32_t column = 0; column < rows.dim; ++column)
      centroid[column] += rows.bytes[row * rows.stride + column];
  }
  for (double& value : centroid) value /= rows.rows;
  std::pair<uint32_t, uint32_t> found;
  double nearest = INFINITY;
  double farthest = -1;
  for (uint32_t row = 0; row < rows.rows; ++row) {
    double square = 0;
    for (uint32_t column = 0; column < rows.dim; ++column) {
      const double apart = rows.bytes[row * rows.stride + column] - centroid[column];
      square += apart * apart;
    }
    if (square < nearest) nearest = square, found.first = row;
    if (square > farthest) farthest = square, found.second = row;
  }
  return found;
}

/// A set of bytes with its graph, in the library's own types, since no call of the interface says where searches start.
struct Walked {
  Dataset dataset;
  Codes codes;
  SearchGraph graph;

  explicit Walked(const Rows& rows)
      : dataset({rows.bytes.data(), rows.rows, rows.dim, rows.element, rows.stride}, nullptr, ANN_METRIC_L2,
                0, true, {}),
        codes(dataset, 1, {}) {
    graph.rows = rows.rows;
    graph.degree = GgnnParams().k;
    graph.kind = ANN_GRAPH_GGNN;
    build_ggnn(codes, {}, graph, {{}, std::max(1u, std::thread::hardware_concurrency()), nullptr});
  }

  void search(const char* from, const Rows& queries, const Answers& truth, float tau) const {
    GgnnPlan plan;
    plan.slack = {tau, graph.nearest_max, false};
    plan.iterations_max = 400;
    plan.kept = kNeighbors;
    GgnnSpace space(dataset, codes, {});
    std::vector<uint8_t> values(dataset.query_bytes());
    SearchCounts counts;
    uint64_t hits = 0;
    for (uint32_t i = 0; i < queries.rows; ++i) {
      PreparedQuery query;
      dataset.prepare(queries.bytes.data() + i * queries.stride, queries.element, values.data(), &query);
      const uint32_t found = search_ggnn(dataset, codes, graph, query, {}, kNeighbors, plan, space, &counts);
      for (uint32_t place = 0; place < found; ++place)
        hits += space.neighbors[place].distance <= truth.distances[i * kNeighbors + kNeighbors - 1] ? 1 : 0;
    }
    std::printf("  tau %.2f from %s: recall@10 %.4f, %.0f distances, %.1f expansions\n",
                static_cast<double>(tau), from, static_cast<double>(hits) / kNeighbors / queries.rows,
                static_cast<double>(counts.distances) / queries.rows,
                static_cast<double>(counts.expansions) / queries.rows);
  }

  void start_at(uint32_t row) {
    graph.entries = Array<uint32_t>({}, 1);
    graph.entries[0] = row;
  }
};

void Figures::starts(uint32_t count) const {
  const Rows some = first_of(rows, std::min(count, rows.rows));
  ann_build_params plain = ANN_BUILD_PARAMS_INIT;
  plain.graph = ANN_GRAPH_NONE;
  const Index all(some, plain, nullptr);
  const Answers truth = answers_of(all.index, queries, kNeighbors, exact(), true);
  Walked walked(some);
  const auto [next, farthest] = around_centroid(some);
  std::printf("table 8: %u rows\n", some.rows);
  const auto search = [&](const char* from) {
    for (const float tau : {0.08f, 0.12f, 0.15f}) walked.search(from, queries, truth, tau);
  };
  search("the top layer");
  walked.start_at(next);
  search("the centroid");
  walked.start_at(farthest);
  search("the row farthest from it");
}

/// The nearer ones of two sorted answers for each query.
void merge_into(Answers& all, const Answers& part) {
  for (size_t first = 0; first < all.distances.size(); first += kNeighbors) {
    std::vector<float> both(all.distances.begin() + static_cast<ptrdiff_t>(first),
                            all.distances.begin() + static_cast<ptrdiff_t>(first + kNeighbors));
    both.insert(both.end(), part.distances.begin() + static_cast<ptrdiff_t>(first),
                part.distances.begin() + static_cast<ptrdiff_t>(first + kNeighbors));
    std::sort(both.begin(), both.end());
    std::copy_n(both.begin(), kNeighbors, all.distances.begin() + static_cast<ptrdiff_t>(first));
  }
}

Rows shuffled(const Rows& rows, uint64_t seed) {
  std::vector<uint32_t> order(rows.rows);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  Rows out = first_of(rows, rows.rows);
  for (uint32_t row = 0; row < rows.rows; ++row)
    std::memcpy(out.bytes.data() + row * rows.stride, rows.bytes.data() + order[row] * rows.stride,
                rows.stride);
  return out;
}

void Figures::parts(uint32_t turns) const {
  ann_build_params plain = ANN_BUILD_PARAMS_INIT;
  plain.graph = ANN_GRAPH_NONE;
  const Index all(rows, plain, nullptr);
  const Answers truth = answers_of(all.index, queries, kNeighbors, exact(), true);
  const std::vector<float> taus = {0.12f, 0.15f};
  const auto recalls = [&](const Rows& set, uint64_t seed) {
    std::vector<Answers> merged(taus.size());
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint64_t begin = uint64_t{set.rows} * part / kParts;
      const uint64_t end = uint64_t{set.rows} * (part + 1) / kParts;
      Rows some = first_of(set, static_cast<uint32_t>(end - begin));
      std::memcpy(some.bytes.data(), set.bytes.data() + begin * set.stride, (end - begin) * set.stride);
      const Index index(some, graph(seed), nullptr);
      for (size_t i = 0; i < taus.size(); ++i) {
        Answers found = answers_of(index.index, queries, kNeighbors, walk(taus[i]));
        if (part == 0)
          merged[i] = std::move(found);
        else
          merge_into(merged[i], found);
      }
    }
    std::vector<double> shares;
    for (const Answers& found : merged) shares.push_back(recall_of(found, truth, kNeighbors, kNeighbors));
    return shares;
  };
  const std::vector<double> constant = recalls(rows, 1);
  std::vector<std::vector<double>> got(taus.size());
  for (uint32_t turn = 0; turn < turns; ++turn) {
    const std::vector<double> shares = recalls(shuffled(rows, turn + 1), turn + 1);
    for (size_t i = 0; i < taus.size(); ++i) got[i].push_back(shares[i]);
  }
  for (size_t i = 0; i < taus.size(); ++i) {
    const double mean = std::accumulate(got[i].begin(), got[i].end(), 0.0) / turns;
    double square = 0;
    for (const double share : got[i]) square += (share - mean) * (share - mean);
    std::printf(
        "table 9: %u rows in %u parts, tau %.2f: recall@10 %.4f in the order of the file; shuffled %u times "
        "%.4f, deviation %.1e\n",
        rows.rows, kParts, static_cast<double>(taus[i]), constant[i], turns, mean,
        turns > 1 ? std::sqrt(square / (turns - 1)) : 0);
  }
}

std::vector<uint32_t> numbers_of(const std::string& text) {
  std::vector<uint32_t> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    numbers.push_back(static_cast<uint32_t>(std::stoul(word)));
  return numbers;
}

void make(const Figures& figures, const std::string& what) {
  const size_t sign = what.find('=');
  expect(sign != std::string::npos, what + " is not known");
  const std::vector<uint32_t> numbers = numbers_of(what.substr(sign + 1));
  expect(!numbers.empty() && numbers[0] > 0, what + " has no number");
  if (what.starts_with("sizes="))
    figures.sizes(numbers);
  else if (what.starts_with("starts="))
    figures.starts(numbers[0]);
  else if (what.starts_with("parts="))
    figures.parts(numbers[0]);
  else
    expect(false, what + " is not known");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  const bool on_cpu = std::string(arguments[3]) == "cpu";
  const char* reason = "";
  if (!on_cpu && cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  try {
    const Figures figures = {read_vectors(arguments[1], UINT32_MAX), read_vectors(arguments[2], UINT32_MAX),
                             on_cpu ? ANN_DEVICE_CPU : ANN_DEVICE_CUDA};
    for (int i = on_cpu ? 4 : 3; i < count; ++i) make(figures, arguments[i]);
  } catch (const Failure& failure) {
    std::printf("FAILS: %s\n", failure.what.c_str());
    return 1;
  }
  return 0;
}

// Claims about CAGRA's searches on a CUDA device, made through the C interface: they give what their twin
// on the CPU gives, bit for bit and count for count, whatever the schedule; reported distances are exact;
// an answer depends on the query alone; recall is what a beam of that length should find.
//
//   cagra_cuda_test                all claims
//   cagra_cuda_test quick          fewer and smaller cases, for compute-sanitizer
//   cagra_cuda_test race           a handful, for its racecheck, which is slow
//   cagra_cuda_test TEXT           claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <ann.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "answers.h"
#include "claims.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
uint64_t answers_compared = 0;

struct Case {
  int32_t element = ANN_U8;
  int32_t metric = ANN_METRIC_L2;
  uint32_t rows = 2000;
  uint32_t queries = 40;
  uint32_t dim = 32;
  uint32_t k = 10;
  uint32_t degree = 16;
  Values values = Values::kClusters;
  bool ids = false;

  std::string name() const {
    return std::string(element_name(element)) + " " + metric_name(metric) + ", " + std::to_string(rows) +
           " rows x " + std::to_string(dim) + ", k " + std::to_string(k) + ", degree " +
           std::to_string(degree) + ", values " + std::to_string(static_cast<int>(values));
  }
};

ann_search_params params_of(int32_t procedure, uint32_t beam = 64) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.beam = beam;
  return params;
}

std::string name_of(const ann_search_params& params) {
  char text[200];
  std::snprintf(text, sizeof text,
                "; procedure %d, beam %u, width %u, iterations %u, bits %u, reset %d, team %u, CTAs %u, "
                "compare %d",
                params.procedure, params.beam, params.search_width, params.iterations_max, params.hash_bits,
                params.hash_reset, params.team_size, params.ctas_per_query, params.compare);
  return text;
}

/// A built index with its queries.
struct Prepared {
  Case c;
  Rows rows;
  Rows queries;
  ann_index* index = nullptr;

  explicit Prepared(const Case& given, const uint32_t* knn = nullptr, uint32_t knn_degree = 0)
      : c(given),
        rows(c.element, c.rows, c.dim, c.values, c.dim),
        queries(c.element, c.queries, c.dim, c.values == Values::kEqual ? Values::kNormal : c.values,
                c.dim + 1) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = c.dim;
    shape.metric = c.metric;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, c.name());
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = c.degree;
    params.calibrate = ANN_OFF;
    if (knn != nullptr) {
      params.knn = ANN_KNN_GIVEN;
      params.knn_graph = knn;
      params.knn_degree = knn_degree;
      params.repair = ANN_OFF;
    }
    std::vector<uint64_t> ids;
    for (uint64_t row = 0; c.ids && row < c.rows; ++row) ids.push_back((c.rows - row) * 1'000'003);
    const ann_matrix matrix = matrix_of(rows, 0, c.rows);
    expect_ok(ann_build(index, &matrix, ids.empty() ? nullptr : ids.data(), &params, nullptr, &error), error,
              c.name());
  }
  ~Prepared() { ann_index_free(index); }
  Prepared(const Prepared&) = delete;

  Answers search(ann_search_params params, int32_t device, uint64_t first = 0, uint64_t count = UINT64_MAX,
                 bool exact = false, uint32_t k_given = 0) const {
    const uint32_t k = k_given != 0 ? k_given : c.k;
    count = std::min<uint64_t>(count, c.queries - first);
    params.device = device;
    Answers answers;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ask(index, matrix_of(queries, first, count), k, params, exact, &answers, &error), error,
              c.name() + name_of(params));
    return answers;
  }

  Answers exact(uint32_t k) const {
    return search(params_of(ANN_SEARCH_AUTO, 0), ANN_DEVICE_CPU, 0, UINT64_MAX, true, k);
  }

  /// Share of the answers that are no farther than the k-th true neighbour.
  double recall(const Answers& found, const Answers& truth) const {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < found.ids.size(); ++i)
      hits += found.distances[i] <= truth.distances[i / c.k * c.k + c.k - 1] ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(found.ids.size());
  }
};

/// The device's answers, which are its twin's.
Answers compare_with_twin(const Prepared& data, const ann_search_params& params) {
  const Answers device = data.search(params, ANN_DEVICE_CUDA);
  const Answers twin = data.search(params, ANN_DEVICE_CPU);
  const std::string name = data.c.name() + name_of(params);
  expect(device.counts == twin.counts && device.status == twin.status, name + ": counts and status");
  for (uint64_t i = 0; i < twin.ids.size(); ++i)
    expect(device.same(twin, i, i),
           name + ": query " + std::to_string(i / data.c.k) + ", place " + std::to_string(i % data.c.k) +
               ": id " + std::to_string(device.ids[i]) + " at " + std::to_string(device.distances[i]) +
               ", twin " + std::to_string(twin.ids[i]) + " at " + std::to_string(twin.distances[i]));
  expect(device.distance_count == twin.distance_count && device.expansion_count == twin.expansion_count,
         name + ": " + std::to_string(device.distance_count) + " distances, twin " +
             std::to_string(twin.distance_count) + "; " + std::to_string(device.expansion_count) +
             " expansions, twin " + std::to_string(twin.expansion_count));
  answers_compared += twin.ids.size();
  return device;
}

/// Distances are those of exact search, in order, and no id stands there twice.
void check_exact(const Prepared& data, const Answers& answers) {
  const uint32_t n = data.c.rows;
  const Answers all = data.exact(n);
  for (uint64_t query = 0; query < data.c.queries; ++query) {
    std::map<uint64_t, float> known;
    for (uint64_t i = query * n; i < (query + 1) * n; ++i) known[all.ids[i]] = all.distances[i];
    std::pair<float, uint64_t> last = {-INFINITY, 0};
    for (uint64_t i = query * data.c.k; i < query * data.c.k + answers.counts[query]; ++i) {
      const auto found = known.find(answers.ids[i]);
      expect(found != known.end() && std::memcmp(&found->second, &answers.distances[i], sizeof(float)) == 0,
             data.c.name() + ": a reported distance");
      const std::pair<float, uint64_t> here = {answers.distances[i], answers.ids[i]};
      expect(last < here, data.c.name() + ": order of answers");
      last = here;
    }
  }
}

constexpr int32_t kProcedures[] = {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA};

/// Both procedures, by codes and, of floats, as stored.
void compare(const Case& c, uint32_t team = 0) {
  const Prepared data(c);
  const uint32_t beam = std::max(64u, c.k);
  for (const int32_t procedure : kProcedures) {
    for (const int32_t compared : {ANN_COMPARE_CODES, ANN_COMPARE_STORED}) {
      if (compared == ANN_COMPARE_STORED && !is_float_element(c.element)) continue;
      ann_search_params params = params_of(procedure, beam);
      params.compare = compared;
      params.team_size = team;
      const Answers answers = compare_with_twin(data, params);
      if (c.rows > 0 && c.queries > 0) check_exact(data, answers);
    }
  }
}

void claim_elements() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      Case c;
      c.element = element;
      c.metric = metric;
      c.rows = quick ? 300 : 2000;
      c.queries = quick ? 3 : 40;
      compare(c);
      c.ids = true;
      c.dim = 70;
      compare(c, 4);
    }
  }
}

void claim_dims() {
  constexpr uint32_t kTeams[] = {2, 4, 8, 16, 32};
  uint32_t turn = 0;
  const auto at = [&](uint32_t dim) {
    Case c;
    c.dim = dim;
    c.rows = 200;
    c.queries = 5;
    c.element = dim % 3 == 0 ? ANN_I8 : ANN_U8;
    compare(c, kTeams[turn % 5]);
    c.element = kElements[turn % 3];
    c.metric = kMetrics[turn / 3 % 3];
    compare(c, kTeams[turn / 2 % 5]);
    ++turn;
  };
  for (uint32_t dim = 1; dim <= 300; dim += quick ? 37 : 1) at(dim);
  for (const uint32_t dim : {384u, 768u, 960u, 1024u, 1536u, 4096u}) {
    if (quick && dim > 768) break;
    for (uint32_t i = 0; i < (quick ? 1u : 15u); ++i) at(dim);
  }
}

void claim_teams() {
  for (const int32_t element : {ANN_U8, ANN_F32, ANN_F16, ANN_BF16}) {
    for (const uint32_t dim : {3u, 64u, 100u, 128u, 260u}) {
      Case c;
      c.element = element;
      c.dim = dim;
      c.rows = quick ? 200 : 1000;
      c.queries = quick ? 2 : 20;
      const Prepared data(c);
      ann_search_params params = params_of(ANN_SEARCH_CAGRA_SINGLE_CTA);
      params.compare = ANN_COMPARE_STORED;
      Answers first;
      for (const uint32_t team : {2u, 4u, 8u, 16u, 32u}) {
        params.team_size = team;
        const Answers answers = compare_with_twin(data, params);
        if (team == 2) first = answers;
        expect(answers.ids == first.ids, c.name() + ": answers of another team");
      }
    }
  }
}

void claim_sizes() {
  for (const uint32_t rows : {0u,  1u,  2u,  3u,   15u,  16u,  17u,  31u,  32u,   33u,
                              63u, 64u, 65u, 127u, 129u, 255u, 257u, 500u, 1000u, 5000u}) {
    if (quick && rows > 300) break;
    for (const uint32_t k : {1u, 10u, 64u, 100u}) {
      Case c;
      c.rows = rows;
      c.k = k;
      c.queries = 7;
      c.element = k == 10 ? ANN_F32 : ANN_U8;
      compare(c);
    }
  }
}

void claim_beams() {
  Case c;
  c.rows = quick ? 1000 : 6000;
  c.queries = quick ? 2 : 20;
  c.dim = 24;
  const Prepared data(c);
  for (const uint32_t beam :
       {10u, 31u, 32u, 33u, 64u, 65u, 100u, 128u, 200u, 256u, 300u, 512u, 513u, 700u, 1024u, 1500u, 1984u}) {
    for (const uint32_t width : {1u, 2u, 3u, 8u, 33u, 64u}) {
      if (quick && (beam % 32 != 0 || width == 2)) continue;
      ann_search_params params = params_of(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
      params.search_width = width;
      compare_with_twin(data, params);
    }
    for (const uint32_t ctas : {0u, 1u, 2u, 3u, 7u, 20u, 64u}) {
      if (ctas != 0 && beam > 512 * ctas) continue;
      ann_search_params params = params_of(ANN_SEARCH_CAGRA_MULTI_CTA, beam);
      params.ctas_per_query = ctas;
      compare_with_twin(data, params);
    }
  }
}

void claim_tables() {
  Case c;
  c.rows = quick ? 1000 : 6000;
  c.queries = quick ? 2 : 30;
  const Prepared data(c);
  for (const uint32_t width : {1u, 4u}) {
    for (const uint32_t beam : {32u, 128u, 600u}) {
      ann_search_params params = params_of(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
      params.search_width = width;
      params.hash_reset = ANN_NONE;
      const Answers standard = compare_with_twin(data, params);
      for (const int32_t reset : {0, 1, 2, 3, 4, 16}) {
        for (const uint32_t bits : {0u, 8u, 10u, 13u}) {
          const uint32_t fullest = beam + static_cast<uint32_t>(std::max(reset, 1)) * width * c.degree;
          if (8 * fullest > 7 * (1u << (bits == 0 ? 13 : bits))) continue;
          params.hash_reset = reset;
          params.hash_bits = bits;
          const Answers answers = compare_with_twin(data, params);
          expect(answers.ids == standard.ids && answers.expansion_count == standard.expansion_count,
                 "a table that forgets changes no answer");
          expect(answers.distance_count >= standard.distance_count, "nor saves it distances");
        }
      }
    }
  }
  for (const int32_t procedure : kProcedures) {
    for (const uint32_t iterations : {1u, 2u, 10u, 1000u}) {
      ann_search_params params = params_of(procedure);
      params.iterations_max = iterations;
      compare_with_twin(data, params);
    }
  }
}

void claim_degrees() {
  for (const uint32_t degree : {2u, 3u, 16u, 31u, 32u, 33u, 64u, 100u, 128u, 256u}) {
    if (quick && degree > 64) break;
    Case c;
    c.degree = degree;
    c.rows = quick ? 400 : 1500;
    c.queries = quick ? 2 : 20;
    compare(c);
    const Prepared data(c);
    ann_search_params params = params_of(ANN_SEARCH_CAGRA_SINGLE_CTA, 100);
    params.search_width = std::min(8u, 2048 / degree);
    compare_with_twin(data, params);
  }
}

void claim_k() {
  for (const uint32_t k : {1u, 2u, 16u, 31u, 32u, 64u, 100u, 300u, 1000u, 1984u}) {
    if (quick && k > 100) break;
    for (const int32_t element : {ANN_F32, ANN_U8}) {
      Case c;
      c.element = element;
      c.k = k;
      c.rows = quick ? 500 : 3000;
      c.queries = quick ? 2 : 8;
      compare(c);
    }
  }
}

void claim_values() {
  for (const Values values : {Values::kDuplicates, Values::kEqual, Values::kGrid}) {
    for (const int32_t element : {ANN_F32, ANN_U8}) {
      for (const uint32_t dim : {2u, 32u}) {
        Case c;
        c.values = values;
        c.element = element;
        c.dim = dim;
        c.rows = quick ? 200 : 1000;
        c.queries = quick ? 2 : 20;
        compare(c);
      }
    }
  }
}

void claim_batches() {
  const uint32_t most = quick ? 100 : 10'000;
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    Case c;
    c.element = element;
    c.rows = quick ? 500 : 20'000;
    c.queries = most;
    const Prepared data(c);
    for (const int32_t procedure : kProcedures) {
      for (const int32_t reset : {0, ANN_NONE}) {
        ann_search_params params = params_of(procedure);
        params.hash_reset = reset;
        const Answers all = data.search(params, ANN_DEVICE_CUDA);
        for (const uint64_t size : {1ull, 7ull, 100ull, 1000ull}) {
          if (size > most) continue;
          for (const uint64_t first : {uint64_t{0}, uint64_t{most / 3}, uint64_t{most - size}}) {
            const Answers part = data.search(params, ANN_DEVICE_CUDA, first, size);
            for (uint64_t i = 0; i < part.ids.size(); ++i)
              expect(part.same(all, i, first * c.k + i),
                     "a batch of " + std::to_string(size) + " from " + std::to_string(first));
          }
        }
        const Answers again = data.search(params, ANN_DEVICE_CUDA);
        expect(again.ids == all.ids && again.distance_count == all.distance_count,
               "a second search of the whole batch");
      }
    }
  }
}

void claim_recall() {
  for (const int32_t metric : kMetrics) {
    for (const int32_t element : {ANN_U8, ANN_F16}) {
      Case c;
      c.element = element;
      c.metric = metric;
      c.rows = 20'000;
      c.queries = 500;
      c.degree = 32;
      c.values = Values::kNormal;
      c.dim = 16;
      const Prepared data(c);
      const Answers truth = data.exact(c.k);
      for (const int32_t procedure : kProcedures) {
        double last = 0;
        for (const uint32_t beam : {32u, 64u, 256u, 1024u}) {
          const Answers answers = data.search(params_of(procedure, beam), ANN_DEVICE_CUDA);
          const double got = data.recall(answers, truth);
          std::printf("  %s, procedure %d, beam %u: recall %.4f, %.0f distances a query\n", c.name().c_str(),
                      procedure, beam, got, static_cast<double>(answers.distance_count) / c.queries);
          expect(got >= last - 0.005, c.name() + ": a longer beam finds more");
          last = got;
        }
        expect(last >= 0.99, c.name() + ": recall of a long beam is " + std::to_string(last));
      }
    }
  }
}

/// Figure 7: small batches and long beams go to several CTAs.
void claim_rule() {
  Case c;
  c.queries = 50;
  const Prepared data(c);
  const auto as = [&](ann_search_params params, int32_t procedure) {
    const Answers by_rule = data.search(params, ANN_DEVICE_CUDA);
    const Answers on_cpu = data.search(params, ANN_DEVICE_CPU);
    params.procedure = procedure;
    const Answers named = data.search(params, ANN_DEVICE_CUDA);
    const Answers other = data.search(
        params_of(procedure ^ ANN_SEARCH_CAGRA_SINGLE_CTA ^ ANN_SEARCH_CAGRA_MULTI_CTA, params.beam),
        ANN_DEVICE_CUDA);
    expect(by_rule.distance_count == named.distance_count && by_rule.ids == named.ids,
           "the procedure of the rule");
    expect(by_rule.distance_count != other.distance_count, "which is not the other one");
    return on_cpu.distance_count == named.distance_count;
  };
  ann_search_params params = params_of(ANN_SEARCH_CAGRA, 64);
  as(params, ANN_SEARCH_CAGRA_MULTI_CTA);  // 50 queries, on a device of more multiprocessors
  params.batch_threshold = 50;
  expect(as(params, ANN_SEARCH_CAGRA_SINGLE_CTA), "also on the CPU");
  params.batch_threshold = 51;
  expect(as(params, ANN_SEARCH_CAGRA_MULTI_CTA), "also on the CPU");
  params.batch_threshold = 1;
  params.beam_threshold = 63;
  expect(as(params, ANN_SEARCH_CAGRA_MULTI_CTA), "also on the CPU");
  params.beam_threshold = 0;
  params.beam = 600;
  expect(as(params, ANN_SEARCH_CAGRA_MULTI_CTA), "also on the CPU");
  params.beam = 512;
  expect(as(params, ANN_SEARCH_CAGRA_SINGLE_CTA), "also on the CPU");
}

/// A graph that somebody else made: here a ring.
void claim_given_graph() {
  Case c;
  c.rows = 600;
  c.degree = 4;
  std::vector<uint32_t> knn;
  for (uint32_t row = 0; row < c.rows; ++row) {
    for (const uint32_t step : {1u, 2u, 40u, c.rows - 1}) knn.push_back((row + step) % c.rows);
  }
  const Prepared data(c, knn.data(), 4);
  for (const int32_t procedure : kProcedures) compare_with_twin(data, params_of(procedure));
}

void claim_not_finite() {
  Case c;
  c.element = ANN_F32;
  c.queries = 60;
  Prepared data(c);
  for (const int32_t procedure : kProcedures) {
    float* values = reinterpret_cast<float*>(data.queries.bytes.data());
    const Answers before = data.search(params_of(procedure), ANN_DEVICE_CUDA);
    const float kept = values[7 * c.dim + 3];
    values[7 * c.dim + 3] = NAN;
    const Answers after = data.search(params_of(procedure), ANN_DEVICE_CUDA);
    values[7 * c.dim + 3] = kept;
    for (uint64_t query = 0; query < c.queries; ++query) {
      expect(after.status[query] == (query == 7 ? ANN_NOT_FINITE : ANN_OK), "status of a query");
      for (uint64_t i = query * c.k; query != 7 && i < (query + 1) * c.k; ++i)
        expect(after.same(before, i, i), "answer of a query");
    }
    expect(after.counts[7] == 0 && after.ids[7 * c.k] == ANN_ID_NONE, "answer of that query");
  }
}

/// Cooperative launches of many threads share a device without waiting for each other for ever.
void claim_threads() {
  Case c;
  c.rows = quick ? 500 : 10'000;
  c.queries = 300;
  const Prepared data(c);
  const Answers expected[] = {data.search(params_of(kProcedures[0]), ANN_DEVICE_CUDA),
                              data.search(params_of(kProcedures[1], 256), ANN_DEVICE_CUDA)};
  std::atomic<uint32_t> failures = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < (quick ? 4u : 32u); ++t) {
    threads.emplace_back([&, t] {
      try {
        for (uint32_t i = 0; i < (quick ? 2u : 20u); ++i) {
          const uint32_t which = (t + i) % 2;
          const uint64_t first = (t * 31 + i * 7) % 200;
          const Answers part = data.search(params_of(kProcedures[which], which == 0 ? 64 : 256),
                                           ANN_DEVICE_CUDA, first, 1 + (t + i) % 100);
          for (uint64_t place = 0; place < part.ids.size(); ++place)
            failures += part.same(expected[which], place, first * c.k + place) ? 0 : 1;
        }
      } catch (const Failure& failure) {
        std::printf("  %s\n", failure.what.c_str());
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(failures == 0, "answers on many threads");
}

/// Each kernel at least once.
void claim_handful() {
  for (const int32_t element : {ANN_U8, ANN_I8, ANN_F32, ANN_F16, ANN_BF16}) {
    Case c;
    c.element = element;
    c.rows = 150;
    c.queries = 3;
    c.dim = 40;
    c.metric = kMetrics[element % 3];
    const Prepared data(c);
    for (const uint32_t beam : {32u, 600u}) {
      for (const int32_t procedure : kProcedures) {
        ann_search_params params = params_of(procedure, beam);
        params.compare = ANN_COMPARE_STORED;
        params.search_width = procedure == ANN_SEARCH_CAGRA_SINGLE_CTA ? 2 : 0;
        compare_with_twin(data, params);
      }
    }
  }
}

constexpr Claim kClaims[] = {
    {"every element and metric", claim_elements},
    {"every dimension", claim_dims},
    {"every team", claim_teams},
    {"every number of rows", claim_sizes},
    {"every beam, width and number of CTAs", claim_beams},
    {"every table, and a bound on iterations", claim_tables},
    {"every degree", claim_degrees},
    {"every k", claim_k},
    {"duplicates, equal rows, equal distances", claim_values},
    {"batches of any size", claim_batches},
    {"the choice rule", claim_rule},
    {"a given graph", claim_given_graph},
    {"queries that are not finite", claim_not_finite},
    {"many threads at once", claim_threads},
    {"recall", claim_recall},
};
constexpr Claim kQuickClaims[] = {
    {"every element and metric", claim_elements},
    {"every dimension", claim_dims},
    {"every team", claim_teams},
    {"every number of rows", claim_sizes},
    {"every beam, width and number of CTAs", claim_beams},
    {"every table, and a bound on iterations", claim_tables},
    {"every degree", claim_degrees},
    {"many threads at once", claim_threads},
};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  const int status = quick            ? run_claims(kQuickClaims, count > 2 ? arguments[2] : "")
                     : mode == "race" ? run_claims(kRaceClaims)
                                      : run_claims(kClaims, mode);
  std::printf("%llu answers are those of the CPU\n", static_cast<unsigned long long>(answers_compared));
  return status;
}

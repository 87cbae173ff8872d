// Claims about GGNN's search on a CUDA device, made through the C interface: it gives what its twin on the CPU
// gives, bit for bit and count for count, whatever the schedule; reported distances are exact; more slack finds
// more.
//
//   ggnn_cuda_test                all claims
//   ggnn_cuda_test quick          fewer and smaller cases, for compute-sanitizer
//   ggnn_cuda_test race           a handful, for its racecheck, which is slow
//   ggnn_cuda_test TEXT           claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <algorithm>

#include "twins.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;

ann_search_params params_of(float stretch = 1.4f) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_GGNN;
  params.stretch = stretch;
  return params;
}

/// By codes and, of floats, as stored.
void compare(const Case& c, uint32_t team = 0) {
  const Prepared data(c);
  for (const int32_t compared : {ANN_COMPARE_CODES, ANN_COMPARE_STORED}) {
    if (compared == ANN_COMPARE_STORED && !is_float_element(c.element)) continue;
    ann_search_params params = params_of();
    params.compare = compared;
    params.team_size = team;
    const Answers answers = compare_with_twin(data, params);
    if (c.rows > 0 && c.queries > 0) check_exact(data, answers);
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
  for (const uint32_t dim : {1u, 2u, 3u, 31u, 64u, 65u, 100u, 128u, 260u, 511u, 512u, 960u, 2048u, 4096u}) {
    if (quick && dim > 512) break;
    for (const int32_t element : kElements) {
      Case c;
      c.dim = dim;
      c.rows = 200;
      c.queries = 5;
      c.element = element;
      c.metric = kMetrics[turn % 3];
      compare(c, kTeams[turn++ % 5]);
    }
  }
}

void claim_sizes() {
  for (const uint32_t rows : {0u, 1u, 2u, 3u, 16u, 31u, 32u, 33u, 63u, 64u, 65u, 129u, 500u, 1000u, 5000u}) {
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

/// Caches so small that they forget, and so large that they hold all.
void claim_caches() {
  Case c;
  c.rows = quick ? 1000 : 6000;
  c.queries = quick ? 2 : 30;
  c.dim = 24;
  const Prepared data(c);
  for (const float stretch : {1.0f, 1.3f, 2.0f, 3.0f}) {
    for (const uint32_t queue : {0u, 1u, 2u, 3u, 31u, 64u, 500u, 2048u}) {
      for (const uint32_t visited : {0u, 1u, 2u, 7u, 64u, 384u, 2016u, 8192u}) {
        if (quick && (queue > 64 || visited > 384)) continue;
        ann_search_params params = params_of(stretch);
        params.queue = queue;
        params.visited = visited;
        params.iterations_max = 300;
        compare_with_twin(data, params);
      }
    }
  }
  for (const uint32_t beam : {10u, 11u, 31u, 64u, 100u, 500u, 1984u}) {
    ann_search_params params = params_of(1);
    params.beam = beam;
    compare_with_twin(data, params);
    params.nearest_share = 0.5f;
    params.stretch = 1.5f;
    compare_with_twin(data, params);
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
  }
}

/// Walks that come down through the layers, and slack that is added to squares.
void claim_layers() {
  uint32_t turn = 0;
  for (const uint32_t rows : {1u, 20u, 64u, 100u, 300u, 2000u, 9000u}) {
    if (quick && rows > 300) break;
    for (const uint32_t k : {1u, 10u, 100u}) {
      for (const int32_t element : {ANN_U8, ANN_F32, ANN_F16}) {
        Case c;
        c.rows = rows;
        c.k = k;
        c.queries = quick ? 2 : 20;
        c.element = element;
        c.metric = kMetrics[turn++ % 3];
        c.graph = ANN_GRAPH_GGNN;
        c.degree = k == 1 ? 40 : 24;
        const Prepared data(c);
        for (const uint32_t beam : {0u, 300u, 512u}) {
          ann_search_params params = params_of();
          params.descent = ANN_ON;
          params.slack = beam == 0 ? ANN_SLACK_SQUARES : ANN_SLACK_DISTANCES;
          params.beam = element == ANN_U8 ? beam : std::min(beam, 300u);
          params.compare = turn % 2 == 0 ? ANN_COMPARE_STORED : ANN_COMPARE_CODES;
          compare_with_twin(data, params);
        }
      }
    }
  }
}

/// What a recall stands for is found on the device: as much as was asked, and few queries that the others wait for.
void claim_calibration() {
  for (const int32_t slack : {ANN_SLACK_DISTANCES, ANN_SLACK_SQUARES}) {
    Case c;
    c.element = ANN_F32;
    c.rows = 30'000;
    c.queries = 2000;
    c.values = Values::kNormal;
    c.dim = 24;
    c.graph = ANN_GRAPH_GGNN;
    c.degree = 24;
    c.calibrate = true;
    const Prepared data(c);
    const Answers truth = data.exact(c.k);
    double last = 0;
    double worst = 1;
    for (const float recall : {0.8f, 0.9f, 0.95f, 0.99f}) {
      ann_search_params params = params_of(0);
      params.recall = recall;
      params.slack = slack;
      const Answers answers = data.search(params, ANN_DEVICE_CUDA);
      const double got = data.recall(answers, truth);
      const double expansions = static_cast<double>(answers.expansion_count) / c.queries;
      std::printf("  %s, slack of %d, asked %.2f: recall %.4f, %.1f expansions a query\n", c.name().c_str(),
                  slack, static_cast<double>(recall), got, expansions);
      expect(expansions > last, c.name() + ": more recall takes more expansions");
      last = expansions;
      worst = std::min(worst, got - static_cast<double>(recall));
      params.beam = 40;
      expect(data.search(params, ANN_DEVICE_CUDA).expansion_count > answers.expansion_count,
             c.name() + ": a longer list goes farther");
      params.beam = 0;
      params.iterations_max = 400;
      const Answers whole = data.search(params, ANN_DEVICE_CUDA);
      // Where nearly all queries go on to the default's end there is nothing to bound.
      const bool bounds = recall > 0.9f ? whole.expansion_count >= answers.expansion_count
                                        : whole.expansion_count > answers.expansion_count;
      expect(bounds, c.name() + ": the calibration bounds iterations_max, " +
                         std::to_string(answers.expansion_count) + " expansions of " +
                         std::to_string(whole.expansion_count));
    }
    expect(worst >= -0.01, c.name() + ": recall as asked, " + std::to_string(worst));
  }
}

void claim_k() {
  for (const uint32_t k : {1u, 2u, 11u, 32u, 64u, 100u, 300u, 1000u, 1984u}) {
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
  Case c;
  c.element = ANN_F32;
  c.rows = quick ? 500 : 20'000;
  c.queries = quick ? 100 : 10'000;
  const Prepared data(c);
  const Answers all = data.search(params_of(), ANN_DEVICE_CUDA);
  for (const uint64_t size : {1ull, 7ull, 100ull, 1000ull}) {
    if (size > c.queries) continue;
    for (const uint64_t first : {uint64_t{0}, uint64_t{c.queries / 3}, uint64_t{c.queries - size}}) {
      const Answers part = data.search(params_of(), ANN_DEVICE_CUDA, first, size);
      for (uint64_t i = 0; i < part.ids.size(); ++i)
        expect(part.same(all, i, first * c.k + i),
               "a batch of " + std::to_string(size) + " from " + std::to_string(first));
    }
  }
  const Answers again = data.search(params_of(), ANN_DEVICE_CUDA);
  expect(again.ids == all.ids && again.distance_count == all.distance_count,
         "a second search of the whole batch");
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
      double last = 0;
      for (const float stretch : {1.0f, 1.2f, 1.4f, 1.6f}) {
        const Answers answers = data.search(params_of(stretch), ANN_DEVICE_CUDA);
        const double got = data.recall(answers, truth);
        std::printf("  %s, stretch %.1f: recall %.4f, %.0f distances a query\n", c.name().c_str(),
                    static_cast<double>(stretch), got,
                    static_cast<double>(answers.distance_count) / c.queries);
        expect(got >= last - 0.005, c.name() + ": more slack finds more");
        last = got;
      }
      expect(last >= 0.97, c.name() + ": recall of much slack is " + std::to_string(last));
    }
  }
}

/// Each kernel at least once.
void claim_handful() {
  for (const int32_t element : {ANN_U8, ANN_I8, ANN_F32, ANN_F16, ANN_BF16}) {
    for (const uint32_t dim : {40u, 600u}) {
      Case c;
      c.element = element;
      c.rows = 150;
      c.queries = 3;
      c.dim = dim;
      c.metric = kMetrics[element % 3];
      const Prepared data(c);
      ann_search_params params = params_of();
      params.compare = ANN_COMPARE_STORED;
      compare_with_twin(data, params);
    }
  }
  for (const uint32_t beam : {10u, 100u}) {  // lists of a warp, and of a block
    Case c;
    c.rows = 150;
    c.queries = 3;
    c.graph = ANN_GRAPH_GGNN;
    c.degree = 8;
    const Prepared data(c);
    ann_search_params params = params_of();
    params.beam = beam;
    params.descent = ANN_ON;
    compare_with_twin(data, params);
  }
}

constexpr Claim kClaims[] = {
    {"every element and metric", claim_elements},
    {"dimensions and teams", claim_dims},
    {"every number of rows", claim_sizes},
    {"caches of every size", claim_caches},
    {"every degree", claim_degrees},
    {"every k", claim_k},
    {"duplicates, equal rows, equal distances", claim_values},
    {"batches of any size", claim_batches},
    {"layers and squares", claim_layers},
    {"recall", claim_recall},
    {"calibration", claim_calibration},
};
constexpr Claim kQuickClaims[] = {
    {"every element and metric", claim_elements},
    {"dimensions and teams", claim_dims},
    {"every number of rows", claim_sizes},
    {"caches of every size", claim_caches},
    {"every degree", claim_degrees},
    {"layers and squares", claim_layers},
    {"duplicates, equal rows, equal distances", claim_values},
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

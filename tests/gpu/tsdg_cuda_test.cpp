// Claims about TSDG's searches on a CUDA device, made through the C interface: they give what their twins on the CPU
// give, bit for bit and count for count, whatever the schedule; reported distances are exact; more effort finds more;
// a search chooses which edges it reads; TSDG is the one or the other by the batch.
//
//   tsdg_cuda_test                all claims
//   tsdg_cuda_test quick          fewer and smaller cases, for compute-sanitizer
//   tsdg_cuda_test race           a handful, for its racecheck, which is slow
//   tsdg_cuda_test TEXT           claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <algorithm>

#include "twins.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;

ann_search_params small_of(uint32_t walks = 8) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_TSDG_SMALL;
  params.walks = walks;
  return params;
}

ann_search_params large_of(float delta = 1.1f) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_TSDG_LARGE;
  params.delta = delta;
  return params;
}

/// A graph with occlusion factors.
Case tsdg_case() {
  Case c;
  c.graph = ANN_GRAPH_TSDG;
  c.degree = 64;
  c.knn_degree = 48;
  return c;
}

uint32_t walks_for(uint32_t k) { return std::max(8u, (k + std::max(16u, k / 2) + 31) / 32); }

/// Both searches over one graph.
void compare(const Case& c, uint32_t team = 0) {
  const Prepared data(c);
  ann_search_params searches[] = {small_of(walks_for(c.k)), large_of()};
  for (ann_search_params& params : searches) {
    params.team_size = team;
    const Answers answers = compare_with_twin(data, params);
    expect(answers.procedure == params.procedure, c.name() + ": the procedure");
    if (c.rows > 0 && c.queries > 0) check_exact(data, answers);
  }
}

void claim_elements() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      Case c = tsdg_case();
      c.element = element;
      c.metric = metric;
      c.rows = quick ? 200 : 1500;
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
  for (const uint32_t dim : {1u, 2u, 3u, 31u, 64u, 65u, 100u, 128u, 260u, 511u, 512u, 960u, 2048u}) {
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

/// As few rows as walks have seeds, and fewer.
void claim_sizes() {
  for (const uint32_t rows :
       {0u, 1u, 2u, 3u, 16u, 31u, 32u, 33u, 63u, 64u, 65u, 129u, 255u, 256u, 257u, 1000u}) {
    if (quick && rows > 300) break;
    for (const uint32_t k : {1u, 10u, 64u, 100u}) {
      Case c = tsdg_case();
      c.rows = rows;
      c.k = k;
      c.queries = 7;
      c.element = k == 10 ? ANN_F32 : ANN_U8;
      compare(c);
    }
  }
}

/// Queues so short that they drop rows, one step, one walk and many.
void claim_shapes() {
  Case c = tsdg_case();
  c.rows = quick ? 600 : 4000;
  c.queries = quick ? 2 : 30;
  c.dim = 24;
  const Prepared data(c);
  for (const uint32_t hops : {0u, 1u, 2u, 5u, 60u}) {
    for (const uint32_t walks : {1u, 2u, 3u, 8u, 31u, 64u}) {
      ann_search_params params = small_of(walks);
      params.hops_max = hops;
      compare_with_twin(data, params);
    }
    for (const uint32_t segments : {1u, 2u, 3u, 8u, 33u, 64u}) {
      for (const float delta : {1.0f, 1.05f, 1.3f, 4.0f}) {
        for (const int32_t takes : {ANN_QUEUE_COMPARED, ANN_QUEUE_NEARER}) {
          if (quick && (segments == 33 || delta == 1.3f)) continue;
          ann_search_params params = large_of(delta);
          params.hops_max = hops == 0 ? 300 : hops;
          params.segments = segments;
          params.queue_takes = takes;
          compare_with_twin(data, params);
        }
      }
    }
  }
}

/// Prefixes of rows by factor; graphs of fixed rows are read whole.
void claim_levels() {
  for (const uint32_t bound : {1u, 5u, 10u, 64u}) {
    Case c = tsdg_case();
    c.rows = quick ? 300 : 3000;
    c.queries = quick ? 2 : 30;
    c.occlusion_bound = bound;
    const Prepared data(c);
    uint64_t last[2] = {0, 0};
    for (const uint32_t below : {1u, 2u, 5u, 9u, 10u, 11u, 64u}) {
      ann_search_params searches[] = {small_of(), large_of(1.02f)};
      for (uint32_t i = 0; i < 2; ++i) {
        searches[i].occlusion_max = below;
        const Answers answers = compare_with_twin(data, searches[i]);
        if (below == 1 || below == 64) {
          expect(below == 1 || bound == 1 || quick || answers.distance_count > last[i],
                 c.name() + name_of(searches[i]) + ": fewer distances along fewer edges");
          last[i] = answers.distance_count;
        }
      }
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
    c.graph = ANN_GRAPH_TSDG;
    c.knn_degree = std::min(200u, c.rows / 2);
    c.occlusion_bound = 64;
    compare(c);
  }
}

void claim_k() {
  for (const uint32_t k : {1u, 2u, 11u, 32u, 33u, 64u, 100u, 300u, 1000u, 1024u}) {
    if (quick && k > 100) break;
    for (const int32_t element : {ANN_F32, ANN_U8}) {
      Case c = tsdg_case();
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
        Case c = tsdg_case();
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
  Case c = tsdg_case();
  c.element = ANN_F32;
  c.rows = quick ? 500 : 10'000;
  c.queries = quick ? 100 : 10'000;
  const Prepared data(c);
  for (const ann_search_params& params : {small_of(64), large_of()}) {
    const Answers all = data.search(params, ANN_DEVICE_CUDA);
    for (const uint64_t size : {1ull, 7ull, 100ull, 1000ull}) {
      if (size > c.queries) continue;
      for (const uint64_t first : {uint64_t{0}, uint64_t{c.queries / 3}, uint64_t{c.queries - size}}) {
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

/// A recall that is asked for is found, by calibrations of their own.
void claim_promises() {
  Case c = tsdg_case();
  c.rows = 30'000;
  c.queries = 1000;
  c.values = Values::kNormal;
  c.dim = 16;
  c.calibrate = true;
  for (const int32_t graph : {ANN_GRAPH_TSDG, ANN_GRAPH_AUTO}) {
    c.graph = graph;
    c.degree = graph == ANN_GRAPH_TSDG ? 64 : 32;
    c.knn_degree = 48;
    const Prepared data(c);
    const Answers truth = data.exact(c.k);
    for (const int32_t procedure : {ANN_SEARCH_TSDG, ANN_SEARCH_TSDG_SMALL, ANN_SEARCH_TSDG_LARGE}) {
      for (const float recall : {0.8f, 0.9f, 0.95f}) {
        ann_search_params params = ANN_SEARCH_PARAMS_INIT;
        params.procedure = procedure;
        params.recall = recall;
        const Answers answers = data.search(params, ANN_DEVICE_CUDA);
        const double got = data.recall(answers, truth);
        std::printf("  graph %d, procedure %d, asked for %.2f: recall %.4f, %.0f distances a query\n", graph,
                    procedure, static_cast<double>(recall), got,
                    static_cast<double>(answers.distance_count) / c.queries);
        expect(got >= static_cast<double>(recall) - 0.02, c.name() + name_of(params) + ": recall " +
                                                              std::to_string(got) + " where " +
                                                              std::to_string(recall) + " was asked for");
      }
    }
  }
}

/// TSDG is one of the two on a device, whose answers it gives.
void claim_choice() {
  Case c = tsdg_case();
  c.rows = 12'000;
  c.queries = 20'000;
  c.dim = 16;
  c.values = Values::kNormal;
  const Prepared data(c);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_TSDG;
  const Answers one = data.search(params, ANN_DEVICE_CUDA, 0, 1);
  expect(one.procedure == ANN_SEARCH_TSDG_SMALL, "one query is a small batch");
  const Answers many = data.search(params, ANN_DEVICE_CUDA);
  expect(many.procedure == ANN_SEARCH_TSDG_LARGE, "20,000 queries are a large batch");
  params.procedure = ANN_SEARCH_TSDG_LARGE;
  expect(data.search(params, ANN_DEVICE_CUDA).ids == many.ids, "by its own name it answers the same");
  params.procedure = ANN_SEARCH_SLACK;
  params.device = ANN_DEVICE_CUDA;
  Answers none;
  ann_error error = ANN_ERROR_INIT;
  expect(ask(data.index, matrix_of(data.queries, 0, 1), c.k, params, false, &none, &error) == ANN_UNSUPPORTED,
         "SLACK is refused on a device");
  params.procedure = ANN_SEARCH_TSDG_LARGE;
  const Answers host = data.search(params, ANN_DEVICE_CPU, 0, 10);
  expect(host.procedure == ANN_SEARCH_TSDG_LARGE, "by its own name it runs on the CPU too");
}

void claim_recall() {
  for (const int32_t metric : kMetrics) {
    for (const int32_t element : {ANN_U8, ANN_F16}) {
      Case c = tsdg_case();
      c.element = element;
      c.metric = metric;
      c.rows = 20'000;
      c.queries = 500;
      c.values = Values::kNormal;
      c.dim = 16;
      const Prepared data(c);
      const Answers truth = data.exact(c.k);
      const auto measure = [&](const ann_search_params& params) {
        const Answers answers = data.search(params, ANN_DEVICE_CUDA);
        const double recall = data.recall(answers, truth);
        std::printf("  %s, procedure %d, walks %u, delta %.2f: recall %.4f, %.0f distances a query\n",
                    c.name().c_str(), params.procedure, params.walks, static_cast<double>(params.delta),
                    recall, static_cast<double>(answers.distance_count) / c.queries);
        return recall;
      };
      double last = 0;
      for (const uint32_t walks : {4u, 16u, 64u}) {
        const double recall = measure(small_of(walks));
        expect(recall >= last - 0.005, c.name() + ": more walks find more");
        last = recall;
      }
      expect(last >= 0.95, c.name() + ": recall of 64 walks is " + std::to_string(last));
      last = 0;
      for (const float delta : {1.0f, 1.1f, 1.3f}) {
        const double recall = measure(large_of(delta));
        expect(recall >= last - 0.005, c.name() + ": a wider bound finds more");
        last = recall;
      }
      expect(last >= 0.97, c.name() + ": recall of a wide bound is " + std::to_string(last));
    }
  }
}

/// Each kernel at least once.
void claim_handful() {
  for (const int32_t element : {ANN_U8, ANN_I8, ANN_F32, ANN_F16}) {
    Case c = tsdg_case();
    c.element = element;
    c.rows = 150;
    c.queries = 3;
    c.dim = 40;
    c.metric = kMetrics[element % 3];
    const Prepared data(c);
    for (const uint32_t walks : {2u, 3u}) compare_with_twin(data, small_of(walks));
    for (const uint32_t segments : {1u, 33u}) {
      ann_search_params params = large_of();
      params.segments = segments;
      compare_with_twin(data, params);
    }
  }
}

constexpr Claim kClaims[] = {
    {"every element and metric", claim_elements},
    {"dimensions and teams", claim_dims},
    {"every number of rows", claim_sizes},
    {"walks, hops, segments and bounds", claim_shapes},
    {"edges by their factors", claim_levels},
    {"every degree", claim_degrees},
    {"every k", claim_k},
    {"duplicates, equal rows, equal distances", claim_values},
    {"batches of any size", claim_batches},
    {"small and large batches", claim_choice},
    {"recall", claim_recall},
    {"a recall that is asked for", claim_promises},
};
constexpr Claim kQuickClaims[] = {
    {"every element and metric", claim_elements},
    {"dimensions and teams", claim_dims},
    {"every number of rows", claim_sizes},
    {"walks, hops, segments and bounds", claim_shapes},
    {"edges by their factors", claim_levels},
    {"every degree", claim_degrees},
    {"every k", claim_k},
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

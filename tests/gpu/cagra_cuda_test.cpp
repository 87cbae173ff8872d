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
#include <thread>

#include "twins.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
ann_search_params params_of(int32_t procedure, uint32_t beam = 64) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.beam = beam;
  return params;
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
      for (const uint32_t width : {0u, 1u, 2u, 3u, 5u, 64u}) {
        if (quick && width > 2) continue;
        params.search_width = width;
        compare_with_twin(data, params);
      }
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
    params.procedure = ANN_SEARCH_CAGRA_MULTI_CTA;
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

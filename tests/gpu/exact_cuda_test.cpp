// Claims about exact search on a CUDA device: rows and bits of distances are those of the CPU, which
// are Dataset::distances and a sort.
//
//   exact_cuda_test          all claims
//   exact_cuda_test quick    fewer and smaller cases, for compute-sanitizer
//   exact_cuda_test race     a handful, for its racecheck, which is slow
//   exact_cuda_test time     times, after one claim
//
// Ends with 77 where there is no CUDA device.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "claims.h"
#include "search/exact_cuda.h"

namespace {

using namespace gannet;

using gannet::test::Claim;
using gannet::test::expect;
using gannet::test::Failure;
using gannet::test::kElements;
using gannet::test::kMetrics;
using gannet::test::metric_name;
using gannet::test::Rows;
using gannet::test::run_claims;
using gannet::test::Values;

bool quick = false;
uint64_t cases_compared = 0;
uint64_t answers_compared = 0;

struct Case {
  int32_t element = ANN_F32;
  int32_t metric = ANN_METRIC_L2;
  uint32_t rows = 300;
  uint32_t queries = 40;
  uint32_t dim = 32;
  uint32_t k = 10;
  Values values = Values::kNormal;
  bool ids = false;  // random ones
  uint32_t gap = 0;  // bytes between borrowed rows
  uint64_t chunk_bytes_max = 0;
  uint32_t left_of_eight = 8;  // rows of eight; the others are removed

  bool is_removed(uint32_t row) const { return row * 5 % 8 >= left_of_eight; }

  std::string name() const {
    return std::string(element_name(element)) + " " + metric_name(metric) + ", " + std::to_string(rows) +
           " rows x " + std::to_string(dim) + ", " + std::to_string(queries) + " queries, k " +
           std::to_string(k) + ", values " + std::to_string(static_cast<int>(values)) + (ids ? ", ids" : "") +
           ", gap " + std::to_string(gap) + ", chunk " + std::to_string(chunk_bytes_max) + ", " +
           std::to_string(left_of_eight) + " of 8 left";
  }
};

/// A data set and its queries, prepared as searches have them.
struct Prepared {
  Rows rows;
  std::vector<uint64_t> ids;
  Dataset dataset;
  std::vector<uint8_t> query_values;  // [queries, query_bytes]
  std::vector<double> query_norms;
  std::vector<PreparedQuery> queries;
  RowSet removed;

  static std::vector<uint64_t> make_ids(const Case& c) {
    std::vector<uint64_t> ids(c.ids ? c.rows : 0);
    for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = (i * 7919 + 13) << 31;
    std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
    return ids;
  }
  /// Of values that give all rows a place, queries have another.
  static Values query_values_of(Values values) {
    if (values == Values::kEqual) return Values::kNormal;
    return values == Values::kDescending ? Values::kOrigin : values;
  }

  Prepared(const Case& c, uint32_t seed)
      : rows(c.element, c.rows, c.dim, c.values, seed, c.gap),
        ids(make_ids(c)),
        dataset(rows.view(), ids.empty() ? nullptr : ids.data(), c.metric, c.element, c.gap != 0, {}),
        query_values(dataset.query_bytes() * c.queries),
        query_norms(c.queries),
        queries(c.queries),
        removed(Allocator(), c.rows) {
    for (uint32_t row = 0; row < c.rows; ++row)
      if (c.is_removed(row)) removed.insert(row);
    const Rows asked(c.element, c.queries, c.dim, query_values_of(c.values), seed + 1, c.gap);
    for (uint32_t q = 0; q < c.queries; ++q) {
      const bool finite = dataset.prepare(asked.bytes.data() + q * asked.stride, c.element,
                                          query_values.data() + q * dataset.query_bytes(), &queries[q]);
      expect(finite, "queries are finite");
      query_norms[q] = queries[q].norm;
    }
  }

  cuda::ExactRequest request(const Case& c, uint32_t* rows, float* distances) const {
    cuda::ExactRequest request;
    request.rows = dataset.view();
    request.row_count = dataset.rows();
    request.metric = c.metric;
    request.norms = dataset.norms();
    request.ids = dataset.ids();
    request.queries = query_values.data();
    request.query_norms = query_norms.data();
    request.query_count = c.queries;
    request.k = c.k;
    request.out_rows = rows;
    request.out_distances = distances;
    request.chunk_bytes_max = c.chunk_bytes_max;
    if (removed.count() != 0) request.removed = removed.view();
    return request;
  }
};

Execution all_threads() {
  Execution execution;
  execution.threads = thread_count(0, 0);
  return execution;
}

void compare(const Case& c) {
  const Prepared data(c, c.rows * 31 + c.dim * 7 + c.queries);
  const uint64_t answers = uint64_t{c.queries} * c.k;
  std::vector<uint32_t> rows(answers, 12345);
  std::vector<float> distances(answers, -7);
  try {
    cuda::search_exact(data.request(c, rows.data(), distances.data()), Execution());
  } catch (const Error& error) {
    throw Failure{c.name() + ": " + error.message};
  }

  parallel_for(all_threads(), c.queries, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> all(c.rows);
    for (uint64_t q = begin; q < end; ++q) {
      data.dataset.distances(data.queries[q], nullptr, 0, c.rows, all.data());
      std::vector<uint32_t> order;
      for (uint32_t row = 0; row < c.rows; ++row)
        if (!c.is_removed(row)) order.push_back(row);
      const uint32_t kept = std::min(c.k, static_cast<uint32_t>(order.size()));
      std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(all[a], data.dataset.id(a)) < std::pair(all[b], data.dataset.id(b));
      });
      for (uint32_t i = 0; i < c.k; ++i) {
        const uint32_t row = i < kept ? order[i] : UINT32_MAX;
        const float distance = i < kept ? all[row] : INFINITY;
        const uint32_t found = rows[q * c.k + i];
        const float at = distances[q * c.k + i];
        if (found == row && std::memcmp(&at, &distance, 4) == 0) continue;
        char text[160];
        std::snprintf(text, sizeof text, ": query %u, place %u: row %u at %a, not row %u at %a",
                      static_cast<uint32_t>(q), i, found, double{at}, row, double{distance});
        throw Failure{c.name() + text};
      }
    }
  });
  ++cases_compared;
  answers_compared += answers;
}

void every_element_and_metric(Case c) {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      c.element = element;
      c.metric = metric;
      compare(c);
    }
  }
}

void claim_dims() {
  std::vector<uint32_t> dims;
  for (uint32_t dim = 1; dim < 300; ++dim) {
    bool prime = true;
    for (uint32_t divisor = 2; divisor * divisor <= dim; ++divisor) prime &= dim % divisor != 0;
    if (prime) dims.push_back(dim);
  }
  for (const uint32_t dim : {64u, 128u, 256u, 384u, 768u, 960u, 1536u}) dims.push_back(dim);
  if (quick) dims = {1, 3, 64, 67, 131};
  for (const uint32_t dim : dims) every_element_and_metric({.dim = dim});
  for (const uint32_t queries : {1u, 3u})
    for (const uint32_t dim : dims) every_element_and_metric({.queries = queries, .dim = dim});
}

void claim_sizes() {
  std::vector<uint32_t> rows = {0,  1,   2,   15,  16,  17,  31,  32,  33,  63,   64,  65,
                                95, 127, 128, 129, 255, 256, 257, 511, 512, 1000, 5000};
  std::vector<uint32_t> queries = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100};
  if (quick) {
    rows = {0, 1, 33, 129, 700};
    queries = {1, 9, 65};
  }
  for (const uint32_t n : rows) {
    for (const uint32_t q : queries) {
      for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}})
        compare({.element = element, .rows = n, .queries = q, .dim = 20, .k = 10});
    }
  }
  compare({.rows = 100, .queries = 0});
}

void claim_k() {
  std::vector<uint32_t> ks = {1, 2, 10, 100, 127, 128, 129, 256, 257, 512, 513, 1000, 1024};
  if (quick) ks = {1, 100, 200, 600, 1024};
  const uint32_t n = quick ? 1500 : 6000;
  for (const uint32_t k : ks) {
    for (const uint32_t q : {1u, 4u, 40u}) {
      for (const int32_t element : {int32_t{ANN_F16}, int32_t{ANN_I8}}) {
        for (const Values values : {Values::kNormal, Values::kDescending}) {
          compare({.element = element, .rows = n, .queries = q, .dim = 16, .k = k, .values = values});
        }
      }
    }
  }
  for (const uint32_t rows : {0u, 1u, 7u, 300u, 1000u})
    every_element_and_metric({.rows = rows, .queries = 9, .dim = 24, .k = rows + 3});
}

void claim_values() {
  const uint32_t n = quick ? 400 : 3000;
  for (const Values values : {Values::kGrid, Values::kEqual, Values::kZeros, Values::kTiny, Values::kHuge,
                              Values::kDescending, Values::kOffset, Values::kTight, Values::kNarrow}) {
    for (const uint32_t dim : {5u, 100u}) {
      if (quick && dim == 5) continue;
      for (const bool ids : {false, true}) {
        for (const uint32_t k : {10u, 150u}) {
          if (quick && (k == 150) != ids) continue;
          for (const uint32_t queries : {1u, 20u})
            every_element_and_metric(
                {.rows = n, .queries = queries, .dim = dim, .k = k, .values = values, .ids = ids});
        }
      }
    }
  }
}

/// Borrowed rows stand at any distance; what stands between them is no part of them.
void claim_strides() {
  for (const uint32_t gap : quick ? std::vector{12u} : std::vector{4u, 12u, 100u})
    for (const uint32_t queries : {1u, 40u})
      every_element_and_metric({.rows = 500, .queries = queries, .dim = 50, .gap = gap});
  for (const uint32_t gap : {1u, 3u}) compare({.element = ANN_U8, .rows = 500, .dim = 50, .gap = gap});
}

/// Rows that are removed are no answers, and may leave fewer than are asked for.
void claim_removed() {
  const uint32_t n = quick ? 500 : 5000;
  for (const uint32_t left : {0u, 1u, 7u}) {
    for (const uint32_t queries : {1u, 5u, 40u}) {
      every_element_and_metric({.rows = n, .queries = queries, .dim = 20, .left_of_eight = left});
      every_element_and_metric(
          {.rows = n, .queries = queries, .dim = 20, .k = n / 6, .ids = true, .left_of_eight = left});
    }
  }
}

/// Rows that do not fit are sent in turn.
void claim_chunks() {
  for (const uint64_t bytes : {1ull, 10'000ull, 64'000ull}) {
    for (const bool ids : {false, true}) {
      Case c{.rows = 2000, .queries = 40, .dim = 33, .k = 100, .ids = ids, .chunk_bytes_max = bytes};
      if (bytes == 1) c.rows = quick ? 10 : 130;  // a row at a time
      every_element_and_metric(c);
      c.queries = 2;
      every_element_and_metric(c);
      c.queries = 40;
      c.values = Values::kGrid;
      c.element = ANN_I8;
      compare(c);
    }
  }
}

void claim_widest() {
  const uint32_t dim = ANN_DIM_MAX;
  for (const uint32_t queries : {1u, 20u})
    every_element_and_metric({.rows = 70, .queries = queries, .dim = dim});
  if (quick) return;
  every_element_and_metric({.rows = 300, .queries = 700, .dim = dim, .chunk_bytes_max = 8 << 20});
  // The largest sum of all: 32,768 columns 255 apart.
  std::vector<uint8_t> rows(3 * size_t{dim}, 255);
  std::vector<uint8_t> query(dim, 0);
  const Dataset dataset({rows.data(), 3, dim, ANN_U8, dim}, nullptr, ANN_METRIC_L2, ANN_U8, true, {});
  uint32_t found[3];
  float distances[3];
  cuda::ExactRequest request;
  request.rows = dataset.view();
  request.row_count = 3;
  request.metric = ANN_METRIC_L2;
  request.queries = query.data();
  request.query_count = 1;
  request.k = 3;
  request.out_rows = found;
  request.out_distances = distances;
  cuda::search_exact(request, Execution());
  for (uint32_t i = 0; i < 3; ++i)
    expect(found[i] == i && distances[i] == 32768.0f * 255 * 255, "the largest sum is right");
}

/// Several launches for each batch, several batches.
void claim_many() {
  if (quick) return;
  compare({.rows = 40'000, .queries = 9000, .dim = 8, .k = 3});
  compare({.rows = 150'000, .queries = 300, .dim = 1536, .k = 20});
  for (const int32_t metric : kMetrics) {
    for (const Values values : {Values::kNormal, Values::kOffset, Values::kTight, Values::kNarrow})
      compare({.element = ANN_F16,
               .metric = metric,
               .rows = 60'000,
               .queries = 500,
               .dim = 100,
               .k = 100,
               .values = values});
  }
  compare({.element = ANN_U8, .rows = 300'000, .queries = 200, .dim = 100, .k = 1000});
  for (const uint32_t dim : {16u, 20u, 33u, 100u, 200u}) {
    compare({.element = ANN_U8, .rows = 1'000'000, .queries = 1, .dim = dim, .k = 1000});
    compare({.rows = 1'000'000, .queries = 1, .dim = dim, .k = 10});
  }
}

void claim_threads() {
  std::vector<std::thread> threads;
  std::atomic<uint32_t> failures = 0;
  const uint64_t before = cases_compared;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Case c{.element = kElements[t], .rows = 2000 + t, .queries = 50, .dim = 40};
      const Prepared data(c, t);
      std::vector<uint32_t> first(c.queries * c.k), rows(c.queries * c.k);
      std::vector<float> distances(c.queries * c.k);
      for (uint32_t i = 0; i < (quick ? 2u : 10u); ++i) {
        cuda::search_exact(data.request(c, rows.data(), distances.data()), Execution());
        if (i == 0) first = rows;
        failures += rows != first;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(failures == 0 && cases_compared == before, "searches on four threads agree");
}

template <class Work>
void expect_status(ann_status status, const char* what, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    expect(error.status == status, std::string(what) + ": " + error.message);
    expect(error.message[0] != 0, what);
    return;
  }
  throw Failure{std::string(what) + " is not refused"};
}

void claim_refusals() {
  const Case c{.rows = 2000, .queries = 3, .k = 1025};
  const Prepared data(c, 1);
  std::vector<uint32_t> rows(c.queries * c.k);
  std::vector<float> distances(c.queries * c.k);
  cuda::ExactRequest request = data.request(c, rows.data(), distances.data());
  expect_status(ANN_UNSUPPORTED, "k above 1024", [&] { cuda::search_exact(request, Execution()); });
  request.k = 10;
  request.device = 99;
  expect_status(ANN_NO_DEVICE, "device 99", [&] { cuda::search_exact(request, Execution()); });
  request.device = -1;
  expect_status(ANN_NO_DEVICE, "device -1", [&] { cuda::search_exact(request, Execution()); });
  request.device = 0;

  Monitor monitor;
  Execution execution;
  execution.monitor = &monitor;
  monitor.cancel();
  expect_status(ANN_CANCELLED, "a cancelled call", [&] { cuda::search_exact(request, execution); });
  monitor.reset();
  monitor.set_deadline(1);
  expect_status(ANN_DEADLINE, "a late call", [&] { cuda::search_exact(request, execution); });
  monitor.reset();
  cuda::search_exact(request, execution);
  expect(monitor.fraction() == 1 && std::string(monitor.phase()) == "exact search",
         "a finished call has come to the end");

  setenv("GANNET_BACKEND", "cpu", 1);
  const char* reason = "";
  expect(cuda_device_count(&reason) == 0 && reason[0] != 0, "GANNET_BACKEND=cpu hides devices");
  expect_status(ANN_NO_DEVICE, "a hidden device", [&] { cuda::search_exact(request, Execution()); });
  unsetenv("GANNET_BACKEND");
  expect(cuda_device_count(nullptr) > 0, "devices come back");
  cuda::search_exact(request, Execution());
}

void claim_descriptions() {
  const uint32_t count = cuda_device_count(nullptr);
  for (int32_t device = ANN_DEVICE_CPU; device < static_cast<int32_t>(ANN_DEVICE_CUDA + count); ++device) {
    ann_device_info info = ANN_DEVICE_INFO_INIT;
    describe_device(device, &info);
    std::printf("device %d: %s, %u units, capability %u, %.1f of %.1f GB free\n", info.device, info.name,
                info.compute_units, info.capability, info.memory_free / 1e9, info.memory_total / 1e9);
    expect(info.device == device && info.compute_units > 0 && info.name[0] != 0 &&
               info.memory_free <= info.memory_total && info.memory_total > 0,
           "a device is described");
    expect((info.capability > 0) == (device >= ANN_DEVICE_CUDA), "capability");
  }
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  expect_status(ANN_NO_DEVICE, "device 0", [&] { describe_device(0, &info); });
  expect_status(ANN_NO_DEVICE, "no such device",
                [&] { describe_device(static_cast<int32_t>(ANN_DEVICE_CUDA + count), &info); });
}

/// Milliseconds of a call.
double milliseconds(const Prepared& data, const Case& c) {
  std::vector<uint32_t> rows(uint64_t{c.queries} * c.k);
  std::vector<float> distances(uint64_t{c.queries} * c.k);
  const cuda::ExactRequest request = data.request(c, rows.data(), distances.data());
  return test::median_ms([&] { cuda::search_exact(request, Execution()); });
}

void time_case(Case c) {
  const auto rate = [&](double queries, double ms) { return queries * c.rows / ms / 1e6; };
  const uint32_t batch = 4096;
  c.queries = 2 * batch;
  const Prepared data(c, 1);
  // A second batch finds the rows on the device, so it adds the search alone.
  const double two_batches = milliseconds(data, c);
  c.queries = batch;
  const double one_batch = milliseconds(data, c);
  c.queries = 1000;
  const double thousand = milliseconds(data, c);
  c.queries = 1;
  const double one = milliseconds(data, c);
  std::printf(
      "time %s %s %u x %u, k %u: 1000 queries %.2f ms with the rows' transfer, %.1f G distances/s; "
      "rows in place %.2f ms for %u queries, %.1f G distances/s; 1 query %.2f ms\n",
      element_name(c.element), metric_name(c.metric), c.rows, c.dim, c.k, thousand, rate(1000, thousand),
      two_batches - one_batch, batch, rate(batch, two_batches - one_batch), one);
}

void times() {
  compare({.rows = 3000, .queries = 100, .dim = 96});
  time_case({.element = ANN_U8, .rows = 100'000, .dim = 128});
  time_case({.element = ANN_I8, .metric = ANN_METRIC_COSINE, .rows = 100'000, .dim = 128});
  time_case({.element = ANN_F32, .rows = 30'000, .dim = 960});
  time_case({.element = ANN_F32, .metric = ANN_METRIC_COSINE, .rows = 30'000, .dim = 960});
  time_case({.element = ANN_F16, .rows = 30'000, .dim = 960});
  time_case({.element = ANN_F32, .rows = 100'000, .dim = 128});
  time_case({.element = ANN_F32, .rows = 100'000, .dim = 128, .k = 100});
  time_case({.element = ANN_F32, .rows = 100'000, .dim = 128, .k = 1000});
  time_case({.element = ANN_F32, .rows = 100'000, .dim = 128, .values = Values::kTight});
  time_case({.element = ANN_F32, .rows = 100'000, .dim = 128, .values = Values::kNarrow});
  time_case({.element = ANN_F32, .rows = 1'000'000, .dim = 128, .k = 100});
}

/// Each kernel, and each width of a sort, at least once.
void claim_handful() {
  for (const uint32_t q : {3u, 40u}) every_element_and_metric({.queries = q, .dim = 70});
  for (const Values values : {Values::kTight, Values::kNarrow})
    compare({.rows = 1500, .queries = 70, .dim = 20, .k = 10, .values = values});
  for (const uint32_t k : {200u, 600u, 1024u})
    compare({.rows = 1500, .queries = 10, .dim = 8, .k = k, .values = Values::kDescending});
  compare({.element = ANN_U8,
           .rows = 2000,
           .queries = 66,
           .dim = 70,
           .values = Values::kGrid,
           .ids = true,
           .chunk_bytes_max = 64'000});
}

constexpr Claim kClaims[] = {
    {"devices are described", claim_descriptions},
    {"every dimension, element and metric", claim_dims},
    {"every number of rows and queries", claim_sizes},
    {"every k", claim_k},
    {"equal, zero, tiny, huge, descending, far and close values, with and without ids", claim_values},
    {"borrowed rows with gaps", claim_strides},
    {"rows that are removed", claim_removed},
    {"rows sent in turn", claim_chunks},
    {"the widest rows", claim_widest},
    {"many rows, many queries", claim_many},
    {"four threads at once", claim_threads},
    {"refusals", claim_refusals},
};

constexpr Claim kTimes[] = {{"times", times}};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  if (mode == "time") return run_claims(kTimes);
  if (mode == "race") return run_claims(kRaceClaims);
  const int status = run_claims(kClaims);
  std::printf("%llu cases, %llu answers equal on GPU and CPU\n",
              static_cast<unsigned long long>(cases_compared),
              static_cast<unsigned long long>(answers_compared));
  return status;
}

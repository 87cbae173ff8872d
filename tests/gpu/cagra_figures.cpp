// The figures of CAGRA's paper about its searches, and 5 about its graph, made again, as lines of CSV. Figures 3
// and 4 are made by graph_steps.cu.
//
//   cagra_figures ROWS QUERIES [ROWS_MAX [FIGURES [METRIC]]]
//
// ROWS and QUERIES are .u8bin or .f16bin files, FIGURES as 5,10 (by default 5, 8, 9 and 10), METRIC L2 (the
// default), cosine or ip.
//
//   5   single-CTA searches on the paper's graph, reordered by rank and by distance; and on graphs whose detours
//       go by the first `degree` entries of the lists, and on the default one
//   8   team sizes of 2 to 32, on short rows (the file's, as codes, f16 and f32) and on rows of 960
//       columns (made: 24 dimensions of normal noise in 960 columns, f16 and f32)
//   9   the forgettable table in shared memory, emptied in every iteration as in the paper or as it is by
//       default, against the standard one in device memory
//   10  single-CTA against multi-CTA, whose CTAs expand one row at a time, as in the paper, or up to 8, for one
//       query at a time and for 10,000 or as many as there are; on codes
//   13  recall against rate of many queries, rows as f32 and as f16
//   14  the same of queries one by one
//
// Batches are timed by CUDA events around the kernels of one run, single queries by a clock around
// ann_search_batch, host to host; both are medians. An answer counts as found if it is no farther than the
// k-th true neighbour. The graph is built on the device, 32 edges a row; figures 8 to 10 walk the default one. Ends
// with 77 without a device.

#include <ann.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "claims.h"
#include "index/snapshot.h"
#include "search/cagra_plan.h"
#include "search/host_batch.h"

namespace {

using namespace gannet;
using namespace gannet::test;

constexpr uint32_t kNeighbors = 10;
constexpr uint32_t kRepeats = 7;
constexpr uint32_t kDegree = 32;
constexpr uint32_t kBatch = 10'000;
constexpr uint32_t kSingles = 100;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void check_call(ann_status status, const ann_error& error) {
  if (status == ANN_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

Execution all_threads() {
  Execution all;
  all.threads = thread_count(0, 0);
  return all;
}

/// The same values as another element.
Rows converted(const Rows& from, int32_t element) {
  Rows to(element, 0, from.dim, Values::kEqual, 1);
  to.rows = from.rows;
  const uint64_t count = uint64_t{from.rows} * from.dim;
  to.bytes.resize(count * element_bytes(element));
  parallel_for(all_threads(), count, 1 << 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; ++i)
      float_to_element(element_to_float(from.bytes.data() + i * element_bytes(from.element), from.element, 0),
                       to.bytes.data() + i * element_bytes(element), element, 0);
  });
  return to;
}

/// f32 rows in `inner` dimensions of a space of `dim`, around 200 centres, with a little noise in all.
Rows made(uint32_t count, uint32_t dim, uint32_t inner, uint32_t seed) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> basis(size_t{dim} * inner);
  for (float& value : basis) value = normal(random);
  std::vector<float> centres(size_t{200} * inner);
  for (float& value : centres) value = 0.7f * normal(random);
  Rows rows(ANN_F32, 0, dim, Values::kEqual, 1);
  rows.rows = count;
  rows.bytes.resize(size_t{count} * dim * sizeof(float));
  float* values = reinterpret_cast<float*>(rows.bytes.data());
  parallel_for(all_threads(), count, 64, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> point(inner);
    for (uint64_t row = begin; row < end; ++row) {
      std::mt19937 own(static_cast<uint32_t>(row * 2 + seed));
      std::normal_distribution<float> noise;
      const uint32_t centre = own() % 200;
      for (uint32_t i = 0; i < inner; ++i) point[i] = centres[centre * inner + i] + noise(own);
      for (uint32_t column = 0; column < dim; ++column) {
        float sum = 0.1f * noise(own);
        for (uint32_t i = 0; i < inner; ++i) sum += basis[column * inner + i] * point[i];
        values[row * dim + column] = sum;
      }
    }
  });
  return rows;
}

class Set {
 public:
  Set(const std::string& name, const Rows& rows, const Rows& queries, int32_t graph = ANN_GRAPH_AUTO,
      int32_t detours = ANN_DETOURS_AUTO, int32_t reorder = ANN_REORDER_AUTO, int32_t metric = ANN_METRIC_L2)
      : name_(name), queries_(queries) {
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = metric;
    check_call(ann_index_create(nullptr, &shape, &index_, &error), error);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = kDegree;
    params.device = ANN_DEVICE_CUDA;
    params.calibrate = ANN_OFF;
    params.graph = graph;
    params.detours = detours;
    params.reorder = reorder;
    const ann_matrix matrix = matrix_of(rows, 0, rows.rows);
    check_call(ann_build(index_, &matrix, nullptr, &params, nullptr, &error), error);
    find_truth();
  }
  ~Set() { ann_index_free(index_); }
  Set(const Set&) = delete;

  static ann_search_params params(int32_t procedure, uint32_t beam) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = procedure;
    params.device = ANN_DEVICE_CUDA;
    params.beam = beam;
    return params;
  }

  /// One line for a batch of all queries.
  void time_batch(const char* figure, const char* variant, const ann_search_params& params) const {
    const Index::Call call(index_->index);
    const PlacedSegment& built = placed_of(call);
    const auto placement = built.devices.get(built, 0, all_threads());
    const uint32_t count = std::min(queries_.rows, kBatch);
    DeviceWorkspaceLease space(*placement->placement, count, kNeighbors);
    const ann_matrix queries = matrix_of(queries_, 0, count);
    fill_workspace(built.segment, read_matrix(&queries, "queries"), 0, count, *space, all_threads());
    const uint32_t beam =
        params.beam != 0 ? params.beam : built.curves(all_threads()).beam(kNeighbors, 0.95f);
    const CagraPlan plan =
        plan_cagra(built.segment, params, count, kNeighbors, cagra_list_of(kNeighbors, beam),
                   placement->placement->multiprocessors());
    std::vector<double> times;
    for (uint32_t i = 0; i < kRepeats + 2; ++i) {
      space->run(count, plan, {}, true);
      if (i >= 2) times.push_back(space->kernel_seconds());
    }
    report(figure, variant, params, count, recall_of(space->distances(), count),
           static_cast<double>(space->distance_count()) / count, median(times), "kernels");
  }

  /// One line for queries one by one.
  void time_singles(const char* figure, const char* variant, const ann_search_params& params) const {
    const uint32_t singles = std::min(kSingles, queries_.rows);
    std::vector<double> times;
    std::vector<float> distances(size_t{singles} * kNeighbors);
    uint64_t compared = 0;
    for (uint32_t query = 0; query < singles; ++query) {
      uint64_t ids[kNeighbors];
      ann_results results = ANN_RESULTS_INIT;
      results.k = kNeighbors;
      results.rows = 1;
      results.ids = ids;
      results.distances = distances.data() + size_t{query} * kNeighbors;
      const ann_matrix one = matrix_of(queries_, query, 1);
      ann_error error = ANN_ERROR_INIT;
      for (uint32_t i = 0; i < (query == 0 ? 3u : 1u); ++i) {
        const auto start = std::chrono::steady_clock::now();
        check_call(ann_search_batch(index_, &one, &params, &results, nullptr, &error), error);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        if (query > 0) times.push_back(time.count());
      }
      compared += results.distance_count;
    }
    report(figure, variant, params, 1, recall_of(distances.data(), singles),
           static_cast<double>(compared) / singles, median(times), "host to host");
  }

 private:
  /// The distance of each query's last true neighbour.
  void find_truth() {
    const uint32_t count = std::min(queries_.rows, kBatch);
    std::vector<uint64_t> ids(size_t{count} * kNeighbors);
    std::vector<float> distances(ids.size());
    ann_results results = ANN_RESULTS_INIT;
    results.k = kNeighbors;
    results.rows = count;
    results.ids = ids.data();
    results.distances = distances.data();
    const ann_matrix queries = matrix_of(queries_, 0, count);
    const ann_search_params exact = params(ANN_SEARCH_EXACT, 0);
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_search_exact(index_, &queries, &exact, &results, nullptr, &error), error);
    for (uint32_t query = 0; query < count; ++query)
      farthest_.push_back(distances[size_t{query} * kNeighbors + kNeighbors - 1]);
  }

  double recall_of(const float* distances, uint32_t count) const {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < uint64_t{count} * kNeighbors; ++i)
      hits += distances[i] <= farthest_[i / kNeighbors] ? 1 : 0;
    return static_cast<double>(hits) / (double{kNeighbors} * count);
  }

  void report(const char* figure, const char* variant, const ann_search_params& params, uint32_t batch,
              double recall, double distances, double seconds, const char* clock) const {
    std::printf("%s,\"%s\",%s,%u,%u,%.4f,%.0f,%.1f,%.3f,%s\n", figure, name_.c_str(), variant, params.beam,
                batch, recall, distances, seconds * 1e6, batch / seconds / 1e6, clock);
    std::fflush(stdout);
  }

  std::string name_;
  const Rows& queries_;
  ann_index* index_ = nullptr;
  std::vector<float> farthest_;
};

struct Variant {
  const char* name;
  int32_t graph;
  int32_t detours;
  int32_t reorder;
};

/// Figure 5. Figure 4 is the time of the same two reorderings.
void reorderings(const std::string& name, const Rows& rows, const Rows& queries, int32_t compare) {
  const Variant variants[] = {
      {"CAGRA by rank", ANN_GRAPH_CAGRA, ANN_DETOURS_WHOLE, ANN_REORDER_RANK},
      {"CAGRA by distance", ANN_GRAPH_CAGRA, ANN_DETOURS_WHOLE, ANN_REORDER_DISTANCE},
      {"CAGRA by rank near detours", ANN_GRAPH_CAGRA, ANN_DETOURS_NEAR, ANN_REORDER_RANK},
      {"AUTO", ANN_GRAPH_AUTO, ANN_DETOURS_NEAR, ANN_REORDER_RANK},
      {"AUTO whole detours", ANN_GRAPH_AUTO, ANN_DETOURS_WHOLE, ANN_REORDER_RANK}};
  for (const Variant& variant : variants) {
    const Set set(name, rows, queries, variant.graph, variant.detours, variant.reorder);
    for (const uint32_t beam : {32u, 64u, 128u, 256u, 512u}) {
      ann_search_params params = Set::params(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
      params.compare = compare;
      set.time_batch("5", variant.name, params);
    }
  }
}

void teams(const Set& set, const char* compared, int32_t compare, std::initializer_list<uint32_t> beams) {
  for (const uint32_t team : {2u, 4u, 8u, 16u, 32u}) {
    for (const uint32_t beam : beams) {
      ann_search_params params = Set::params(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
      params.compare = compare;
      params.team_size = team;
      set.time_batch("8", (std::string(compared) + " team " + std::to_string(team)).c_str(), params);
    }
  }
}

void tables(const Set& set, int32_t compare) {
  for (const uint32_t beam : {32u, 64u, 128u, 256u, 512u}) {
    ann_search_params params = Set::params(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
    params.compare = compare;
    params.hash_reset = ANN_NONE;
    set.time_batch("9", "standard", params);
    params.hash_reset = 1;
    set.time_batch("9", "forgettable reset 1", params);
    params.hash_reset = 0;
    set.time_batch("9", "forgettable default", params);
  }
}

void ctas(const Set& set) {
  for (const uint32_t beam : {32u, 64u, 128u, 256u, 512u, 1024u}) {
    const ann_search_params single = Set::params(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
    set.time_batch("10", "single-CTA", single);
    set.time_singles("10", "single-CTA", single);
    for (const uint32_t width : {1u, 2u, 4u, 8u}) {
      ann_search_params multi = Set::params(ANN_SEARCH_CAGRA_MULTI_CTA, beam);
      multi.search_width = width;
      const std::string variant = "multi-CTA p " + std::to_string(width);
      set.time_batch("10", variant.c_str(), multi);
      set.time_singles("10", variant.c_str(), multi);
    }
  }
}

/// Figures 13 and 14.
void precisions(const std::string& shape, const Rows& rows, const Rows& queries, int32_t metric,
                const std::function<bool(uint32_t)>& wanted) {
  for (const int32_t element : {ANN_F32, ANN_F16}) {
    const Rows same = converted(rows, element);
    const Rows asked = converted(queries, element);
    const Set set(shape + " " + element_name(element), same, asked, ANN_GRAPH_AUTO, ANN_DETOURS_AUTO,
                  ANN_REORDER_AUTO, metric);
    for (const uint32_t beam : {32u, 64u, 128u, 256u, 512u}) {
      ann_search_params params = Set::params(ANN_SEARCH_CAGRA_SINGLE_CTA, beam);
      params.compare = ANN_COMPARE_STORED;
      if (wanted(13)) set.time_batch("13", "stored", params);
      params.procedure = ANN_SEARCH_CAGRA_MULTI_CTA;
      if (wanted(14)) set.time_singles("14", "stored", params);
    }
  }
}

/// The figures that are asked for.
struct Wanted {
  explicit Wanted(const std::string& list) : figures("," + list + ",") {}
  bool operator()(uint32_t figure) const {
    return figures.find("," + std::to_string(figure) + ",") != std::string::npos;
  }
  std::string figures;
};

}  // namespace

int main(int count, char** arguments) {
  uint32_t devices = 0;
  const char* reason = "";
  if (ann_device_count(&devices, &reason, nullptr) != ANN_OK || devices < 2) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 3) {
    std::fprintf(stderr, "usage: cagra_figures ROWS QUERIES [ROWS_MAX [FIGURES [METRIC]]]\n");
    return 2;
  }
  const uint32_t rows_max = count > 3 ? static_cast<uint32_t>(std::atoi(arguments[3])) : ANN_ROWS_MAX;
  const Wanted wanted(count > 4 ? arguments[4] : "5,8,9,10");
  const int32_t metric = metric_named(count > 5 ? arguments[5] : "L2");
  std::printf(
      "figure,data,variant,beam,batch,recall,distances,microseconds,million queries per second,"
      "clock\n");
  {
    const Rows rows = read_vectors(arguments[1], rows_max);
    const Rows queries = read_vectors(arguments[2], kBatch);
    const std::string shape = std::to_string(rows.rows) + " x " + std::to_string(rows.dim);
    const std::string name = shape + " " + element_name(rows.element);
    if (wanted(5)) reorderings(name, rows, queries, ANN_COMPARE_CODES);
    if (wanted(8) || wanted(9) || wanted(10)) {
      const Set set(name, rows, queries, ANN_GRAPH_AUTO, ANN_DETOURS_AUTO, ANN_REORDER_AUTO, metric);
      if (wanted(8)) teams(set, "codes", ANN_COMPARE_CODES, {64u, 256u});
      if (wanted(9)) tables(set, ANN_COMPARE_CODES);
      if (wanted(10)) ctas(set);
    }
    if (wanted(13) || wanted(14)) precisions(shape, rows, queries, metric, wanted);
    if (wanted(8)) {
      const Rows half_queries = converted(queries, ANN_F16);
      for (const int32_t element : {ANN_F16, ANN_F32}) {
        const Rows same = converted(rows, element);
        const Set set(shape + " " + element_name(element), same, half_queries);
        teams(set, "stored", ANN_COMPARE_STORED, {64u});
      }
    }
  }
  if (!wanted(5) && !wanted(8) && !wanted(9)) return 0;
  const Rows rows = made(200'000, 960, 24, 0);
  const Rows queries = made(2000, 960, 24, 1);
  for (const int32_t element : {ANN_F16, ANN_F32}) {
    const Rows same = converted(rows, element);
    const std::string name = "made 200000 x 960 " + std::string(element_name(element));
    const bool half = element == ANN_F16;
    if (half && wanted(5)) reorderings(name, same, queries, ANN_COMPARE_STORED);
    if (!wanted(8) && !(half && wanted(9))) continue;
    const Set set(name, same, queries);
    if (wanted(8)) teams(set, "stored", ANN_COMPARE_STORED, {64u, 256u});
    if (half && wanted(8)) teams(set, "codes", ANN_COMPARE_CODES, {64u});
    if (half && wanted(9)) tables(set, ANN_COMPARE_STORED);
  }
  return 0;
}

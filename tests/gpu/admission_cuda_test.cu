// Claims about rows that searches on a CUDA device leave out. Every procedure walks through removed rows and returns
// none, and finds what its twin on the CPU finds; none compares a hidden row.
//
//   admission_cuda_test           all claims
//   admission_cuda_test quick     fewer and smaller cases, for compute-sanitizer
//   admission_cuda_test race      a handful, for its racecheck, which is slow
//   admission_cuda_test TEXT      claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <ann.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "claims.h"
#include "index/index.h"
#include "index/parameters.h"
#include "index/snapshot.h"
#include "search/device_search.h"
#include "search/exact.h"
#include "search/host_batch.h"

namespace {

using namespace gannet;
using namespace gannet::test;

uint32_t cases = 0;
bool quick = false;
bool race = false;

const Execution kTwoThreads{{}, 2, nullptr};

struct Case {
  int32_t element = ANN_U8;
  int32_t metric = ANN_METRIC_L2;
  int32_t graph = ANN_GRAPH_AUTO;
  uint32_t dim = 24;
  uint32_t k = 10;
  uint32_t degree = 0;
  bool ids = false;
  bool contrast =
      false;  // lengths of f32 from 1/64 to 4 times those of normal rows, so that codes are floats

  std::string name() const {
    return std::string(element_name(element)) + " " + metric_name(metric) + ", graph " +
           std::to_string(graph) + ", dim " + std::to_string(dim) + ", k " + std::to_string(k);
  }
};

uint32_t row_count() { return race ? 150 : quick ? 600 : 4000; }
uint32_t query_count() { return race ? 2 : quick ? 6 : 60; }

/// A segment on the CPU and on the first device.
struct Placed {
  Case c;
  Rows rows;
  Rows queries;
  std::vector<uint64_t> ids;
  std::unique_ptr<const PlacedSegment> built;
  std::unique_ptr<DevicePlacement> placement;

  explicit Placed(const Case& given)
      : c(given),
        rows(c.element, row_count(), c.dim, Values::kNormal, c.dim),
        queries(c.element, query_count(), c.dim, Values::kNormal, c.dim + 1) {
    if (c.contrast) {
      stretch_lengths(rows);
      stretch_lengths(queries);
    }
    for (uint32_t row = 0; c.ids && row < rows.rows; ++row) ids.push_back((row * 7919ull) % 1000003);
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = c.dim;
    shape.metric = c.metric;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.calibrate = ANN_OFF;
    params.graph = c.graph;
    params.degree = c.degree;
    const BuildPlan plan = plan_build(params, shape, rows.rows, 2);
    built = build(shape, rows.view(), c.ids ? ids.data() : nullptr, plan, nullptr, kTwoThreads);
    placement = cuda::place_for_search(0, built->segment, nullptr, kTwoThreads);
  }

  void stretch_lengths(Rows& made) const {
    std::mt19937 random(7);
    for (uint32_t row = 0; row < made.rows; ++row) {
      float* const values = reinterpret_cast<float*>(made.bytes.data() + row * made.stride);
      const float factor = std::ldexp(1.0f, static_cast<int>(random() % 9) - 6);
      for (uint32_t column = 0; column < c.dim; ++column) values[column] *= factor;
    }
  }

  SearchTarget target() const { return {built->host, placement.get()}; }
  uint32_t row_of(uint64_t id) const {
    if (!c.ids) return static_cast<uint32_t>(id);
    return static_cast<uint32_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
  }
};

struct Found {
  Found(uint64_t queries, uint32_t k) : k(k), ids(queries * k), distances(queries * k), counts(queries) {}
  ResultsView view() { return {k, ids.data(), distances.data(), counts.data(), nullptr}; }
  uint32_t k;
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  std::vector<uint32_t> counts;

  double share_of(const Found& truth) const {
    uint64_t hits = 0;
    uint64_t all = 0;
    for (size_t query = 0; query < counts.size(); ++query) {
      const uint64_t* begin = truth.ids.data() + query * k;
      for (uint32_t i = 0; i < truth.counts[query]; ++i, ++all)
        hits += std::find(begin, begin + k, ids[query * k + i]) != begin + k ? 1 : 0;
    }
    return all == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(all);
  }
};

/// A procedure, two lists with each number of warps.
struct Way {
  const Procedure* procedure;
  uint32_t warps;
  std::string name() const { return procedure->name + (warps != 0 ? " of " + std::to_string(warps) : ""); }
};

std::vector<Way> ways() {
  std::vector<Way> out;
  for (const Procedure* procedure : procedures()) {
    if (!procedure->on_device || procedure->stands_for != nullptr)
      continue;  // another row does what it is asked
    if (procedure->id == ANN_SEARCH_TWO_LISTS)
      out.insert(out.end(), {{procedure, 1}, {procedure, 8}, {procedure, 16}});
    else
      out.push_back({procedure, 0});
  }
  return out;
}

/// A long search by a procedure: the last value of its knob, or one that finds nearly everything.
SearchPlan plan_of(const Placed& placed, const Way& way, const SearchTarget& target) {
  const Procedure& procedure = *way.procedure;
  Effort effort = procedure.knob == Knob::kSlack ? Effort{0.5, 4096, 1} : Effort{400, 0, 1};
  effort.warps = way.warps;
  for (uint32_t step = 0; procedure.knob_at != nullptr; ++step) {
    const auto knob = procedure.knob_at(target, placed.c.k, step);
    if (!knob) break;
    effort.knob = *knob;
  }
  SearchRequest request{ANN_SEARCH_PARAMS_INIT, 0.95f, placed.queries.rows, placed.c.k, placed.c.k};
  request.params.procedure = procedure.id;
  return procedure.plan(target, request, effort);
}

/// Whether a plan is one of blocks or warps that the placement's lists serve.
bool serves(const Placed& placed, const Way& way, const SearchPlan& plan) {
  const auto* two_lists = std::get_if<TwoListsPlan>(&plan);
  if (two_lists == nullptr) return true;
  const bool lossless = placed.placement->view().lossless;
  if (way.warps == 16 && list_length(placed.c.k, lossless) > kWideBlockListMax) return false;
  return two_lists->uses_blocks() ? blocks_serve(*placed.placement, placed.c.k)
                                  : two_lists_serve(placed.c.k, lossless);
}

void answer(const Placed& placed, const Procedure& procedure, const SearchPlan& plan,
            const RowSetView& removed, Found* found) {
  SearchBatch batch{placed.queries.view(), found->view(), nullptr, {removed, {}, nullptr}};
  SearchCounts counts;
  answer_batch(placed.target(), procedure, plan, batch, kTwoThreads, &counts);
}

template <class T>
struct OnDevice {
  explicit OnDevice(size_t count) {
    expect(cudaMalloc(&data, count * sizeof(T)) == cudaSuccess, "cudaMalloc");
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data); }
  T* data = nullptr;
};

/// The same with queries and answers in device memory, on a stream of the caller's.
void answer_on_device(const Placed& placed, const Procedure& procedure, const SearchPlan& plan,
                      const RowSetView& removed, Found* found) {
  const OnDevice<uint8_t> queries(placed.queries.rows * placed.queries.stride);
  const OnDevice<uint64_t> ids(found->ids.size());
  const OnDevice<float> distances(found->distances.size());
  const OnDevice<uint32_t> counts(found->counts.size());
  cudaStream_t stream;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
  cudaMemcpy(queries.data, placed.queries.view().data, placed.queries.rows * placed.queries.stride,
             cudaMemcpyHostToDevice);
  cudaDeviceSynchronize();
  SearchBatch batch{placed.queries.view(),
                    {found->k, ids.data, distances.data, counts.data, nullptr},
                    stream,
                    {removed, {}, nullptr}};
  batch.queries.data = queries.data;
  batch.queries.space = ANN_DEVICE_CUDA;
  SearchCounts counted;
  answer_batch(placed.target(), procedure, plan, batch, kTwoThreads, &counted);
  cudaStreamSynchronize(stream);
  cudaMemcpy(found->ids.data(), ids.data, found->ids.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost);
  cudaMemcpy(found->distances.data(), distances.data, found->distances.size() * sizeof(float),
             cudaMemcpyDeviceToHost);
  cudaMemcpy(found->counts.data(), counts.data, found->counts.size() * sizeof(uint32_t),
             cudaMemcpyDeviceToHost);
  cudaStreamDestroy(stream);
}

void check_answers(const Placed& placed, const RowSet& removed, const Found& found, const std::string& what) {
  for (size_t query = 0; query < found.counts.size(); ++query) {
    for (uint32_t i = 0; i < found.counts[query]; ++i) {
      const uint32_t row = placed.row_of(found.ids[query * found.k + i]);
      expect(row < placed.rows.rows, what + ": no row");
      expect(!removed.holds(row), what + ": a removed row is returned");
    }
    for (uint32_t i = found.counts[query]; i < found.k; ++i)
      expect(found.ids[query * found.k + i] == ANN_ID_NONE, what + ": a place behind the answers");
  }
  ++cases;
}

/// Every procedure of a device with `left` rows of every `of` left in.
void check_removed(const Placed& placed, uint32_t left, uint32_t of) {
  RowSet removed({}, placed.rows.rows);
  for (uint32_t row = 0; row < placed.rows.rows; ++row)
    if (random_below(of, 91, 0, row) >= left) removed.insert(row);
  Found truth(placed.queries.rows, placed.c.k);
  const Dataset& dataset = placed.built->segment.dataset;
  search_exact(dataset, QueryBlock(dataset, placed.queries.view(), {}), {removed.view(), {}, nullptr},
               truth.view(), kTwoThreads);
  const bool most_are_left = 2 * left >= of;
  const bool has_many_removed = 4 * left <= 3 * of;
  for (const Way& way : ways()) {
    const Procedure* const procedure = way.procedure;
    const SearchTarget target = placed.target();
    const SearchPlan plan = plan_of(placed, way, target);
    if (!serves(placed, way, plan)) continue;
    const std::string what = placed.c.name() + ", " + way.name() + ", " + std::to_string(left) + " of " +
                             std::to_string(of) + " rows left";
    Found found(placed.queries.rows, placed.c.k);
    answer(placed, *procedure, plan, removed.view(), &found);
    check_answers(placed, removed, found, what);
    // What the others find is what the twin finds, and that is looked at below.
    const bool has_twin = procedure->on_host && !std::holds_alternative<BeamPlan>(plan);
    if (most_are_left && !has_twin)
      expect(found.share_of(truth) > 0.9, what + ": recall " + std::to_string(found.share_of(truth)));
    if (procedure->id == ANN_SEARCH_EXACT)
      expect(found.ids == truth.ids && found.distances == truth.distances, what + ": not the exact answers");
    if (procedure->on_host && std::holds_alternative<BeamPlan>(plan)) {
      Found twin(placed.queries.rows, placed.c.k);
      SearchBatch batch{placed.queries.view(), twin.view(), nullptr, {removed.view(), {}, nullptr}};
      SearchCounts counts;
      procedure->run_on_host(placed.built->host, batch, plan, kTwoThreads, &counts);
      // The filter of rows met takes some new ones for old.
      expect(found.share_of(twin) > 0.995, what + ": answers are not the twin's");
    } else if (procedure->on_host && procedure->id != ANN_SEARCH_EXACT) {
      Found twin(placed.queries.rows, placed.c.k);
      SearchBatch batch{placed.queries.view(), twin.view(), nullptr, {removed.view(), {}, nullptr}};
      SearchCounts counts;
      procedure->run_on_host(placed.built->host, batch, plan, kTwoThreads, &counts);
      expect(found.ids == twin.ids, what + ": answers are not the twin's");
      expect(found.distances == twin.distances, what + ": distances are not the twin's");
      expect(found.counts == twin.counts, what + ": counts are not the twin's");
    }
    if (race) continue;
    Found there(placed.queries.rows, placed.c.k);
    answer_on_device(placed, *procedure, plan, removed.view(), &there);
    expect(there.ids == found.ids, what + ": other answers in device memory");
    // Without the set the workspace that has held it forgets it.
    Found whole(placed.queries.rows, placed.c.k);
    answer(placed, *procedure, plan, {}, &whole);
    bool finds_removed = false;
    for (const uint64_t id : whole.ids)
      finds_removed |= id != ANN_ID_NONE && removed.holds(placed.row_of(id));
    expect(finds_removed || !has_many_removed, what + ": removed rows are missing where none is removed");
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const int32_t graph : {ANN_GRAPH_AUTO, ANN_GRAPH_GGNN, ANN_GRAPH_TSDG}) {
    out.push_back({ANN_U8, ANN_METRIC_L2, graph, 24, 10, 0, false});
    if (race) continue;
    out.push_back({ANN_F32, ANN_METRIC_COSINE, graph, 40, 10, 0, true});
  }
  if (race) return out;
  out.push_back({ANN_U8, ANN_METRIC_L2, ANN_GRAPH_AUTO, 128, 10, 64, false});  // walks at once
  out.push_back({ANN_I8, ANN_METRIC_L2, ANN_GRAPH_AUTO, 70, 30, 16, false});
  out.push_back({ANN_F32, ANN_METRIC_L2, ANN_GRAPH_AUTO, 3, 10, 0, false});  // codes are floats
  for (const uint32_t k : {10u, 100u})                                       // which bytes stand in for
    out.push_back({ANN_F32, ANN_METRIC_L2, ANN_GRAPH_AUTO, 96, k, 0, false, true});
  out.push_back({ANN_F32, ANN_METRIC_INNER_PRODUCT, ANN_GRAPH_AUTO, 33, 10, 0, true});
  out.push_back({ANN_F16, ANN_METRIC_L2, ANN_GRAPH_AUTO, 600, 100, 0, false});
  out.push_back({ANN_U8, ANN_METRIC_L2, ANN_GRAPH_AUTO, 16, 200, 0, false});
  return out;
}

void claim_removed() {
  for (const Case& c : all_cases()) {
    const Placed placed(c);
    check_removed(placed, 6, 10);
    if (quick || race) continue;
    check_removed(placed, 999, 1000);
    check_removed(placed, 1, 50);
  }
}

/// Each query is one of the rows that are hidden, and would be its own first answer if it were ever compared.
void claim_hidden() {
  for (const Case& c : all_cases()) {
    Placed placed(c);
    std::set<uint32_t> chosen;
    for (uint32_t i = 0; chosen.size() < placed.rows.rows / 16; ++i)
      chosen.insert(random_below(placed.rows.rows, 17, 1, i));
    // Rows that are hidden are no entry points of islands (graph/long_edges.h), but may be any of the others.
    for (const uint32_t head : placed.built->segment.graph.heads) chosen.erase(head);
    const std::vector<uint32_t> hidden(chosen.begin(), chosen.end());
    const uint32_t count = std::min(placed.queries.rows, static_cast<uint32_t>(hidden.size()));
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(const_cast<uint8_t*>(placed.queries.view().row(i)), placed.rows.view().row(hidden[i]),
                  placed.rows.stride);
    expect(placed.placement->hide_rows(hidden.data(), static_cast<uint32_t>(hidden.size())), "hide_rows");
    for (const Way& way : ways()) {
      const SearchTarget target = placed.target();
      if (way.procedure->id == ANN_SEARCH_EXACT) continue;
      const SearchPlan plan = plan_of(placed, way, target);
      if (!serves(placed, way, plan)) continue;
      const std::string what = c.name() + ", " + way.name();
      DeviceWorkspaceLease workspace(*placed.placement, count, c.k);
      fill_workspace(placed.built->segment, placed.queries.view(), 0, count, *workspace, kTwoThreads);
      workspace->run(count, plan, {.bypass = true}, false);
      uint32_t answers = 0;
      for (uint32_t i = 0; i < count * c.k; ++i) {
        if (workspace->rows()[i] == kNoRow) continue;
        ++answers;
        expect(!chosen.contains(workspace->rows()[i]), what + ": a hidden row is returned");
      }
      expect(answers > 0, what + ": no answers");
      ++cases;
    }
    placed.placement->show_rows();
  }
}

constexpr Claim kClaims[] = {
    {"removed rows are walked through and never returned", claim_removed},
    {"hidden rows are never compared", claim_hidden},
};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  race = mode == "race";
  const int status = quick || race ? run_claims(kClaims) : run_claims(kClaims, mode);
  std::printf("%u searches leave out the rows that they must\n", cases);
  return status;
}

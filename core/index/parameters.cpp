#include "index/parameters.h"

#include <algorithm>

#include "backend/devices.h"
#include "base/execution.h"
#include "dataset/codes.h"
#include "knn/cells_effort.h"

namespace gannet {
namespace {

constexpr uint32_t kDegreeDefault = 32;
constexpr uint32_t kDegreeOfMany = 48;
constexpr uint32_t kDegreeOfHard = 64;
/// Words and SIFT lie just below it, and would hardly take less or more time.
constexpr double kHardDimension = 22;
constexpr uint64_t kManyRows = 100'000;
constexpr uint32_t kNarrowColumns = 256;
constexpr uint32_t kGgnnDegreeDefault = 24;  // of the paper for SIFT

// "We will typically set d_init to be 2d or 3d" (CAGRA, section III-B1); its figures are of 3d.
constexpr uint32_t kCagraListsPerDegree = 3;

// TSDG. The paper's alpha is "usually greater than 1.1", its lists of SIFT have 200 rows, and searches of few queries
// read factors below 10 (sections 3.2, 5.2 and 5.4). Rows of at most 128 edges cut the longest of hubs.
constexpr uint32_t kTsdgDegree = 128;
constexpr uint32_t kTsdgNeighbors = 200;
constexpr float kTsdgAlpha = 1.1f;
constexpr float kVamanaAlpha = 1.2f;
constexpr uint32_t kTsdgLevels = 10;
constexpr uint32_t kTsdgReverse = 256;
constexpr uint32_t kSsgPool = 500;
constexpr float kSsgAngle = 60;
constexpr uint32_t kReverseMax = 4096;
constexpr uint32_t kPoolMax = 4096;
constexpr uint32_t kSamplesDefault = 16;
constexpr uint32_t kIterationsDefault = 24;
constexpr float kConvergenceDefault = 0.02f;

void check_range(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value < low || value > high)
    fail(value > high ? ANN_LIMIT : ANN_INVALID_ARGUMENT, "%s is %llu, allowed are %llu to %llu", name,
         static_cast<unsigned long long>(value), static_cast<unsigned long long>(low),
         static_cast<unsigned long long>(high));
}

void check_choice(const char* name, int32_t value, int32_t high) {
  if (value < 0 || value > high)
    fail(ANN_INVALID_ARGUMENT, "%s is %d, allowed are 0 to %d", name, value, high);
}

void check_float(const char* name, float value, float low, float high) {
  if (!(value >= low && value <= high))
    fail(ANN_INVALID_ARGUMENT, "%s is %g, allowed are %g to %g", name, static_cast<double>(value),
         static_cast<double>(low), static_cast<double>(high));
}

/// Lists longer than every method finds come from the caller, or from comparing all rows on the CPU.
uint32_t neighbors_max(const BuildPlan& plan) {
  const bool any_length =
      plan.graph == ANN_GRAPH_TSDG &&
      (plan.knn == ANN_KNN_GIVEN || (plan.knn == ANN_KNN_EXACT && plan.device < ANN_DEVICE_CUDA));
  return any_length ? ANN_KNN_DEGREE_MAX : kKnnListMax;
}

DiversifyParams complete_diversify(const ann_build_params& params, uint32_t degree) {
  check_choice("diversify", params.diversify, ANN_DIVERSIFY_VAMANA);
  const auto or_default = [](auto value, auto otherwise) { return value != 0 ? value : otherwise; };
  DiversifyParams out;
  out.method = or_default(params.diversify, int32_t{ANN_DIVERSIFY_TSDG});
  const bool two_stages = out.method == ANN_DIVERSIFY_TSDG;
  const bool relaxed = two_stages || out.method == ANN_DIVERSIFY_VAMANA;
  if (params.alpha != 0 && !relaxed)
    fail(ANN_INVALID_ARGUMENT, "alpha is %g, it must be 0 where diversify is %d, which has none",
         static_cast<double>(params.alpha), out.method);
  if (params.occlusion_bound != 0 && !two_stages)
    fail(ANN_INVALID_ARGUMENT,
         "occlusion_bound is %u, it must be 0 where diversify is %d, which counts no factors",
         params.occlusion_bound, out.method);
  out.alpha = relaxed ? or_default(params.alpha, two_stages ? kTsdgAlpha : kVamanaAlpha) : 1.0f;
  check_float("alpha", out.alpha, 1, 4);
  out.levels = two_stages ? or_default(params.occlusion_bound, kTsdgLevels) : 1;
  check_range("occlusion_bound", out.levels, 1, kOcclusionLevelsMax);
  out.degree = degree;
  out.reverse_max = or_default(params.reverse_max, kTsdgReverse);
  check_range("reverse_max", out.reverse_max, 1, kReverseMax);
  out.pool = or_default(params.pool, kSsgPool);
  check_range("pool", out.pool, 1, kPoolMax);
  if (out.method != ANN_DIVERSIFY_SSG) out.pool = 0;
  out.angle = or_default(params.angle, kSsgAngle);
  check_float("angle", out.angle, 1, 90);
  return out;
}

/// The edges of a row. Of many narrow rows 48: walks expand fewer, read as many edges and need fewer steps. Time with 48
/// edges and with 64 as a part of that with 32, at the recall got, one NVIDIA H100 in batches of 10,000, and one thread of
/// an AMD EPYC:
///
///                                   .95           .99           .99, k = 100    .99, the CPU
///     SIFT 1M, 128 columns       .96   .93     .77   .73       .77   .66         .93     -
///     patches, 850,000, 192     1.07  1.16     .83   .97         -     -         .86     -
///     words, 150,000, 100       1.00   .99     .93   .89       .90   .85         .89   .79
///     texts, 100,000, 384       1.05  1.04     .97   .94       .82   .80        1.13  1.21
///     gist, 30,000, 960          .98  1.04     .91   .96       .93   .91        1.00   .89
///     product, foreign          1.56  1.58    1.11  1.13      1.06  1.02         .67   .74
///
/// .999 of the patches takes 6 ms with 48 and is not reached with 32; by product lists of 32 promise nearer to what they
/// find. Builds take 1.0 to 1.2 times as long, and each edge 4 bytes a row.
/// Not where lists of fewer neighbours are asked for.
uint32_t degree_default(const ann_index_params& shape, uint64_t rows, uint32_t knn_degree) {
  const bool is_narrow = shape.dim <= kNarrowColumns && shape.metric != ANN_METRIC_INNER_PRODUCT;
  const bool has_lists = knn_degree == 0 || knn_degree >= kDegreeOfMany;
  return is_narrow && has_lists && rows >= kManyRows ? kDegreeOfMany : kDegreeDefault;
}

/// On a device many narrow rows get 64 edges, from the same lists, where neighbours are hard to tell apart, which cells see
/// by the local intrinsic dimension (knn/cells_recall.cu): it is 24 of rows uniform in 32 columns, 27 of five shells in
/// 24, 22 and 21 of words and SIFT 100k, 15 of normal rows in 16, 9 of patches. The time as a part of that with 48, one
/// NVIDIA H200, 500,000 rows (SIFT 1M), batches of 10,000 and of 1,000:
///
///                        .95    .99   .99, k = 100   1,000 at .95    .99
///     uniform            .83    .80            .83            .88    .93
///     shells             .87    .94            .87            .90    .87
///     SIFT               .95    .90            .84            .90    .93
///     words             1.00    .96            .95            .99    .97
///
/// Walks of the CPU gain a tenth by it on uniform rows and lose a fifth on shells. Of 256 columns and more, GIST (23) takes
/// 1.05 times as long at .95 and .90 at .99.
bool degree_goes_by_data(const BuildPlan& plan, const ann_build_params& params) {
  const bool has_lists = params.knn_degree == 0 || params.knn_degree >= kDegreeOfHard;
  return params.graph == ANN_GRAPH_AUTO && params.degree == 0 && has_lists && plan.degree == kDegreeOfMany &&
         plan.knn == ANN_KNN_CELLS && plan.device >= ANN_DEVICE_CUDA;
}

/// Neighbours of a row that a search graph is pruned from. Lists by cells on a device are short, at 64,
/// or long; on the CPU those of 72 took SIFT 1M 22.3 s and of 64 20.3 s, and walks found as much. `paper`: of the graph as
/// CAGRA's paper has it.
uint32_t knn_degree_default(const BuildPlan& plan, bool paper) {
  if (plan.graph == ANN_GRAPH_TSDG) return kTsdgNeighbors;
  if (paper) return std::min(plan.degree * kCagraListsPerDegree, ANN_DEGREE_MAX);
  const uint32_t k = std::min(plan.degree + plan.degree / 2, ANN_DEGREE_MAX);
  const bool on_device = plan.device >= ANN_DEVICE_CUDA;
  const bool short_lists =
      plan.knn == ANN_KNN_CELLS && plan.degree <= (on_device ? cuda::kShortList : kDegreeOfMany);
  return short_lists ? std::min(k, cuda::kShortList) : k;
}

}  // namespace

void check_shape(ann_index_params* shape) {
  check_range("dim", shape->dim, 1, ANN_DIM_MAX);
  check_choice("metric", shape->metric, ANN_METRIC_COSINE);
  check_choice("element", shape->element, ANN_U8);
  if (shape->metric == ANN_METRIC_AUTO) shape->metric = ANN_METRIC_L2;
}

NnDescentParams complete_nn_descent(uint32_t k, uint32_t samples, uint32_t iterations, float convergence,
                                    uint64_t seed) {
  NnDescentParams params{k, samples, iterations, convergence, seed};
  if (params.samples == 0) params.samples = std::min(kSamplesDefault, k);
  if (params.iterations == 0) params.iterations = kIterationsDefault;
  if (params.convergence == 0) params.convergence = kConvergenceDefault;
  if (params.seed == 0) params.seed = 1;
  if (params.samples < 2 && samples != 0)
    fail(ANN_INVALID_ARGUMENT, "samples is %u, allowed are 2 to 64, at most k (%u)", samples, k);
  if (samples > std::max(2u, std::min(64u, k)))
    fail(ANN_INVALID_ARGUMENT, "samples is %u, allowed are 2 to 64, at most k (%u)", samples, k);
  if (params.iterations > 1000)
    fail(ANN_INVALID_ARGUMENT, "iterations is %u, allowed are 1 to 1000", iterations);
  if (!(params.convergence > 0 && params.convergence < 1))
    fail(ANN_INVALID_ARGUMENT, "convergence is %g, allowed is more than 0 and less than 1",
         static_cast<double>(convergence));
  return params;
}

NnDescentParams complete_list_search(uint32_t k, uint32_t samples, uint32_t iterations, float convergence,
                                     uint64_t seed) {
  complete_nn_descent(k, samples, iterations, convergence, seed);  // refuses values out of range
  const uint32_t searched = std::max(k, kListLeast);
  return complete_nn_descent(searched, samples, iterations, convergence, seed);
}

/// GGNN's parameters for a number of edges, completed and checked.
GgnnParams complete_ggnn(const ann_build_params& params, uint32_t degree) {
  if (params.knn != ANN_KNN_AUTO)
    fail(ANN_INVALID_ARGUMENT,
         "knn is %d, it must be ANN_KNN_AUTO (0) for graph GGNN, which finds neighbours itself", params.knn);
  GgnnParams ggnn;
  ggnn.k = degree;
  ggnn.seed = params.seed != 0 ? params.seed : 1;
  ggnn.segment = params.segment_rows != 0 ? params.segment_rows : ggnn_segment_of(degree);
  check_range("segment_rows", ggnn.segment, degree / 2 + 1, kGgnnSegmentMax);
  if (params.layers != 0) ggnn.layers = params.layers;
  check_range("layers", ggnn.layers, 2, kGgnnLayersMax);
  if (params.refinements < ANN_NONE || params.refinements > kGgnnRefinementsMax)
    fail(ANN_INVALID_ARGUMENT, "refinements is %d, allowed are ANN_NONE (-1) and 0 to %d", params.refinements,
         kGgnnRefinementsMax);
  if (params.refinements != 0)
    ggnn.refinements = params.refinements == ANN_NONE ? 0 : static_cast<uint32_t>(params.refinements);
  if (params.build_stretch != 0) {
    if (!(params.build_stretch >= 1 && params.build_stretch <= 3))
      fail(ANN_INVALID_ARGUMENT, "build_stretch is %g, allowed are 1 to 3",
           static_cast<double>(params.build_stretch));
    ggnn.tau = params.build_stretch - 1;
  }
  check_choice("build_slack", params.build_slack, ANN_SLACK_SQUARES);
  ggnn.squares = params.build_slack == ANN_SLACK_SQUARES;
  if (params.build_stretch == 0 && ggnn.squares) ggnn.tau = kGgnnTauBuildOfSquares;
  check_choice("midpoint", params.midpoint, ANN_OFF);
  ggnn.midpoint = params.midpoint != ANN_OFF;
  return ggnn;
}

/// Which detours count, and how their edges are compared.
Pruning complete_pruning(const ann_build_params& params, uint32_t degree, uint32_t k, bool paper) {
  check_choice("detours", params.detours, ANN_DETOURS_WHOLE);
  check_choice("reorder", params.reorder, ANN_REORDER_DISTANCE);
  const bool whole = params.detours != ANN_DETOURS_AUTO ? params.detours == ANN_DETOURS_WHOLE : paper;
  return {degree, whole ? k : degree, params.reorder == ANN_REORDER_DISTANCE};
}

const Pruning& pruning_for(const BuildPlan& plan, double dimension) {
  return dimension >= kHardDimension ? plan.pruning : plan.easy_pruning;
}

bool reads_copy(const BuildPlan& plan, bool by_product) {
  return by_product || plan.finished || (plan.knn == ANN_KNN_GIVEN && plan.pruning.by_distance);
}

bool sends_rows_ahead(const BuildPlan& plan, int32_t metric, int32_t element) {
  return plan.device >= ANN_DEVICE_CUDA && plan.graph == ANN_GRAPH_CAGRA &&
         metric != ANN_METRIC_INNER_PRODUCT && !Codes::rows_serve(metric, element, false) &&
         !reads_copy(plan, false);
}

BuildPlan plan_build(const ann_build_params& params, const ann_index_params& shape, uint64_t rows,
                     uint32_t threads_max) {
  check_choice("graph", params.graph, ANN_GRAPH_GIVEN);
  if (params.knn == ANN_KNN_GGNN)
    fail(ANN_INVALID_ARGUMENT,
         "knn is %d (GGNN), which ann_knn_graph alone does; its lists may be given (%d), and graph GGNN "
         "finds its own",
         params.knn, ANN_KNN_GIVEN);
  check_choice("knn", params.knn, ANN_KNN_CELLS);
  check_choice("rows_mode", params.rows_mode, ANN_ROWS_BORROW);
  check_choice("repair", params.repair, ANN_OFF);
  check_choice("calibrate", params.calibrate, ANN_OFF);
  if (params.device < 0) fail(ANN_INVALID_ARGUMENT, "device is %d, allowed are 0 and more", params.device);
  if (params.reserved_3 != 0) fail(ANN_INVALID_ARGUMENT, "reserved_3 is %d, it must be 0", params.reserved_3);
  if (params.reserved != 0) fail(ANN_INVALID_ARGUMENT, "reserved is %d, it must be 0", params.reserved);
  if (rows > ANN_ROWS_MAX)
    fail(ANN_LIMIT, "rows is %llu, at most %u are allowed", static_cast<unsigned long long>(rows),
         ANN_ROWS_MAX);

  BuildPlan plan;
  const bool paper = params.graph == ANN_GRAPH_CAGRA;
  plan.finished = params.graph == ANN_GRAPH_GIVEN;
  plan.graph = params.graph == ANN_GRAPH_AUTO || plan.finished ? int32_t{ANN_GRAPH_CAGRA} : params.graph;
  const bool is_ggnn = plan.graph == ANN_GRAPH_GGNN;
  plan.device = choose_device(params.device);
  plan.knn = params.knn;
  if (plan.knn == ANN_KNN_AUTO)
    plan.knn = paper ? ANN_KNN_NN_DESCENT : rows <= kExactKnnRows ? ANN_KNN_EXACT : ANN_KNN_CELLS;
  plan.borrow = params.rows_mode == ANN_ROWS_BORROW;
  plan.repair = paper || plan.finished ? params.repair == ANN_ON : params.repair != ANN_OFF;
  plan.calibrate = params.calibrate != ANN_OFF;
  const bool tsdg = plan.graph == ANN_GRAPH_TSDG;
  const uint32_t usual = tsdg                             ? kTsdgDegree
                         : is_ggnn                        ? kGgnnDegreeDefault
                         : params.graph == ANN_GRAPH_AUTO ? degree_default(shape, rows, params.knn_degree)
                                                          : kDegreeDefault;
  if (plan.finished &&
      (params.knn != ANN_KNN_GIVEN || (params.degree != 0 && params.degree != params.knn_degree)))
    fail(ANN_INVALID_ARGUMENT,
         "graph is GIVEN, but knn is %d, knn_degree %u and degree %u; knn must be ANN_KNN_GIVEN (%d), and "
         "degree 0 or knn_degree",
         params.knn, params.knn_degree, params.degree, ANN_KNN_GIVEN);
  plan.degree = params.degree != 0 ? params.degree : plan.finished ? params.knn_degree : usual;
  check_range("degree", plan.degree, 2, ANN_DEGREE_MAX);
  const uint32_t easy_degree = plan.degree;
  if (degree_goes_by_data(plan, params)) plan.degree = kDegreeOfHard;
  if (tsdg) plan.diversify = complete_diversify(params, plan.degree);
  if (is_ggnn) plan.ggnn = complete_ggnn(params, plan.degree);
  const bool given = params.knn == ANN_KNN_GIVEN;
  if (given && params.knn_graph == nullptr && rows > 0)
    fail(ANN_INVALID_ARGUMENT, "knn is GIVEN, but knn_graph is null");
  if (!given && params.knn_graph != nullptr)
    fail(ANN_INVALID_ARGUMENT, "knn_graph is given, but knn is %d; it must be ANN_KNN_GIVEN (%d)", params.knn,
         ANN_KNN_GIVEN);
  uint32_t k = params.knn_degree;
  if (k == 0 && !given) k = knn_degree_default(plan, paper);
  check_range("knn_degree", k, given || tsdg ? 1 : plan.degree, neighbors_max(plan));
  plan.nn_descent =
      complete_nn_descent(k, params.samples, params.iterations, params.convergence, params.seed);
  plan.pruning = complete_pruning(params, plan.degree, k, paper);
  plan.easy_pruning = complete_pruning(params, easy_degree, k, paper);
  plan.knn_graph = params.knn_graph;
  plan.threads = thread_count(params.threads, threads_max);
  plan.memory_limit = params.memory_limit;
  return plan;
}

}  // namespace gannet

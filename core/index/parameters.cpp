#include "index/parameters.h"

#include <algorithm>
#include <cmath>

#include "backend/devices.h"
#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/product_edges.h"
#include "graph/search_graph.h"
#include "index/reach.h"
#include "index/rows_judge.h"
#include "tune/calibration.h"
#include "segment/query_sample.h"
#include "knn/cells.h"
#include "knn/cells_effort.h"
#include "knn/exact_knn_launch.h"
#include "knn/find_neighbors.h"

namespace gannet {
namespace {

constexpr uint32_t kDegreeDefault = 32;
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
constexpr uint32_t kNarrowColumns = 4;  // of which codes are likely to be bytes

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

/// Lists longer than those of other graphs come from the caller, or from comparing all rows on the CPU.
uint32_t neighbors_max(const BuildPlan& plan) {
  const bool any_length =
      plan.graph == ANN_GRAPH_TSDG &&
      (plan.knn == ANN_KNN_GIVEN || (plan.knn == ANN_KNN_EXACT && plan.device < ANN_DEVICE_CUDA));
  return any_length ? ANN_KNN_DEGREE_MAX : ANN_DEGREE_MAX;
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

/// Time of one thread to find neighbours among rows whose codes have so many bytes.
double finding_seconds(double rows, double bytes, const BuildPlan& plan) {
  if (plan.graph == ANN_GRAPH_GGNN) {
    // A merge of all rows for each layer and each refinement, each query some 3,000 pairs and their lists.
    const double merges = plan.ggnn.layers + plan.ggnn.refinements;
    return rows * merges * 3000 * (2e-8 + 3e-11 * bytes);
  }
  if (plan.knn == ANN_KNN_CELLS) {
    // Pairs a row: products grow with about the root of the rows, settling with the rows; selection
    // and order take as long as some thousand more.
    const double pairs = 28 * std::sqrt(rows) + rows / 96 + 3000;
    return rows * pairs * (1e-10 + 7e-12 * bytes);
  }
  const double samples = plan.nn_descent.samples / 16.0;
  const double pairs = plan.knn == ANN_KNN_EXACT ? rows : 12 * 1536 * samples * samples;
  return rows * pairs * (6e-9 + 3e-11 * bytes);
}

/// Whether codes are likely to be floats, which the rows themselves decide (dataset/codes.h): where few
/// columns leave few bytes for all rows. Of rows spread evenly over a box the sampled ones lie 16 steps apart
/// from 4 columns on.
bool likely_wide(uint32_t dim, int32_t metric, int32_t element) {
  return !Codes::rows_serve(metric, element, false) && dim < kNarrowColumns;
}

/// Memory that build_cuda.cu holds at most: of its phases, each with what the next ones need. Codes and edges
/// stay.
uint64_t device_bytes(const ann_index_params& shape, uint64_t rows, int32_t element, const BuildPlan& plan) {
  if (plan.graph == ANN_GRAPH_NONE) return 0;
  const bool wide = likely_wide(shape.dim, shape.metric, element);
  const size_t stride = Codes::code_stride(shape.dim, shape.metric, wide);
  // What else of a row the index's copy takes, where codes are lossy.
  const uint64_t row =
      Codes::rows_serve(shape.metric, element, false)
          ? 0
          : Dataset::stored_stride(shape.dim, shape.metric, element) +
                (shape.metric == ANN_METRIC_COSINE ? sizeof(float) : 0) +
                (shape.metric == ANN_METRIC_INNER_PRODUCT ? ScaledCodes::code_stride(shape.dim) : 0);
  const uint64_t k = plan.nn_descent.k;
  const uint64_t p = plan.nn_descent.samples;
  const uint64_t codes = rows * (stride + 4);
  const uint64_t lists = rows * k * (plan.pruning.by_distance ? 8 : 4);
  const uint64_t edges = rows * plan.degree * 4;
  const uint64_t descending = rows * (k * 8 + p * 24 + 296);
  const uint64_t comparing =
      ExactKnnLaunch::of(rows, stride, plan.nn_descent.k, ExactKnnLaunch::default_work(wide)).list_bytes();
  const uint64_t finding = plan.knn == ANN_KNN_NN_DESCENT ? descending
                           : plan.knn == ANN_KNN_EXACT    ? comparing
                           : plan.knn == ANN_KNN_CELLS
                               ? cuda::cells_bytes(rows, stride, plan.nn_descent.k, cuda::kGraphEffort, wide)
                               : 0;
  const uint64_t calibrating = plan.calibrate ? std::min<uint64_t>(rows * 12288, 640u << 20) : 0;
  const uint64_t judging = std::max(calibrating, row != 0 ? judge_rows_device_bytes(rows) : 0);
  if (plan.graph == ANN_GRAPH_GGNN)
    return codes +
           std::max({ggnn_device_bytes(rows, plan.ggnn), edges + rows * 81,
                     edges + rows * row + ggnn_layer_bytes(rows, plan.ggnn) + judging}) +
           (8u << 20);
  const uint64_t sorting = std::min<uint64_t>(edges * 4, uint64_t{2} << 30) + (8u << 20);
  const uint64_t repairing = rows * 81;  // if nearly all rows are lost, else 21
  if (plan.graph == ANN_GRAPH_TSDG) {
    const uint64_t held = plan.knn == ANN_KNN_GIVEN ? 0 : lists;
    const uint64_t making = held + std::max(finding, diversify_device_bytes(rows, k, plan.diversify));
    // The segment is placed later, as any other.
    const uint64_t placed = edges + rows * (row + plan.diversify.levels * 2ull) + judging;
    return codes + std::max(making, placed) + (8u << 20);
  }
  return std::max({codes + lists + std::max(finding, edges), codes + edges + edges + sorting,
                   codes + edges + repairing, codes + edges + rows * row + judging}) +
         (8u << 20);
}

/// Neighbours of a row that a search graph is pruned from. Lists by cells on a device are short, at 64,
/// or long. `paper`: of the graph as CAGRA's paper has it.
uint32_t knn_degree_default(const BuildPlan& plan, bool paper) {
  if (plan.graph == ANN_GRAPH_TSDG) return kTsdgNeighbors;
  if (paper) return std::min(plan.degree * kCagraListsPerDegree, ANN_DEGREE_MAX);
  const uint32_t k = std::min(plan.degree + plan.degree / 2, ANN_DEGREE_MAX);
  const bool short_lists =
      plan.knn == ANN_KNN_CELLS && plan.device >= ANN_DEVICE_CUDA && plan.degree <= cuda::kShortList;
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
  complete_nn_descent(k, samples, iterations, convergence, seed);  // refuses what is out of range
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

BuildPlan plan_build(const ann_build_params& params, uint64_t rows, uint32_t threads_max) {
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
  const uint32_t usual = tsdg ? kTsdgDegree : is_ggnn ? kGgnnDegreeDefault : kDegreeDefault;
  if (plan.finished &&
      (params.knn != ANN_KNN_GIVEN || (params.degree != 0 && params.degree != params.knn_degree)))
    fail(ANN_INVALID_ARGUMENT,
         "graph is GIVEN, but knn is %d, knn_degree %u and degree %u; knn must be ANN_KNN_GIVEN (%d), and "
         "degree 0 or knn_degree",
         params.knn, params.knn_degree, params.degree, ANN_KNN_GIVEN);
  plan.degree = params.degree != 0 ? params.degree : plan.finished ? params.knn_degree : usual;
  check_range("degree", plan.degree, 2, ANN_DEGREE_MAX);
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
  plan.knn_graph = params.knn_graph;
  plan.threads = thread_count(params.threads, threads_max);
  plan.memory_limit = params.memory_limit;
  return plan;
}

void estimate_build(const ann_index_params& shape, uint64_t rows, int32_t element, bool ids,
                    const BuildPlan& plan, ann_plan* out) {
  const uint64_t slack = 64 * kAlignment;
  // Whether codes are wide depends on the data; the bound assumes it where it can be.
  const bool may_be_wide = is_float_element(element) || shape.metric != ANN_METRIC_L2;
  const size_t stride = Codes::code_stride(shape.dim, shape.metric, may_be_wide);
  const uint64_t threads = plan.threads;
  uint64_t index = slack;
  if (!plan.borrow) index += rows * Dataset::stored_stride(shape.dim, shape.metric, element);
  if (ids) index += rows * 12;
  if (shape.metric == ANN_METRIC_COSINE) index += rows * 4;
  uint64_t peak = ids ? rows * 4 : 0;  // of a second order of rows while ids are sorted
  double seconds = 0.01;
  if (plan.graph != ANN_GRAPH_NONE) {
    if (!Codes::rows_serve(shape.metric, element, plan.borrow)) index += rows * stride;
    const bool tsdg = plan.graph == ANN_GRAPH_TSDG;
    const DiversifyBytes diversifying =
        tsdg ? diversify_bytes(rows, stride, plan.nn_descent.k, plan.diversify, plan.threads)
             : DiversifyBytes{};
    const uint64_t edges = tsdg ? diversifying.graph : rows * plan.degree * 4;
    index += shape.dim * 4 + edges + reach_bytes(rows);
    if (plan.calibrate)
      index += std::min<uint64_t>(plan.queries_given, kQueriesKept) * shape.dim *
               (is_float_element(element) ? sizeof(float) : 1);
    const uint64_t k = plan.nn_descent.k;
    const uint64_t knn_list = rows * k * 4;
    const uint64_t pruned = rows * plan.degree * 4;
    const uint64_t scaled =
        shape.metric == ANN_METRIC_INNER_PRODUCT ? rows * ScaledCodes::code_stride(shape.dim) : 0;
    if (scaled != 0) index += scaled + (ScaledCodes::kCellsMany + 1) * shape.dim * sizeof(float);
    const uint64_t coding = 4096ull * (shape.dim + 16) * 8 + threads * (shape.dim + 4112) * 4;
    const uint64_t comparing = knn_list + threads * (64 * (3 * stride + 8 * k + 300));
    const bool few = too_few_to_descend(rows, plan.nn_descent.k);
    const bool is_ggnn = plan.graph == ANN_GRAPH_GGNN;
    if (is_ggnn) {
      index += ggnn_layer_bytes(rows, plan.ggnn) + 2ull * plan.ggnn.segment * 4 + 1024;
    }
    const uint64_t finding =
        is_ggnn ? ggnn_bytes(rows, stride, plan.ggnn, plan.threads)
        : plan.knn == ANN_KNN_NN_DESCENT && !few
            ? nn_descent_bytes(rows, stride, plan.nn_descent, plan.threads)
        : plan.knn == ANN_KNN_CELLS
            ? std::max(comparing, cells_knn_bytes(rows, stride, plan.nn_descent, plan.threads))
            : comparing;
    const uint64_t looking = knn_list + judge_rows_bytes(shape.dim, stride, plan.threads);
    const uint64_t lengths = plan.pruning.by_distance ? knn_list + threads * stride : 0;
    const uint64_t pruning = knn_list + lengths + pruned + threads * (24 * k + 512);
    const uint64_t reversing = pruned + rows * (8 + 4 + 8ull * plan.degree);
    const uint64_t repairing = pruned + rows * (5ull * plan.degree + 14);
    const uint64_t sending = plan.device >= ANN_DEVICE_CUDA ? threads * (2u << 20) + 4096 : 0;
    const uint64_t judging = plan.calibrate ? calibration_bytes(shape.dim, stride, rows, plan.threads) : 0;
    const uint64_t products =
        scaled == 0 ? 0 : product_edges_bytes(rows, shape.dim, plan.nn_descent.k, plan.degree, plan.threads);
    // Both of one centre and of many are held for a while, and what rows are compared with rows by.
    const uint64_t scaling =
        scaled == 0
            ? 0
            : std::max(scaled, rows * Codes::code_stride(shape.dim, ANN_METRIC_L2, may_be_wide)) +
                  8192ull * shape.dim * 4 + 256ull * shape.dim * 12 + threads * (32ull * shape.dim + 65536);
    // Of the phases' memory `pruned` and the result are counted twice: an upper bound.
    const uint64_t edging = tsdg ? knn_list + diversifying.peak : std::max({pruning, reversing, repairing});
    peak = std::max({coding, finding, looking, edging, judging, products}) + scaling + sending;
    const size_t bytes = Codes::code_stride(shape.dim, shape.metric, false);
    seconds += finding_seconds(static_cast<double>(rows), static_cast<double>(bytes), plan) /
               static_cast<double>(threads);
  }
  out->device_bytes = plan.device >= ANN_DEVICE_CUDA ? device_bytes(shape, rows, element, plan) : 0;
  out->threads = plan.threads;
  out->index_bytes = index;
  out->peak_bytes = index + peak + slack;
  out->seconds = seconds;
}

}  // namespace gannet

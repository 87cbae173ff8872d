#include "index/estimate.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/transfer_bytes.h"
#include "dataset/codes.h"
#include "graph/diversify.h"
#include "graph/long_edges.h"
#include "graph/product_edges.h"
#include "graph/search_graph.h"
#include "index/build_cuda.h"
#include "index/choose_projection.h"
#include "index/missed_rows.h"
#include "index/product_walks.h"
#include "index/reach.h"
#include "index/row_measures.h"
#include "knn/cells_effort.h"
#include "knn/exact_knn_launch.h"
#include "knn/find_neighbors.h"
#include "place/pivots.h"
#include "place/placed_shape.h"
#include "segment/query_sample.h"
#include "tune/calibration.h"
#include "tune/device_calibration.h"

namespace gannet {
namespace {

constexpr uint32_t kNarrowColumns = 4;                // of which codes are likely to be bytes
constexpr uint64_t kArrayEnds = 64 * kAlignment;      // of arrays that are rounded up
constexpr uint64_t kDeviceSmall = uint64_t{8} << 20;  // counts, entry points, scratch of sums and selections

/// The build to be estimated.
struct Asked {
  const ann_index_params& shape;
  uint64_t rows;
  int32_t element;
  bool ids;
  const BuildPlan& plan;

  uint32_t k() const { return plan.nn_descent.k; }
  bool has_graph() const { return plan.graph != ANN_GRAPH_NONE; }
  bool is_tsdg() const { return plan.graph == ANN_GRAPH_TSDG; }
  bool is_ggnn() const { return plan.graph == ANN_GRAPH_GGNN; }
  bool is_inner_product() const { return shape.metric == ANN_METRIC_INNER_PRODUCT && rows != 0; }
  uint64_t list_bytes() const { return rows * k() * sizeof(uint32_t); }
  uint64_t edge_bytes() const { return rows * plan.degree * sizeof(uint32_t); }
};

/// Time of one thread to find neighbours among rows whose codes have `bytes`.
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

// --- The host --------------------------------------------------------------------------------------

/// Whether codes are wide depends on the data; the bound assumes it where it can be.
bool may_be_wide(const Asked& asked) {
  return is_float_element(asked.element) || asked.shape.metric != ANN_METRIC_L2;
}

size_t widest_stride(const Asked& asked) {
  return Codes::code_stride(asked.shape.dim, asked.shape.metric, may_be_wide(asked));
}

DiversifyBytes diversifying(const Asked& asked) {
  return diversify_bytes(asked.rows, widest_stride(asked), asked.k(), asked.plan.diversify,
                         asked.plan.threads);
}

/// Bytes from one code to the next where codes are bytes, which alone are projected, and by L2 or cosine on the CPU;
/// else 0.
size_t projected_stride(const Asked& asked) {
  if (asked.plan.device >= ANN_DEVICE_CUDA || asked.is_inner_product()) return 0;
  return Codes::code_stride(asked.shape.dim, asked.shape.metric, false);
}

/// Bytes from one half of wide codes to the next, which a build on the CPU makes; else 0.
size_t half_stride(const Asked& asked) {
  if (asked.plan.device >= ANN_DEVICE_CUDA || asked.is_inner_product() || !may_be_wide(asked)) return 0;
  return Codes::half_stride(asked.shape.dim, asked.shape.metric, asked.element);
}

/// Bytes that an index with a graph holds beside its rows.
uint64_t graph_and_codes(const Asked& asked) {
  const ann_index_params& shape = asked.shape;
  const bool rows_serve = Codes::rows_serve(shape.metric, asked.element, asked.plan.borrow);
  const uint64_t codes = rows_serve ? 0 : asked.rows * widest_stride(asked);
  const uint64_t centre = Codes::code_columns(shape.dim, shape.metric) * sizeof(float);
  const uint64_t scaled = asked.is_inner_product() ? scaled_codes_bytes(asked.rows, shape.dim) : 0;
  const uint64_t edges = asked.is_tsdg() ? diversifying(asked).graph : asked.edge_bytes();
  const uint64_t upper = asked.is_ggnn() ? ggnn_upper_bytes(asked.rows, asked.plan.ggnn) : 0;
  const uint64_t queries =
      asked.plan.calibrate ? query_sample_bytes(asked.plan.queries_given, shape.dim, asked.element) : 0;
  const uint64_t bytes = asked.rows * projected_stride(asked);
  const uint64_t projected = projected_codes_bytes(asked.rows, projected_stride(asked));
  const uint64_t halves = asked.rows * half_stride(asked);
  // Wide codes have no projection.
  const uint64_t coded = rows_serve ? projected : std::max(codes + halves, bytes + projected);
  return coded + centre + scaled + edges + upper + reach_bytes(asked.rows) + queries;
}

/// From k-NN lists, or from codes, to edges.
uint64_t edging(const Asked& asked) {
  const BuildPlan& plan = asked.plan;
  const uint64_t lists = asked.list_bytes();
  if (asked.is_tsdg()) return lists + diversifying(asked).peak;
  const uint64_t pruning =
      lists + prune_bytes(asked.rows, asked.k(), widest_stride(asked), plan.pruning, plan.threads);
  return std::max(
      {pruning, reverse_edges_bytes(asked.rows, plan.degree), repair_bytes(asked.rows, plan.degree)});
}

/// Beside every phase by inner product: the codes that rows are compared with rows by, or those of one cell while those
/// of many are tried.
uint64_t scaling(const Asked& asked) {
  if (!asked.is_inner_product()) return 0;
  const uint32_t dim = asked.shape.dim;
  const uint64_t by_distance = asked.rows * Codes::code_stride(dim, ANN_METRIC_L2, may_be_wide(asked));
  const uint64_t of_one_cell = asked.rows * ScaledCodes::code_stride(dim);
  // A device finds near rows while the CPU makes both kinds of codes by product.
  const bool beside = asked.plan.device >= ANN_DEVICE_CUDA;
  const uint64_t codes = beside ? by_distance + of_one_cell : std::max(by_distance, of_one_cell);
  const uint64_t coding = beside ? coding_bytes(dim, asked.plan.threads) : 0;
  return codes + std::max(coding, fit_scaled_codes_bytes(dim, asked.plan.threads));
}

/// The most that a phase of a build with a graph takes beside the index.
uint64_t phases(const Asked& asked) {
  const BuildPlan& plan = asked.plan;
  const uint32_t dim = asked.shape.dim;
  const size_t stride = widest_stride(asked);
  const uint64_t coding = coding_bytes(dim, plan.threads);
  const uint64_t finding =
      asked.is_ggnn() ? ggnn_bytes(asked.rows, stride, plan.ggnn, plan.threads)
                      : find_neighbors_bytes(asked.rows, stride, plan.nn_descent, plan.knn, plan.threads);
  const uint64_t measuring = asked.list_bytes() + measure_rows_bytes(dim, stride, plan.threads);
  const uint64_t calibrating = plan.calibrate ? calibration_bytes(dim, stride, asked.rows, plan.degree,
                                                                  plan.queries_given, plan.threads)
                                              : 0;
  const uint64_t products = asked.is_inner_product()
                                ? product_edges_bytes(asked.rows, dim, asked.k(), plan.degree, plan.threads)
                                : 0;
  const uint64_t joining = plan.repair && !asked.is_tsdg() && !asked.is_ggnn()
                               ? long_edges_bytes(asked.rows, stride, plan.degree, plan.threads)
                               : 0;
  const uint64_t projecting = choose_projection_bytes(asked.rows, dim, projected_stride(asked), plan.threads);
  const bool ahead = sends_rows_ahead(plan, asked.shape.metric, asked.element);
  const uint64_t lanes = plan.threads + (ahead ? kIngestCopiers : 0);
  const uint64_t sending = plan.device >= ANN_DEVICE_CUDA ? transfer_bytes(lanes) : 0;
  // A device that has made the graph measures it while it calibrates.
  const bool beside = plan.device >= ANN_DEVICE_CUDA;
  const uint64_t looking = beside ? measuring + calibrating : std::max(measuring, calibrating);
  return std::max({coding, finding, projecting, looking, edging(asked), joining, products}) + scaling(asked) +
         sending;
}

// --- A device ------------------------------------------------------------------------------------

/// Whether codes are likely to be floats, which the rows themselves decide (dataset/codes.h): where few
/// columns leave few bytes for all rows. The sampled rows of a set spread evenly over a box are 16 steps apart
/// from 4 columns on.
bool likely_wide(const Asked& asked) {
  return !Codes::rows_serve(asked.shape.metric, asked.element, false) && asked.shape.dim < kNarrowColumns;
}

PlacedShape placed_shape(const Asked& asked) {
  const ann_index_params& shape = asked.shape;
  return {asked.rows,    shape.dim,         shape.metric,
          asked.element, asked.plan.degree, Codes::code_stride(shape.dim, shape.metric, likely_wide(asked)),
          asked.ids};
}

uint64_t finding_on_device(const Asked& asked, size_t stride) {
  const NnDescentParams& params = asked.plan.nn_descent;
  switch (asked.plan.knn) {
    case ANN_KNN_NN_DESCENT:
      return nn_descent_device_bytes(asked.rows, params);
    case ANN_KNN_EXACT:
      return exact_knn_device_bytes(asked.rows, stride, params.k, likely_wide(asked));
    case ANN_KNN_CELLS:
      return cuda::cells_bytes(asked.rows, stride, params.k, cuda::kGraphEffort, likely_wide(asked));
    default:
      return 0;  // given
  }
}

/// Lists of heads that are found beside the placement.
uint64_t joining_on_device(const Asked& asked, size_t stride) {
  const uint64_t heads = asked.rows / kHeadShare;
  const uint64_t compared = std::min<uint64_t>(heads, kHeadsComparedThere);
  const bool wide = likely_wide(asked);
  const uint32_t degree = asked.plan.degree / 2;
  const uint64_t upper = heads * degree * sizeof(uint32_t);
  const uint64_t lists = heads * kHeadLists * sizeof(uint32_t);
  const uint64_t by_cells =
      heads == compared ? 0 : cuda::cells_bytes(heads, stride, kHeadLists, cuda::kListEffort, wide);
  const uint64_t finding = codes_device_bytes(heads, stride) + lists +
                           std::max(exact_knn_device_bytes(compared, stride, kHeadLists, wide), by_cells);
  const uint64_t shaping = std::max(finding, reverse_edges_device_bytes(heads, degree));
  const uint64_t choosing = std::bit_ceil(asked.rows * 2) * sizeof(uint32_t);
  return asked.edge_bytes() + asked.rows * 2 * sizeof(uint32_t) + heads * sizeof(uint32_t) +
         std::max({choosing, 2 * upper + shaping, repair_device_bytes(asked.rows)});
}

/// The time after the graph is made: the index's placement, beside codes and edges, and its measures.
uint64_t placed(const Asked& asked) {
  const PlacedShape shape = placed_shape(asked);
  const uint64_t comparing = measure_rows_device_bytes(shape);
  const uint64_t calibrating = device_calibration_bytes(shape, asked.plan.queries_given);
  const bool joins = asked.plan.repair && !asked.is_tsdg() && !asked.is_ggnn() && !asked.is_inner_product();
  const uint64_t joining = joins ? joining_on_device(asked, shape.code_stride) : 0;
  // What calibration leases is not always what attaching has leased.
  const uint64_t attaching = joins ? attaching_device_bytes(shape) : 0;
  const uint64_t measuring =
      std::max(joining, comparing + attaching + (asked.plan.calibrate ? calibrating : 0));
  const bool walks =
      asked.is_inner_product() && asked.plan.knn != ANN_KNN_GIVEN && asked.rows >= kProductWalksMin;
  const uint64_t walking = walks ? product_walks::device_bytes(shape, asked.k(), asked.plan.degree) : 0;
  const uint64_t layers = asked.is_ggnn() ? ggnn_layer_bytes(asked.rows, asked.plan.ggnn) : 0;
  const uint64_t levels = asked.is_tsdg() ? asked.rows * asked.plan.diversify.levels * sizeof(uint16_t) : 0;
  const auto code_stride = static_cast<uint32_t>(shape.code_stride);
  const uint64_t code_bytes =
      code_stride + HalfView::stride_of(code_stride) + ScaledCodes::code_stride(shape.dim);
  const uint64_t pivots = pivot_device_bytes(joins && asked.plan.calibrate ? asked.rows : 0, code_bytes);
  return asked.edge_bytes() + asked.rows * shape.row_bytes() + layers + levels + pivots +
         std::max(walking, measuring);
}

/// The most that build_cuda.cu holds beside codes, before the index is placed: each phase with the next ones' input.
uint64_t made_on_device(const Asked& asked, size_t stride) {
  const BuildPlan& plan = asked.plan;
  const uint64_t edges = asked.edge_bytes();
  const uint64_t repairing = edges + repair_device_bytes(asked.rows);
  if (asked.is_ggnn()) return std::max(ggnn_device_bytes(asked.rows, plan.ggnn), repairing);
  const uint64_t lists = asked.list_bytes() * (plan.pruning.by_distance ? 2 : 1);
  const uint64_t finding = finding_on_device(asked, stride);
  if (asked.is_tsdg()) {
    const uint64_t lists_found = plan.knn == ANN_KNN_GIVEN ? 0 : lists;
    return lists_found + std::max(finding, diversify_device_bytes(asked.rows, asked.k(), plan.diversify));
  }
  const uint64_t pruned = edges;
  const uint64_t reversing = pruned + edges + reverse_edges_device_bytes(asked.rows, plan.degree);
  return std::max({lists + std::max(finding, pruned), reversing, repairing});
}

/// Rows that lie on the device while it makes the graph. A build goes on without them where they leave too little memory.
uint64_t rows_ahead(const Asked& asked) {
  const ann_index_params& shape = asked.shape;
  if (!sends_rows_ahead(asked.plan, shape.metric, asked.element)) return 0;
  return asked.rows * Dataset::stored_stride(shape.dim, shape.metric, asked.element);
}

uint64_t device_bytes(const Asked& asked) {
  if (asked.plan.device < ANN_DEVICE_CUDA || !asked.has_graph()) return 0;
  const size_t stride = placed_shape(asked).code_stride;
  const uint64_t made = rows_ahead(asked) + made_on_device(asked, stride);
  return codes_device_bytes(asked.rows, stride) + std::max(made, placed(asked)) + kDeviceSmall;
}

/// Bytes of a build, all threads together.
double seconds_of(const Asked& asked) {
  const size_t bytes = Codes::code_stride(asked.shape.dim, asked.shape.metric, false);
  return finding_seconds(static_cast<double>(asked.rows), static_cast<double>(bytes), asked.plan) /
         static_cast<double>(asked.plan.threads);
}

}  // namespace

void estimate_build(const ann_index_params& shape, uint64_t rows, int32_t element, bool ids,
                    const BuildPlan& plan, ann_plan* out) {
  const Asked asked = {shape, rows, element, ids, plan};
  uint64_t index = dataset_bytes(rows, shape.dim, shape.metric, element, ids, plan.borrow) + kArrayEnds;
  uint64_t most = sort_ids_bytes(rows, ids);
  out->seconds = 0.01;
  if (asked.has_graph()) {
    index += graph_and_codes(asked);
    most = std::max(most, phases(asked));
    out->seconds += seconds_of(asked);
  }
  out->device_bytes = device_bytes(asked);
  out->threads = plan.threads;
  out->index_bytes = index;
  out->peak_bytes = index + most + kArrayEnds;
}

}  // namespace gannet

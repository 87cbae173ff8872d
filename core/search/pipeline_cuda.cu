#include "search/pipeline_cuda.h"

#include <algorithm>
#include <cstring>

#include "search/cagra_cuda.h"
#include "search/encode_cuda.h"
#include "search/ggnn_cuda.h"
#include "search/rerank_cuda.h"
#include "search/tsdg_cuda.h"

namespace gannet::cuda {
namespace {

/// A plan that says that no kernel walks for it: EXACT's, and those of procedures of the CPU alone.
template <class Plan>
concept WithoutWalk = !Plan::kHasWalk;

/// Rows of a walk's list that are re-ranked, or k where codes are lossless. One answer a kind of plan.
struct RerankDepth {
  const IndexView& view;
  uint32_t k;

  template <WithoutWalk Plan>
  uint32_t operator()(const Plan&) const {
    return k;
  }
  uint32_t operator()(const CagraPlan& plan) const { return plan.kept; }
  uint32_t operator()(const TsdgPlan& plan) const { return plan.kept; }
  uint32_t operator()(const GgnnPlan& plan) const { return plan.kept; }
  uint32_t operator()(const TwoListsPlan& plan) const {
    return list_length(std::max(k, plan.answers), view.lossless);
  }
  uint32_t operator()(const BeamPlan& plan) const {
    return view.lossless ? k : std::min(rerank_count(k), std::max(k, plan.beam));
  }
};

uint32_t rerank_depth(const IndexView& view, const SearchPlan& plan, uint32_t k) {
  return std::visit(RerankDepth{view, k}, plan);
}

/// `code_bytes`: of a query, zeros behind its columns.
EncodeArgs encode_args(const IndexView& view, const DeviceRun& run, uint32_t code_bytes) {
  EncodeArgs args = {};
  args.queries = run.queries;
  args.centre = view.centre;
  args.codes = run.codes;
  args.query_stride = run.query_stride;
  args.value_bytes = view.value_bytes;
  args.code_stride = code_bytes;
  args.count = run.count;
  args.dim = view.dim;
  args.columns = view.columns;
  args.metric = view.metric;
  args.inverse_step = view.inverse_step;
  return args;
}

EncodeScaledArgs encode_scaled_args(const IndexView& view, const DeviceRun& run) {
  EncodeScaledArgs args = {};
  args.queries = run.queries;
  args.centres = view.scaled.centres;
  args.codes = run.codes;
  args.query_stride = run.query_stride;
  args.code_bytes = view.scaled.query_bytes();
  args.row_stride = view.scaled.stride;
  args.terms_at = static_cast<uint32_t>(ScaledCodes::terms_at(view.dim));
  args.count = run.count;
  args.dim = view.dim;
  args.cells = view.scaled.cells;
  args.most = most_of_query(view.dim);
  return args;
}

/// The same of wide codes, for rows of bytes about their centre.
EncodeScaledArgs encode_narrow_args(const IndexView& view, const DeviceRun& run) {
  EncodeScaledArgs args = encode_scaled_args(view, run);
  args.centre = view.centre;
  args.inverse_step = view.inverse_step;
  args.code_bytes = view.narrow.query_bytes();
  args.row_stride = view.narrow.stride;
  args.cells = view.narrow.cells;
  return args;
}

/// Whether a plan walks with one list or with two.
bool walks_by_lists(const SearchPlan& plan) {
  return std::holds_alternative<TwoListsPlan>(plan) || std::holds_alternative<BeamPlan>(plan);
}

/// Whether it walks by codes with a scale for each row.
bool walks_by_scaled(const IndexView& view, const SearchPlan& plan) {
  return view.scaled.codes != nullptr && walks_by_lists(plan);
}

/// Whether it walks by halves of wide codes.
bool walks_by_halves(const IndexView& view, const DeviceRun& run, const SearchPlan& plan) {
  return view.halves.codes != nullptr && run.removed.empty() && walks_by_lists(plan);
}

/// Whether it walks by bytes in place of wide codes.
bool walks_by_narrow(const IndexView& view, const SearchPlan& plan) {
  return view.narrow.codes != nullptr && std::holds_alternative<TwoListsPlan>(plan);
}

/// Bytes of a query's code, which is compared with halves or with the codes themselves.
uint32_t query_code_bytes(const IndexView& view, bool halves) {
  return halves ? view.halves.query_bytes() : view.code_stride;
}

/// Makes the codes of a run's queries that its plan walks by.
void start_codes(const IndexView& view, const DeviceRun& run, const SearchPlan& plan, const Stream& stream) {
  if (walks_by_scaled(view, plan))
    return start_encode_scaled(encode_scaled_args(view, run), view.element, stream);
  if (walks_by_narrow(view, plan))
    return start_encode_scaled(encode_narrow_args(view, run), view.element, stream);
  const uint32_t code_bytes = query_code_bytes(view, walks_by_halves(view, run, plan));
  start_encode(encode_args(view, run, code_bytes), view.element, view.kind == CodeKind::kFloat, stream);
}

RerankArgs rerank_args(const IndexView& view, const DeviceRun& run, uint32_t depth) {
  RerankArgs args = {};
  args.rows = view.rows;
  args.norms = view.norms;
  args.queries = run.queries;
  args.candidates = run.candidates;
  args.out_rows = run.rows;
  args.out_distances = run.distances;
  args.row_stride = view.row_stride;
  args.query_stride = run.query_stride;
  args.value_bytes = view.value_bytes;
  args.dim = view.dim;
  args.count = run.count;
  args.kept = depth;
  args.k = run.k;
  args.metric = view.metric;
  return args;
}

/// Starts the walk of a run. One overload a kind of plan; codes of the queries are there unless `whole`.
struct StartWalk {
  int32_t device;
  const IndexView& view;
  const DeviceRun& run;
  const Stream& stream;
  uint32_t depth;
  bool whole;

  template <WithoutWalk Plan>
  void operator()(const Plan&) const {
    fail(ANN_INTERNAL, "a search without a walk on devices was planned as one");
  }

  void operator()(const BeamPlan& plan) const {
    const bool halves = walks_by_halves(view, run, plan);
    WalkArgs args = halves ? half_args(walk_args()) : walk_args();
    args.beam = plan.beam;
    if (walks_by_scaled(view, plan))
      return start_scaled_one_list(device, scaled_args(args, view.scaled), stream);
    start_one_list(device, halves ? CodeKind::kHalf : view.kind, args, stream);
  }

  void operator()(const TwoListsPlan& plan) const {
    const bool scaled = walks_by_scaled(view, plan);
    const bool narrow = walks_by_narrow(view, plan);
    const bool halves = !narrow && walks_by_halves(view, run, plan);
    WalkArgs args = scaled   ? scaled_args(walk_args(), view.scaled)
                    : narrow ? scaled_args(walk_args(), view.narrow)
                    : halves ? half_args(walk_args())
                             : walk_args();
    if (narrow) args.pivot_codes = view.narrow.pivot_codes;
    if (narrow && plan.uses_blocks()) args.whole.scaled = encode_narrow_args(view, run);
    if (scaled && plan.uses_blocks()) args.whole.scaled = encode_scaled_args(view, run);
    if (whole) {
      args.whole.encode = encode_args(view, run, query_code_bytes(view, halves));
      args.whole.rerank = rerank_args(view, run, depth);
      args.whole.record_bytes = static_cast<uint32_t>(view.record_bytes());
      args.whole.element = view.element;
    }
    const uint32_t record_bytes = whole ? args.whole.record_bytes : query_code_bytes(view, halves);
    if (run.is_on_host && run.count == 1 && record_bytes <= kOneQueryBytes) {
      std::memcpy(args.one_query, args.queries, record_bytes);
      args.queries = nullptr;
    }
    if (answers_alone(view, plan, run.k)) {
      args.whole.given = run.given;
      args.whole.answers = run.answers;
    }
    args.k = std::max(args.k, plan.answers);
    args.expansions_max = plan.expansions_max;
    args.slack_squared = (1 + plan.slack) * (1 + plan.slack);
    if (narrow && !plan.uses_blocks()) return start_narrow_two_lists(device, args, stream);
    if (scaled && !plan.uses_blocks()) return start_scaled_two_lists(device, args, stream);
    const CodeKind kind = halves ? CodeKind::kHalf : view.kind;
    args.rerank_margin = kind == CodeKind::kFloat ? 0 : kRerankMargin;
    start_two_lists(device, kind, args, plan.warps, stream);
  }

  /// The walk as CAGRA, by codes or by rows as stored.
  void operator()(const CagraPlan& plan) const {
    const CagraArgs args = cagra_args(plan.stored, plan.kept);
    CagraLaunch choice = choose_cagra(device, row_kind(plan.stored), plan, view.graph.stride, run.count);
    const DeviceArray<uint8_t> tables = take_scratch(plan, &choice, stream);
    fill(run.counters, 0, sizeof(WalkCounters), stream, "clearing device memory");
    start_cagra(choice, plan, args, tables.data(), stream);
  }

  /// The walk as GGNN, likewise.
  void operator()(const GgnnPlan& plan) const {
    GgnnArgs args = {};
    args.walk = cagra_args(plan.stored, plan.kept);
    args.entries = entries().rows;
    args.entry_count = entries().count;
    args.layers = view.layers;
    fill(run.counters, 0, sizeof(WalkCounters), stream, "clearing device memory");
    start_ggnn(device, row_kind(plan.stored), plan, args, stream);
  }

  /// The walks as TSDG, by codes.
  void operator()(const TsdgPlan& plan) const {
    if (plan.search == TsdgSearch::kBeam) fail(ANN_INTERNAL, "a search of the CPU was planned on a device");
    TsdgArgs args = {};
    args.walk = cagra_args(false, plan.kept);
    fill(run.counters, 0, sizeof(WalkCounters), stream, "clearing device memory");
    start_tsdg(device, row_kind(false), plan, args, stream);
  }

 private:
  const Adjacency& graph() const { return run.bypass ? view.bypass.graph : view.graph; }
  const EntriesView& entries() const { return run.bypass ? view.bypass.entries : view.entries; }

  /// The arrays that the kernels of CAGRA, GGNN and TSDG compare, read and write.
  CagraArgs cagra_args(bool stored, uint32_t kept) const {
    const bool by_records = stored || view.lossless;
    CagraArgs args = {};
    args.rows = stored ? view.rows : view.codes;
    args.norms = view.norms;
    args.graph = graph();
    args.removed = run.removed;
    if (run.bypass) args.hidden = view.bypass.hidden;
    args.queries = by_records ? run.queries : run.codes;
    args.query_stride = by_records ? run.query_stride : view.code_stride;
    args.out_rows = view.lossless ? run.rows : run.candidates;
    args.out_distances = view.lossless ? run.distances : nullptr;
    args.counters = run.counters;
    args.row_count = view.row_count;
    args.stride = stored ? view.row_stride : view.code_stride;
    args.columns = stored ? view.dim : view.code_stride / sizeof(float);
    args.query_words = stored ? view.dim : view.code_stride / sizeof(uint32_t);
    args.value_bytes = view.value_bytes;
    args.count = run.count;
    args.kept = kept;
    args.metric = stored ? view.metric : int32_t{ANN_METRIC_L2};
    return args;
  }

  WalkArgs walk_args() const {
    WalkArgs args = {};
    args.codes = view.codes;
    args.edges = graph().targets;
    args.degree = graph().stride;
    args.entries = entries().rows;
    args.pivot_codes = view.pivot_codes;
    args.pivots = run.bypass ? view.bypass.pivots : view.pivots;
    args.squares = view.squares;
    args.starts = run.starts;
    const bool by_records = view.lossless || whole;
    args.queries = by_records ? run.queries : run.codes;
    args.query_stride = by_records ? run.query_stride : view.code_stride;
    args.out_rows = by_records ? run.rows : run.candidates;
    args.out_distances = by_records ? run.distances : nullptr;
    args.masked = run.masked;
    args.removed = run.removed;
    args.counters = run.counters;
    args.counts = run.counts;
    args.stride = view.code_stride;
    args.entry_count = entries().count;
    args.pivot_count = view.pivot_count;
    args.count = run.count;
    args.k = run.k;
    args.kept = depth;
    return args;
  }

  WalkArgs half_args(const WalkArgs& plain) const {
    WalkArgs args = plain;
    args.codes = view.halves.codes;
    args.pivot_codes = view.halves.pivot_codes;
    args.stride = view.halves.stride;
    if (!whole) args.query_stride = query_code_bytes(view, true);
    return args;
  }

  WalkArgs scaled_args(const WalkArgs& plain, const ScaledView& scaled) const {
    WalkArgs args = plain;
    args.codes = scaled.codes;
    args.pivot_codes = nullptr;
    args.stride = scaled.stride;
    if (whole) return args;  // queries are records
    args.queries = run.codes;
    args.query_stride = scaled.query_bytes();
    return args;
  }

  RowKind row_kind(bool stored) const {
    if (!stored) return view.kind == CodeKind::kFloat ? RowKind::kF32 : RowKind::kBytes;
    if (view.element == ANN_F32) return RowKind::kF32;
    return view.element == ANN_F16 ? RowKind::kF16 : RowKind::kBf16;
  }
};

}  // namespace

bool walks_whole(const IndexView& view, const SearchPlan& plan, uint32_t k) {
  const auto* two_lists = std::get_if<TwoListsPlan>(&plan);
  if (two_lists != nullptr && two_lists->answers > k)
    return false;  // it writes as many answers as it walks for
  return !view.lossless && walks_by_blocks(plan) && rerank_depth(view, plan, k) <= kWholeKeptMax;
}

bool answers_alone(const IndexView& view, const SearchPlan& plan, uint32_t k) {
  if (!view.lossless) return walks_whole(view, plan, k);
  return walks_by_blocks(plan) && rerank_depth(view, plan, k) == k;
}

bool writes_answers(const IndexView& view, const SearchPlan& plan, uint32_t k) {
  return !view.lossless || answers_alone(view, plan, k);
}

void start_run(int32_t device, const IndexView& view, const DeviceRun& run, const SearchPlan& plan,
               const Stream& stream) {
  const bool whole = walks_whole(view, plan, run.k);
  const uint32_t depth = rerank_depth(view, plan, run.k);
  const bool by_codes = !view.lossless && !whole;
  if (by_codes) start_codes(view, run, plan, stream);
  std::visit(StartWalk{device, view, run, stream, depth, whole}, plan);
  if (by_codes) start_rerank(rerank_args(view, run, depth), run.answers, view.element, stream);
}

uint64_t count_distances(const IndexView& view, const WalkCounters& counters, uint64_t queries,
                         const SearchPlan& plan, uint32_t k) {
  if (view.lossless) return counters.distances;
  // TSDG's walks may find fewer rows than are re-ranked, and count those that are.
  if (std::holds_alternative<TsdgPlan>(plan)) return counters.distances;
  return counters.distances + queries * std::min(rerank_depth(view, plan, k), view.row_count);
}

}  // namespace gannet::cuda

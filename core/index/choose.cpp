#include "index/choose.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tune/device_work.h"
#include "tune/search_work.h"

namespace gannet {
namespace {

using QueryWarps = DeviceCalibration::QueryWarps;

/// A choice in the making: the placed segment, where it is searched, and the request.
struct Chooser {
  const PlacedSegment& placed;
  const PlacedDevice* device;
  SearchRequest request;
  const Execution& execution;
  SearchTarget target{placed.host, device != nullptr ? device->placement.get() : nullptr};

  Choice choose() const {
    if (compares_all(placed.segment, request.params)) return exactly();
    check_answers();
    if (request.params.procedure == ANN_SEARCH_AUTO) return choose_auto();
    const Procedure& named = *find_procedure(request.params.procedure);
    if (named.stands_for != nullptr) {
      const int32_t id = named.stands_for(target, request);
      if (id != named.id) return choose_named(id);
    }
    if (!target.on_device() && !named.on_host)
      fail(ANN_UNSUPPORTED, "params.procedure is %d (%s), which CUDA devices do; the search runs on the CPU",
           named.id, named.name);
    if (target.on_device() && !named.on_device)
      fail(ANN_UNSUPPORTED, "params.procedure is %d (%s), which the CPU does; the search runs on device %d",
           named.id, named.name, target.device->device());
    if (named.check != nullptr) named.check(target, request);
    return planned(named, effort_of(named));
  }

 private:
  /// Another procedure serves where its time is counted as less than so much of that of the best so far.
  static constexpr double kPreferred = 0.8;

  static Choice exactly() {
    Effort effort;
    effort.recall = 1;
    return {&kExact, ExactPlan{}, effort};
  }

  Choice choose_named(int32_t id) const {
    Chooser other = *this;
    other.request.params.procedure = id;
    return other.choose();
  }

  /// A plan may be to compare all rows after all.
  Choice planned(const Procedure& procedure, const Effort& effort) const {
    SearchPlan plan = procedure.plan(target, request, effort);
    if (std::holds_alternative<ExactPlan>(plan)) return exactly();
    return {&procedure, plan, effort};
  }

  void check_answers() const {
    if (request.k > ANN_BEAM_MAX)
      fail(ANN_LIMIT, "results.k is %u, a search by graph finds at most %u; use ann_search_exact",
           request.k_asked, ANN_BEAM_MAX);
  }

  /// AUTO over a graph: of the ways that were found to reach the recall, the one that takes the least counted
  /// work. Comparing all rows always reaches it, and finds every neighbor: a walk has to compare fewer (of 60 rows one
  /// compares 70 for a recall of .99, in the same time).
  Choice choose_auto() const {
    kBestFirst.check(target, request);
    if (target.on_device()) return choose_on_device();
    const Choice beam_choice = planned(kBestFirst, effort_of(kBestFirst));
    if (request.params.beam != 0) return beam_choice;
    const Segment& segment = placed.segment;
    const size_t row_bytes = segment.codes.walk_stride();
    Choice best = exactly();
    double least = exact_work(segment.dataset, request.queries, request.k);
    const auto consider = [&](const Choice& choice, double distances, double work) {
      if (distances >= segment.graph.rows || work > least) return;
      best = choice;
      least = work;
    };
    const Calibration& curves = placed.curves(execution);
    if (curves.reaches(request.k, request.recall)) {
      const double starts = entries_compared(segment, beam_choice.effort);
      const double expansions = beam_choice.effort.knob * beam_choice.effort.edges_part / kAllEdges;
      consider(beam_choice, walk_distances(segment.graph, starts, expansions),
               walk_work(segment.graph, starts, row_bytes, expansions));
    }
    if (const auto way = slack_way(); way && way->reaches && request.params.occlusion_max == 0)
      consider(planned(kSlack, way->effort), way->distances, way->work);
    return best;
  }

  /// A slack for the recall, by curves of the build's calibration.
  struct SlackWay {
    Effort effort;
    bool reaches;
    double distances;
    double work;

    bool is_ahead_of(const SlackWay& other) const {
      if (reaches != other.reaches) return reaches;
      return reaches ? work < other.work : effort.recall > other.effort.recall;
    }
  };

  /// From entry points, or from covering heads, whichever takes less; none where there is no curve for k answers.
  std::optional<SlackWay> slack_way() const {
    const Calibration& calibration = placed.curves(execution);
    auto best = slack_way(calibration.slack(), {});
    if (const CoveringWalks* covering = calibration.covering()) {
      const auto other = slack_way(covering->slack, {covering->heads.data(), covering->heads.size()});
      if (other && (!best || other->is_ahead_of(*best))) best = other;
    }
    return best;
  }

  std::optional<SlackWay> slack_way(const KnobCurves& curves, std::span<const uint32_t> covering) const {
    if (curves.empty() || request.k == 0 || request.k > curves[curves.count() - 1].k) return std::nullopt;
    Effort effort(curves.knob(request.k, request.recall));
    effort.recall = curves.recall(request.k, effort.knob);
    const bool reaches = curves.reaches(request.k, request.recall);
    // The recall of a knob is rounded, and may end a little below its target.
    if (reaches) effort.recall = std::max(effort.recall, double{request.recall});
    effort.expansions = curves.cost(&KnobPoint::expansions, request.k, effort.knob);
    effort.covering = covering;
    // Between the curves of two k, one of which goes by a walk from all entry points, so do walks.
    effort.from_groups = covering.empty() && placed.curves(execution).from_groups().slacks &&
                         curves.knob_most(request.k, request.recall) <= EntryGroups::kSlackMost;
    const Segment& segment = placed.segment;
    const double starts = covering.empty() ? entries_compared(segment, effort)
                                           : CoveringCodes::counted(covering.size(), segment.codes);
    const double beam = curves.cost(&KnobPoint::bound, request.k, effort.knob);
    return SlackWay{effort, reaches, walk_distances(segment.graph, starts, beam),
                    slack_work(segment.graph, starts, segment.codes.walk_stride(), beam)};
  }

  Choice choose_on_device() const {
    // Counted times are up to a third off. All rows miss nothing: they serve where their time is counted as below
    // kAllRows of that of two lists. Of few queries walks leave most of a device to other callers, and all rows do not:
    // these have to be ahead, as kAllRowsOfFew says. Of 500,000 x 512 ReLU 10,000 queries at .99 took 30 ms by walks, counted as 23, and 20 by all rows,
    // counted as 24.
    constexpr double kAllRows = 1.2;
    constexpr double kAllRowsOfFew = 0.9;
    const Segment& segment = placed.segment;
    const SearchGraph& graph = segment.graph;
    const DeviceBatch batch{static_cast<double>(request.queries), request.k};
    bool is_first = false;
    const auto two_lists = choose_two_lists(0, &is_first);
    if (two_lists && request.params.beam != 0) return *two_lists;
    // Finding the recall that a beam promises takes microseconds, much of one query's time: only where it may answer.
    const auto plan_beam = [this] { return planned(kBestFirst, effort_of(kBestFirst)); };
    if (request.params.beam != 0) return plan_beam();

    Choice best = two_lists ? *two_lists : exactly();
    const double exact = exact_time(segment.dataset, batch);
    double least = two_lists ? two_lists_time(two_lists->effort, batch) : exact;
    if (!two_lists && request.k > kDeviceExactMax) return plan_beam();
    const double all_rows = batch.queries <= cuda::kExactStreamed ? kAllRowsOfFew : kAllRows;
    if (request.k <= kDeviceExactMax && exact < all_rows * least) {
      best = exactly();
      least = exact;
    }
    const auto consider = [&](const Choice& choice, double time) {
      if (time >= kPreferred * least) return;
      best = choice;
      least = time;
    };
    // One list has to be measured: only where two do not serve, or by product, where it may be ahead.
    const auto time_of_beam = [&](double beam) { return one_list_time(graph, list_bytes(), beam, batch); };
    if ((!two_lists || by_product()) && time_of_beam(request.k) < kPreferred * least) {
      if (const auto choice = choose_beam(); choice && choice->procedure == &kBestFirst)
        consider(*choice, time_of_beam(choice->effort.knob));
    }
    if (const auto in_doubt = choose_in_doubt(is_first, least)) return *in_doubt;
    // CAGRA's calibration costs the first search that needs it: only where the best so far would cost much more.
    constexpr uint32_t kShortest = 32;
    const double shortest = std::max(request.k, kShortest);
    if (kPreferred * least < cagra_time(graph, stored_bytes(), shortest, false, batch)) return best;
    if (const auto stored = choose_stored())
      consider(*stored, cagra_time(graph, stored_bytes(), stored->effort.knob,
                                   std::get<CagraPlan>(stored->plan).multi_cta, batch));
    return best;
  }

  /// Where the first warps do not reach the recall, the end of a curve whose sample leaves a doubt of it serves as another
  /// procedure does, as on the CPU: of 2,048 queries in islands one that misses all promises .9989, and all rows take 40
  /// times as long; of 500,000 uniform rows walks promise .9986 and get .9988 for .999, in .42 of the time of all rows.
  /// Not by product, where rows that serve as queries promise too much, nor for all answers.
  std::optional<Choice> choose_in_doubt(bool is_first, double sure_time) const {
    if (is_first || request.recall >= 1 || by_product()) return std::nullopt;
    auto choice = choose_two_lists(KnobCurve::kSampleDoubt, &is_first);
    const DeviceBatch batch{static_cast<double>(request.queries), request.k};
    if (!choice || two_lists_time(choice->effort, batch) >= kPreferred * sure_time) return std::nullopt;
    return choice;
  }

  /// The effort of one list on a device, measured there; none where the CPU's curves stand for it.
  std::optional<Effort> beam_on_device() const {
    const bool is_measured = target.on_device() && placed.calibration.exists() && request.queries != 0 &&
                             request.k != 0 && request.k <= kBestFirst.answers_measured;
    if (!is_measured) return std::nullopt;
    ann_search_params like = ANN_SEARCH_PARAMS_INIT;
    like.procedure = kBestFirst.id;
    return find_measured(like);
  }

  /// The effort by the procedure's own curves, measured now if they were not; none where they cannot be, be it for want of
  /// device memory, which the search itself may need less of.
  std::optional<Effort> find_measured(const ann_search_params& like) const {
    const Tuning& tuning = device != nullptr ? device->tuning : placed.tuning;
    try {
      return tuning.find(target, like, request.k, request.recall, execution);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      return std::nullopt;
    }
  }

  /// One list on a device, where its own curves reach the recall, or the CPU's where these stand for them. They do not
  /// where rows are too few for curves of a device: walks start elsewhere, and of 2,500 near copies stored as bf16 .79
  /// was got for .95. So few rows are soon compared.
  std::optional<Choice> choose_beam() const {
    const auto measured = beam_on_device();
    if (!measured && placed.calibration.exists() && Tuning::are_few_rows(placed.segment)) return std::nullopt;
    const bool reaches = measured ? measured->recall >= request.recall
                                  : placed.curves(execution).reaches(request.k, request.recall);
    if (!reaches) return std::nullopt;
    return planned(kBestFirst, effort_of_beam(measured));
  }

  /// The effort of one list as measured on a device, which is asked once: where memory is short each question may be a
  /// measurement in vain. Else by the build's calibration, or by a cautious rule.
  Effort effort_of_beam(const std::optional<Effort>& measured) const {
    if (measured) return *measured;
    const uint32_t beam = placed.curves(execution).beam(request.k, request.recall);
    return promised(kBestFirst, kBestFirst.unmeasured(request, beam));
  }

  bool by_product() const { return placed.segment.codes.scaled() != nullptr; }

  double two_lists_time(const Effort& effort, const DeviceBatch& batch) const {
    const size_t bytes = two_lists_row_bytes(placed.segment, *device->placement);
    return gannet::two_lists_time(placed.segment.graph, bytes, {effort.warps, effort.capped, by_product()},
                                  effort.expansions, batch);
  }

  size_t list_bytes() const { return walked_row_bytes(placed.segment, *device->placement); }

  /// Bytes of a row that CAGRA's walks read.
  size_t stored_bytes() const {
    return placed.segment.codes.lossless() ? placed.segment.codes.stride()
                                           : placed.segment.dataset.view().stride;
  }

  /// CAGRA's walks of a device over rows as stored, or over codes that are the rows, where their calibration
  /// reaches the recall: the recall of two lists is bounded by the order of rows by codes, and by how many they
  /// re-rank. On the CPU its calibration would take longer than the comparisons that it saves.
  std::optional<Choice> choose_stored() const {
    constexpr uint32_t kMeasuredAnswers = 100;
    if (!target.on_device() || !placed.calibration.exists() || request.k == 0 || request.queries == 0 ||
        request.k > kMeasuredAnswers)
      return std::nullopt;
    Chooser stored = *this;
    stored.request.params.compare = placed.segment.codes.lossless() ? ANN_COMPARE_CODES : ANN_COMPARE_STORED;
    const Effort effort = stored.effort_of(kCagra);
    if (effort.recall < request.recall) return std::nullopt;
    return stored.planned(kCagra, effort);
  }

  /// The first warps by order of the batch, if their calibration reaches the recall, with lists for more answers where
  /// these take less counted work. Else the next ones that reach it, or lists for more answers, whichever take less. A
  /// beam of the caller stands for the recall that it has on the CPU.
  ///
  /// A warp's filter is smaller than a block's, so that its walks may take more expansions for the same recall: with all
  /// rows marked (search/walk_cuda.cu), for 100 answers of SIFT 1M at .99 774 and 256, and 10,000 queries 8.9 and 4.1 ms.
  ///
  /// By product the curve of a warp for ten answers rises in steps, since queries find all of them or none. Walks for a
  /// hundred do not, and find the first ten of 150,000 words in .55 of the time at .8 (10,000 queries), and the first
  /// one in .71 to .82 at .85 and .95 (1,000). In sets by distance they were not ahead. In large batches blocks take half
  /// of a warp's time where these are counted alike: at .88 and .92 of foreign queries 1.0 and 1.1 ms, a warp 1.8 and 3.5.
  ///
  /// `is_first`: set where the first warps reach the recall.
  std::optional<Choice> choose_two_lists(double doubt, bool* is_first) const {
    constexpr double kFarAhead = 1.4;  // counted work lies within a third of a walk's time
    constexpr double kAhead = 1.1;     // and nearer for walks of the same warps, and by product
    const uint32_t beam = request.params.beam;
    if (beam != 0 && !placed.calibration.exists()) return std::nullopt;
    if (request.k == 0) return std::nullopt;
    const float recall = beam == 0 ? request.recall : placed.curves(execution).recall(request.k, beam);
    const bool codes_bound = !placed.segment.codes.lossless() && request.k < kDeepAnswers;
    const DeviceBatch batch{static_cast<double>(request.queries), request.k};
    std::optional<Choice> best;
    double least = 0;
    const auto consider = [&](QueryWarps query_warps, uint32_t answers, double ahead = 1) {
      const DeviceCalibration& tables = two_lists();
      const auto effort = answers == request.k ? tables.find(query_warps, request.k, recall, doubt)
                                               : tables.find_deep(query_warps, request.k, recall, doubt);
      if (!effort) return false;
      const double time = two_lists_time(*effort, batch);
      if (best && least <= ahead * time) return true;
      least = time;
      best = planned(kTwoLists, *effort);
      if (answers != request.k) std::get<TwoListsPlan>(best->plan).answers = answers;
      return true;
    };
    const std::array<QueryWarps, 4> order = order_query_warps(recall);
    bool found = false;
    for (size_t i = 0; i < order.size(); ++i) {
      if (!found) found = consider(order[i], request.k);
      if (found && i == 0) {
        *is_first = true;
        const bool has_blocks = is_large(batch) && order[0].warps == 1;
        if (has_blocks) consider(order[1], request.k, by_product() ? kAhead : kFarAhead);
        if (codes_bound) consider(order[0], kDeepAnswers, kAhead);
        if (codes_bound && by_product() && has_blocks) consider(order[1], kDeepAnswers, kAhead);
        return best;
      }
      if (codes_bound) consider(order[i], kDeepAnswers);
    }
    return best;
  }

  /// The warps for this batch, the best choice first. Blocks of 16 warps run one query at a time on each
  /// multiprocessor, blocks of 8 some three; a batch of more than
  /// eleven queries for each multiprocessor keeps a warp for each query busy (one NVIDIA H200, 132 of them:
  /// 32 us for 100 queries with 16 warps, 37 with 8; 98 us for 1,000 with 8; 187 us for 3,000 with 1 and 240
  /// with 8). Where a warp each can walk at once for all queries, walks cut at their mean end sooner from
  /// some four queries a multiprocessor on (one NVIDIA H200, SIFT 1M, kernels, with a warp and with a block
  /// of 8: 400 queries 103 us at recall 0.954 and 74 at 0.955, 600 queries 105 at 0.956 and 108 at 0.957,
  /// 1,000 queries 110 at 0.956 and 142 at 0.958). Where codes are not the rows, warps whose walks are short are
  /// ahead from fewer queries on (likewise, degree 32, from device memory, k = 10, the time of a block of 8 as a part of
  /// a warp's for 700 and 1,000 queries, at the expansions of degree 64 that the warp's walks take: 150,000 words 1.26
  /// and 1.38 at 4.3, 1.35 and 1.23 at 6.3, 1.08 and 1.11 at 8.8, .85 and .83 at 11), of wide rows fewer and later
  /// (recall .8, .9, .95: texts of 384 columns 1.08 and 1.28, .91 and 1.11, .62 and .73; gist 1.05 and 1.30, .89 and
  /// 1.15, .81 and 1.04). Not where rows have many copies or lie in islands: of 100,000 near copies of 2,000 rows a warp
  /// got .74 of .8, since rows that serve as queries are masked there, and their copies are not.
  std::array<QueryWarps, 4> order_query_warps(float recall) const {
    constexpr size_t kNarrowRow = 128;
    const uint64_t queries = request.queries;
    const uint64_t multiprocessors = target.device->multiprocessors();
    if (queries <= multiprocessors) return {{{16}, {8}, {1}, {1}}};
    if (queries > 4 * multiprocessors && queries <= cuda::resident_queries(*target.device, request.k))
      return {{{1, true}, {8}, {1}, {16}}};
    const auto warp = two_lists().find({1}, request.k, recall);
    const SearchGraph& graph = placed.segment.graph;
    const bool narrow = list_bytes() <= kNarrowRow;
    const double short_walk = narrow ? 10 : 6.5;  // expansions at degree 64
    const bool is_short = !placed.segment.codes.lossless() && graph.heads.empty() && warp &&
                          warp->expansions * degree_share(graph) <= short_walk;
    if (queries <= (!is_short ? 11 : narrow ? 5 : 6) * multiprocessors) return {{{8}, {1}, {16}, {16}}};
    return {{{1}, {8}, {16}, {16}}};
  }

  /// The calibration of two lists for the request's answers; none where there is no memory to measure it.
  const DeviceCalibration& two_lists() const {
    static const DeviceCalibration kNone;
    try {
      return device->two_lists_for(request.k, placed, execution);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      return kNone;
    }
  }

  /// The effort that the caller names, or the one that calibration has found for the wanted recall.
  Effort effort_of(const Procedure& procedure) const {
    if (&procedure == &kTwoLists)
      return two_lists().nearest(request.params.warps_per_query, request.k, request.recall);
    if (procedure.given != nullptr) {
      if (const auto given = procedure.given(request)) return promised(procedure, *given);
    }
    if (procedure.unmeasured == nullptr) return {};
    if (&procedure == &kBestFirst) return effort_of_beam(beam_on_device());
    const Effort effort = procedure.unmeasured(request, beam_asked());
    const bool is_measured = procedure.knob_at != nullptr && request.k != 0 && request.queries != 0;
    return is_measured && placed.calibration.exists() ? measured_effort(procedure, effort) : effort;
  }

  /// With the recall that the build's calibration promises of a beam of BEST_FIRST, whose walks start as it has measured.
  Effort promised(const Procedure& procedure, Effort effort) const {
    if (&procedure != &kBestFirst || request.k == 0) return effort;
    const Calibration& calibration = placed.curves(execution);
    if (calibration.empty()) return effort;
    const KnobCurves& curves = calibration.curves();
    effort.recall = curves.tell_of(request.k) ? curves.recall(request.k, effort.knob) : 0;
    const bool edges_are_given =
        target.on_device() || request.params.beam != 0 || request.params.occlusion_max != 0;
    effort.from_groups = !target.on_device() && calibration.from_groups().lists &&
                         beam_of(effort.knob) <= EntryGroups::kListMost;
    if (edges_are_given || !curves.tell_of(request.k)) return effort;
    const SearchGraph& graph = placed.segment.graph;
    effort.edges_part =
        calibration.edges_part(request.k, request.recall, by_product() || !graph.heads.empty(), graph.degree);
    if (effort.edges_part < kAllEdges)
      effort.recall =
          std::max(double{request.recall}, calibration.recall_of_part(request.k, effort.edges_part));
    return effort;
  }

  /// A longer beam may choose the other of two procedures that a name stands for, whose own curves then count.
  Effort measured_effort(const Procedure& procedure, Effort effort) const {
    if (&procedure == &kSlack) {
      if (const auto found = slack_way()) return found->effort;
    }
    for (uint32_t turn = 0; turn < 2; ++turn) {
      const auto found = find_measured(measured_as(procedure, effort));
      if (!found) break;
      effort = *found;
      if (procedure.measured_as == nullptr) break;
    }
    return effort;
  }

  /// The beam of one list for the wanted recall, as measured on the device or by the CPU's calibration, or by a cautious
  /// rule.
  uint32_t beam_asked() const {
    if (const auto found = beam_on_device()) return beam_of(found->knob);
    return placed.curves(execution).beam(request.k, request.recall);
  }

  ann_search_params measured_as(const Procedure& procedure, const Effort& effort) const {
    if (procedure.measured_as != nullptr)
      return procedure.measured_as(procedure.plan(target, request, effort));
    ann_search_params like = ANN_SEARCH_PARAMS_INIT;
    like.procedure = procedure.id;
    return like;
  }
};

}  // namespace

Choice choose(const PlacedSegment& placed, const PlacedDevice* device, const SearchRequest& request,
              const Execution& execution) {
  return Chooser{placed, device, request, execution}.choose();
}

bool compares_all(const Segment& segment, const ann_search_params& params) {
  if (params.procedure == ANN_SEARCH_EXACT) return true;
  if (segment.has_graph()) return false;
  if (params.procedure != ANN_SEARCH_AUTO)
    fail(ANN_UNSUPPORTED, "params.procedure is %s, but the index has no graph",
         find_procedure(params.procedure)->name);
  return true;
}

}  // namespace gannet

// A search of a snapshot: where each segment is searched, by which plan, and the answers of several as one.

#include <algorithm>
#include <vector>

#include "backend/devices.h"
#include "index/choose.h"
#include "index/snapshot.h"
#include "tune/row_queries.h"
#include "tune/search_work.h"

namespace gannet {
namespace {

/// A search of one segment, every choice made.
struct PlannedSearch {
  std::shared_ptr<const PlacedDevice> device;  // null: the CPU, or rows are sent to a device to be compared
  Choice choice;                               // no procedure: rows are sent
};

/// The recall that calibration is asked for. By product rows serve as queries where edges are made, and where no others
/// are given in calibration too. Others find fewer in short walks, and some of them not all in long ones: foreign queries of
/// word vectors got .79 of .8 and .88 of .9 (.77 of .8 by a block), but .96 of .95; queries like the rows .964 of .95,
/// .984 of .99 and, of one answer, .987 of .999. Of few rows others find fewer still, and to compare all costs little: ALS
/// factors with users as queries got .914 of .95 of ten of 1,000 and .924 of a hundred of 10,000, so that half of the miss
/// is asked for, and all rows are compared from .9984 on.
float recall_to_find(const Segment& segment, float recall) {
  constexpr float kFew = 0.0008f;
  if (segment.codes.scaled() == nullptr || segment.queries.count() != 0) return recall;
  const float miss = 1 - recall;
  const float share = segment.rows() < kFewRows ? 0.5f : std::min(0.5f, 2 * miss);
  return std::min(1.0f, recall + miss * share + kFew);
}

PlannedSearch plan_segment(const PlacedSegment& placed, const ann_search_params& params, int32_t device,
                           bool queries_on_device, SearchRequest request, const Execution& execution) {
  PlannedSearch planned;
  request.recall = recall_to_find(placed.segment, request.recall);
  const bool exact = compares_all(placed.segment, params);
  if (device >= ANN_DEVICE_CUDA) {
    check_cuda_device(device);
    const int32_t ordinal = device - ANN_DEVICE_CUDA;
    // Exact search of host memory sends the rows that it needs; it has no use for a placement.
    planned.device = exact && !queries_on_device ? placed.devices.find(ordinal)
                                                 : placed.devices.get(placed, ordinal, execution);
    if (planned.device == nullptr) return planned;
  }
  planned.choice = choose(placed, planned.device.get(), request, execution);
  return planned;
}

SearchReport report_of(const Segment& segment, const PlannedSearch& planned, uint32_t k) {
  SearchReport report;
  const Choice& choice = planned.choice;
  const bool compares_all = choice.procedure == nullptr || std::holds_alternative<ExactPlan>(choice.plan);
  report.procedure = compares_all ? int32_t{ANN_SEARCH_EXACT} : choice.procedure->id;
  report.recall = compares_all ? 1 : choice.effort.recall;
  report.distances = segment.rows();
  if (compares_all) return report;
  report.warps = choice.effort.warps;
  const bool is_beam = choice.procedure->knob == Knob::kBeam;
  report.expansions = choice.effort.expansions > 0 ? choice.effort.expansions
                      : is_beam                    ? std::min<double>(choice.effort.knob, segment.rows())
                                                   : 0;
  report.distances =
      walk_distances(segment.graph, entries_compared(segment, choice.effort), report.expansions);
  if (!segment.codes.walks_report()) report.distances += std::min(rerank_count(k), segment.rows());
  return report;
}

void search_segment(const PlacedSegment& placed, const ann_search_params& params, float recall,
                    int32_t device, const SearchBatch& batch, const Execution& execution,
                    SearchCounts* counts, SearchReport* report) {
  const Segment& segment = placed.segment;
  const uint32_t k = std::min(batch.results.k, segment.rows());
  const SearchRequest request{params, recall, batch.queries.rows, k, batch.results.k};
  const PlannedSearch planned =
      plan_segment(placed, params, device, batch.queries.on_device(), request, execution);
  report->add(report_of(segment, planned, k));
  DevicePlacement* placement = planned.device != nullptr ? planned.device->placement.get() : nullptr;
  if (device >= ANN_DEVICE_CUDA && placement == nullptr)
    return compare_host_batch(segment, device, nullptr, batch, execution, counts);
  answer_batch({placed.host, placement}, *planned.choice.procedure, planned.choice.plan, batch, execution,
               counts);
}

/// The answers of one segment for a batch, in memory of their own.
struct PartialAnswers {
  PartialAnswers(const SearchBatch& batch, const Allocator& memory)
      : ids(memory, checked_product(batch.queries.rows, batch.results.k)),
        distances(memory, ids.size()),
        counts(memory, batch.queries.rows),
        status(memory, batch.queries.rows) {}

  ResultsView view(uint32_t k) { return {k, ids.data(), distances.data(), counts.data(), status.data()}; }

  Array<uint64_t> ids;
  Array<float> distances;
  Array<uint32_t> counts;
  Array<ann_status> status;
};

/// The k first of all segments' answers by (distance, id).
void merge_answers(const std::vector<PartialAnswers>& parts, uint64_t queries, const ResultsView& results,
                   const Execution& execution) {
  const uint32_t k = results.k;
  parallel_for(execution, queries, 256, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<Neighbor> merged;
    merged.reserve(parts.size() * size_t{k});
    for (uint64_t query = begin; query < end; ++query) {
      merged.clear();
      for (const PartialAnswers& part : parts) {
        for (uint32_t i = 0; i < part.counts[query]; ++i)
          merged.push_back({part.distances[query * k + i], part.ids[query * k + i]});
      }
      const uint32_t found = static_cast<uint32_t>(std::min<size_t>(k, merged.size()));
      std::partial_sort(merged.begin(), merged.begin() + found, merged.end());
      write_answer(results, query, merged.data(), found, parts.front().status[query]);
    }
  });
}

}  // namespace

void search_snapshot(const Snapshot& snapshot, const ann_search_params& params, float recall, int32_t device,
                     const SearchBatch& batch, const Execution& execution, SearchCounts* counts,
                     SearchReport* report) {
  SearchReport unread;
  if (report == nullptr) report = &unread;
  if (snapshot.segments.size() == 1) {
    SearchBatch whole = batch;
    whole.admission.removed = snapshot.removed_of(0);
    return search_segment(snapshot.single(), params, recall, device, whole, execution, counts, report);
  }
  if (batch.queries.on_device())
    fail(ANN_UNSUPPORTED, "the index has %zu segments, whose answers are merged in host memory",
         snapshot.segments.size());
  std::vector<PartialAnswers> parts;
  parts.reserve(snapshot.segments.size());
  const double count = static_cast<double>(snapshot.segments.size());
  for (const auto& segment : snapshot.segments) {
    const double done = static_cast<double>(parts.size()) / count;
    SearchBatch part{batch.queries, {}, nullptr, {}};
    part.admission.removed = snapshot.removed_of(parts.size());
    parts.emplace_back(batch, execution.memory);
    part.results = parts.back().view(batch.results.k);
    search_segment(*segment, params, recall, device, part, execution.span(done, done + 1 / count), counts,
                   report);
  }
  merge_answers(parts, batch.queries.rows, batch.results, execution);
}

SearchReport forecast_search(const Snapshot& snapshot, const ann_search_params& params, float recall,
                             int32_t device, bool queries_on_device, uint64_t queries, uint32_t k,
                             const Execution& execution) {
  SearchReport report;
  for (const auto& placed : snapshot.segments) {
    const uint32_t answers = std::min(k, placed->segment.rows());
    const PlannedSearch planned = plan_segment(*placed, params, device, queries_on_device,
                                               {params, recall, queries, answers, k}, execution);
    report.add(report_of(placed->segment, planned, answers));
  }
  return report;
}

}  // namespace gannet

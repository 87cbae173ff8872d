// A search of a snapshot: where each segment is searched, by which plan, and the answers of several as one.

#include <algorithm>
#include <vector>

#include "backend/devices.h"
#include "index/choose.h"
#include "index/snapshot.h"

namespace gannet {
namespace {

void search_segment(const PlacedSegment& placed, const ann_search_params& params, float recall,
                    int32_t device, const SearchBatch& batch, const Execution& execution,
                    SearchCounts* counts) {
  const Segment& segment = placed.segment;
  const SearchRequest request{params, recall, batch.queries.rows, std::min(batch.results.k, segment.rows()),
                              batch.results.k};
  std::shared_ptr<const PlacedDevice> on_device;
  const bool exact = compares_all(segment, params);
  if (device >= ANN_DEVICE_CUDA) {
    check_cuda_device(device);
    const int32_t ordinal = device - ANN_DEVICE_CUDA;
    // Exact search of host memory sends the rows that it needs; it has no use for a placement.
    on_device = exact && !batch.queries.on_device() ? placed.devices.find(ordinal)
                                                    : placed.devices.get(placed, ordinal, execution);
    if (on_device == nullptr) return compare_host_batch(segment, device, nullptr, batch, execution, counts);
  }
  const Choice choice = choose(placed, on_device.get(), request, execution);
  const SearchTarget target{placed.host, on_device != nullptr ? on_device->placement.get() : nullptr};
  answer_batch(target, *choice.procedure, choice.plan, batch, execution, counts);
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
                     const SearchBatch& batch, const Execution& execution, SearchCounts* counts) {
  if (snapshot.segments.size() == 1) {
    SearchBatch whole = batch;
    whole.admission.removed = snapshot.removed_of(0);
    return search_segment(snapshot.single(), params, recall, device, whole, execution, counts);
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
    search_segment(*segment, params, recall, device, part, execution.span(done, done + 1 / count), counts);
  }
  merge_answers(parts, batch.queries.rows, batch.results, execution);
}

}  // namespace gannet

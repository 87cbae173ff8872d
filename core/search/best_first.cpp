#include "search/best_first.h"

#include <algorithm>
#include <utility>

#include "search/best_first_walk.h"

namespace gannet {
namespace {

/// Leaves those rows and the distances of their codes in `workspace`; how many.
uint32_t choose_rows(const Beam& beam, uint32_t near, const Admission& admission, uint32_t k,
                     SearchWorkspace& workspace) {
  const uint32_t most = std::min(near, rerank_count(k));
  uint32_t count = 0;
  for (uint32_t i = 0; i < near && count < most; ++i) {
    const uint32_t row = RowKey::row(beam.key(i));
    if (!admission.answers(row)) continue;
    workspace.distances[count] = static_cast<float>(RowKey::distance(beam.key(i)));
    workspace.rows[count++] = row;
  }
  return count;
}

}  // namespace

uint32_t CompareOnce::compare(const Beam& beam, uint32_t near, uint32_t k) {
  const uint32_t count = choose_rows(beam, near, admission_, k, workspace_);
  if (codes_.walks_report()) return count;
  uint32_t fresh[kPiece];
  uint32_t at[kPiece];
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t place = place_of(workspace_.rows[i]);
    if (rows_[place] != kNoRow) {
      workspace_.distances[i] = distances_[place];
      continue;
    }
    fresh[waiting] = workspace_.rows[i];
    at[waiting++] = i;
    if (waiting == kPiece) compare_piece(fresh, at, std::exchange(waiting, 0));
  }
  compare_piece(fresh, at, waiting);
  return count;
}

void CompareOnce::compare_piece(const uint32_t* rows, const uint32_t* at, uint32_t count) {
  if (count == 0) return;
  float distances[kPiece];
  dataset_.distances(query_, rows, 0, count, distances);
  for (uint32_t i = 0; i < count; ++i) {
    workspace_.distances[at[i]] = distances[i];
    if (used_ == kFull) continue;
    const uint32_t place = place_of(rows[i]);
    rows_[place] = rows[i];
    distances_[place] = distances[i];
    ++used_;
  }
}

SearchWorkspace& begin_walk(const Codes& codes, const PreparedQuery& query, const Admission& admission,
                            uint32_t length, SearchWorkspace& workspace) {
  workspace.fit_beam(length);
  codes.encode_walk_query(query, workspace.code.data());
  if (admission.masked != kNoRow) workspace.visited.enter(admission.masked);
  return workspace;
}

uint32_t choose_again(const Dataset& dataset, const Codes& codes, const Beam& beam, uint32_t near,
                      const Admission& admission, uint32_t k, SearchWorkspace& workspace) {
  const uint32_t count = choose_rows(beam, near, admission, k, workspace);
  if (codes.walks_report()) return count;
  for (uint32_t i = 0; i < count; ++i) prefetch_row(dataset, workspace.rows[i]);
  return count;
}

void compare_again(const Dataset& dataset, const Codes& codes, const PreparedQuery& query, uint32_t count,
                   SearchWorkspace& workspace, SearchCounts& counts) {
  if (codes.walks_report()) return;
  counts.distances += count;
  dataset.distances(query, workspace.rows.data(), 0, count, workspace.distances.data());
}

uint32_t report_nearest(const Dataset& dataset, uint32_t compared, uint32_t k, SearchWorkspace& workspace) {
  for (uint32_t i = 0; i < compared; ++i)
    workspace.neighbors[i] = {workspace.distances[i], dataset.id(workspace.rows[i])};
  const uint32_t found = std::min(k, compared);
  std::partial_sort(workspace.neighbors.data(), workspace.neighbors.data() + found,
                    workspace.neighbors.data() + compared);
  return found;
}

uint32_t compare_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                            const PreparedQuery& query, const Admission& admission, uint32_t k, uint32_t beam,
                            SearchWorkspace& workspace, SearchCounts* counts) {
  BestFirstSearch search(dataset, codes, graph, query, admission, k, beam, workspace);
  search.compare();
  *counts += search.counts();
  return search.compared();
}

void trace_best_first(
    const Dataset& dataset, const Codes& codes, const SearchGraph& graph, const PreparedQuery& query,
    const Admission& admission, std::span<const BeamStop> stops, SearchWorkspace& workspace,
    const std::function<bool(size_t stop, uint32_t compared, const SearchCounts& counts)>& found) {
  // Short lists that start elsewhere are a walk of their own.
  const auto end_of_short = std::partition_point(stops.begin(), stops.end(), [&](const BeamStop& stop) {
    return workspace.starts_from_groups(stop.beam);
  });
  const auto split = static_cast<size_t>(end_of_short - stops.begin());
  if (split != 0 && split != stops.size()) {
    bool goes_on = true;
    const auto found_short = [&](size_t stop, uint32_t compared, const SearchCounts& counts) {
      return goes_on = found(stop, compared, counts);
    };
    trace_best_first(dataset, codes, graph, query, admission, stops.first(split), workspace, found_short);
    if (!goes_on) return;
    const auto found_long = [&](size_t stop, uint32_t compared, const SearchCounts& counts) {
      return found(split + stop, compared, counts);
    };
    return trace_best_first(dataset, codes, graph, query, admission, stops.subspan(split), workspace,
                            found_long);
  }
  const uint32_t longest = stops.back().beam;
  const VisitedCleared cleared(begin_walk(codes, query, admission, longest, workspace).visited);
  BestFirstWalk walk(codes, graph, admission, longest, workspace);
  CompareOnce once(dataset, codes, query, admission, workspace);
  walk.start();
  for (size_t stop = 0; stop < stops.size(); ++stop) {
    while (walk.beam.first_waiting() < std::min(stops[stop].beam, walk.beam.size())) {
      if (!walk.step()) break;
    }
    const uint32_t near = std::min(stops[stop].beam, walk.beam.size());
    if (!found(stop, once.compare(walk.beam, near, stops[stop].k), walk.counts)) return;
  }
}

uint32_t search_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                           const PreparedQuery& query, const Admission& admission, uint32_t k, uint32_t beam,
                           SearchWorkspace& workspace, SearchCounts* counts) {
  const uint32_t compared =
      compare_best_first(dataset, codes, graph, query, admission, k, beam, workspace, counts);
  return report_nearest(dataset, compared, k, workspace);
}

}  // namespace gannet

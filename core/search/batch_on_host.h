// The batch drivers of the CPU: queries go to as many threads as they are worth, each with a workspace of the
// placement, or with several where searches take turns.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>

#include "place/placement.h"
#include "search/queries.h"

namespace gannet {

/// Queries that one thread takes at a time: enough to be worth the trip, few enough to share.
inline uint64_t queries_per_task(uint64_t queries, uint32_t threads) {
  return std::clamp<uint64_t>(queries / (uint64_t{threads} * 8), 1, 64);
}

/// Searches of one thread that take turns: while the memory that one has requested is on its way, others go on. Time
/// of a query with a beam of 16 as part of the time of one after the other, by 2, 3, 4, 6 and 8 of them (AMD EPYC
/// with AVX-512, 32 MB of third-level cache): SIFT .77 .71 .65 .77 .75, words .70 .60 .60 .57 .62, patches .92 .79 .83
/// .86 .85, texts .94 .88 .87 .92 .92, GIST, which uses the full memory bandwidth anyhow, .93 .93 .92 .94 .96.
inline constexpr uint32_t kTurns = 4;

/// Answers a batch. `make()` makes a workspace; `search(query, admission, workspace, counts)` leaves the neighbours of
/// a prepared query, which lies in workspace.values, in workspace.neighbors and returns how many.
template <class T, class Make, class Search>
void answer_on_host(const HostPlacement& host, const SearchBatch& batch, const Execution& execution,
                    SearchCounts* counts, const Make& make, const Search& search) {
  const MatrixView& queries = batch.queries;
  const Dataset& dataset = host.segment.dataset;
  std::atomic<uint64_t> distances = 0;
  std::atomic<uint64_t> expansions = 0;
  const uint64_t task = queries_per_task(queries.rows, execution.threads);
  const uint64_t row_bytes = host.segment.codes.stride() + 64;  // and the memory read to find it
  parallel_for(execution, queries.rows, task, [&](uint64_t begin, uint64_t end, uint32_t) {
    const WorkspaceLease<T> lease(host.workspaces, make);
    T& workspace = *lease;
    SearchCounts task_counts;
    workspace.begin(execution.monitor, row_bytes);
    for (uint64_t query = begin; query < end; ++query) {
      PreparedQuery prepared;
      uint32_t found = 0;
      const bool usable =
          dataset.prepare(queries.row(query), queries.element, workspace.values.data(), &prepared);
      if (usable) found = search(prepared, batch.admission.of(query), workspace, &task_counts);
      write_answer(batch.results, query, workspace.neighbors.data(), found,
                   usable ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
    distances.fetch_add(task_counts.distances, std::memory_order_relaxed);
    expansions.fetch_add(task_counts.expansions, std::memory_order_relaxed);
    execution.advance(static_cast<double>(end) / static_cast<double>(queries.rows));
  });
  counts->distances += distances.load();
  counts->expansions += expansions.load();
}

/// A place at which one search after the other takes its turns.
template <class Search, class Space>
struct SearchTurns {
  std::optional<WorkspaceLease<Space>> lease;
  std::optional<Search> search;
  uint64_t query = 0;
};

/// Answers a batch with kTurns searches a thread. `make()` makes a workspace; `begin(search, query, admission,
/// workspace)` emplaces the search for a prepared query, which lies in workspace.values.
template <class Search, class Space, class Make, class Begin>
void answer_by_turns(const HostPlacement& host, const SearchBatch& batch, const Execution& execution,
                     SearchCounts* counts, const Make& make, const Begin& begin) {
  const MatrixView& queries = batch.queries;
  const Dataset& dataset = host.segment.dataset;
  std::atomic<uint64_t> distances = 0;
  std::atomic<uint64_t> expansions = 0;
  const uint64_t task = queries_per_task(queries.rows, execution.threads);
  const uint64_t row_bytes = host.segment.codes.stride() + 64;  // and the memory read to find it
  parallel_for(execution, queries.rows, task, [&](uint64_t first, uint64_t end, uint32_t) {
    SearchTurns<Search, Space> turns[kTurns];
    const auto places = static_cast<uint32_t>(std::min<uint64_t>(kTurns, end - first));
    for (uint32_t place = 0; place < places; ++place) {
      turns[place].lease.emplace(host.workspaces, make);
      (**turns[place].lease).begin(execution.monitor, row_bytes);
    }
    SearchCounts task_counts;
    uint64_t next = first;
    uint64_t left = end - first;
    const auto write = [&](uint64_t query, const Neighbor* neighbors, uint32_t found, ann_status status) {
      write_answer(batch.results, query, neighbors, found, status);
      --left;
    };
    const auto finish = [&](SearchTurns<Search, Space>& turn) {
      write(turn.query, (**turn.lease).neighbors.data(), turn.search->found(), ANN_OK);
      task_counts += turn.search->counts();
      turn.search.reset();
    };
    const auto take_turn = [&](SearchTurns<Search, Space>& turn) {
      if (turn.search.has_value()) {
        if (!turn.search->go_on()) finish(turn);
        return;
      }
      if (next == end) return;
      turn.query = next++;
      Space& workspace = **turn.lease;
      PreparedQuery prepared;
      if (!dataset.prepare(queries.row(turn.query), queries.element, workspace.values.data(), &prepared)) {
        write(turn.query, nullptr, 0, ANN_NOT_FINITE);
        return;
      }
      begin(turn.search, prepared, batch.admission.of(turn.query), workspace);
      if (places > 1) {
        turn.search->go_on();
      } else {
        turn.search->run();
        finish(turn);
      }
    };
    // Every second one begins a round later, so that some request edges while others compare.
    for (uint32_t place = 0; place < places; place += 2) take_turn(turns[place]);
    while (left > 0) {
      for (uint32_t place = 0; place < places; ++place) take_turn(turns[place]);
    }
    distances.fetch_add(task_counts.distances, std::memory_order_relaxed);
    expansions.fetch_add(task_counts.expansions, std::memory_order_relaxed);
    execution.advance(static_cast<double>(end) / static_cast<double>(queries.rows));
  });
  counts->distances += distances.load();
  counts->expansions += expansions.load();
}

}  // namespace gannet

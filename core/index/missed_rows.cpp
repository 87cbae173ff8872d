#include "index/missed_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "graph/spare_edge.h"
#include "search/best_first.h"
#include "search/device_search.h"
#include "search/host_batch.h"
#include "search/workspace_bytes.h"

namespace gannet {
namespace {

constexpr uint64_t kProbeStream = 0x6d6973736564;  // "missed"
constexpr uint32_t kRowsPerProbe = 32;
constexpr uint32_t kBatchesMost = 4;
constexpr uint32_t kRowsPerMiss = 50;  // another batch follows where more are missed
constexpr uint32_t kRounds = 3;
constexpr uint32_t kFound = 4;          // nearest rows that a walk found
constexpr uint32_t kBeam = 16;          // of walks of the CPU,
constexpr uint32_t kAnswers = 10;       // and the answers of those of a device
constexpr uint32_t kExpansions = 4096;  // of one of these at most
constexpr uint32_t kInsertsPerCheck = 4096;
constexpr uint32_t kAtOnce = 2048;  // queries of a device, as many as calibration has

/// Short walks over a graph that gets edges between them.
class ShortWalks {
 public:
  virtual ~ShortWalks() = default;
  /// Searches for rows: `found`, [rows, kFound], gets the nearest that each walk found, kNoRow at the end.
  virtual void run(std::span<const uint32_t> rows, uint32_t* found) = 0;
  /// Some rows of the graph have other edges.
  virtual void take_edges(std::span<const uint32_t> rows) = 0;
};

class HostWalks final : public ShortWalks {
 public:
  /// `update`, unless null, gets the edges too.
  HostWalks(const Segment& segment, EdgeUpdate* update, const Execution& execution)
      : segment_(segment), update_(update), execution_(execution) {
    workspaces_.reserve(execution.threads);
    for (uint32_t worker = 0; worker < execution.threads; ++worker)
      workspaces_.emplace_back(segment.dataset, segment.codes, segment.graph, execution.memory);
  }

  void run(std::span<const uint32_t> rows, uint32_t* found) override {
    parallel_for(execution_, rows.size(), 4, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i) search(rows[i], found + i * kFound, workspaces_[worker]);
    });
  }

  void take_edges(std::span<const uint32_t> rows) override {
    if (update_ != nullptr) update_->replace(segment_.graph, rows);
  }

 private:
  void search(uint32_t row, uint32_t* found, SearchWorkspace& workspace) const {
    const Dataset& dataset = segment_.dataset;
    std::fill(found, found + kFound, kNoRow);
    PreparedQuery query;
    if (!dataset.prepare(dataset.view().row(row), dataset.element(), workspace.values.data(), &query)) return;
    SearchCounts counts;
    const uint32_t count = compare_best_first(dataset, segment_.codes, segment_.graph, query, {}, kFound,
                                              kBeam, workspace, &counts);
    std::copy_n(workspace.rows.data(), std::min(count, kFound), found);
  }

  const Segment& segment_;
  EdgeUpdate* update_;
  const Execution& execution_;
  std::vector<SearchWorkspace> workspaces_;
};

class DeviceWalks final : public ShortWalks {
 public:
  DeviceWalks(const Segment& segment, DevicePlacement& placement, EdgeUpdate& update, uint32_t rows,
              const Execution& execution)
      : segment_(segment),
        update_(update),
        execution_(execution),
        lease_(placement, std::min(rows, kAtOnce), kAnswers),
        values_(execution.memory, checked_product(lease_->capacity(), row_bytes())) {}

  void run(std::span<const uint32_t> rows, uint32_t* found) override {
    const TwoListsPlan plan{.slack = 0, .expansions_max = kExpansions, .warps = 1};
    for (size_t first = 0; first < rows.size(); first += lease_->capacity()) {
      execution_.check();
      const auto some = rows.subspan(first, std::min<size_t>(lease_->capacity(), rows.size() - first));
      fill(some);
      lease_->run(static_cast<uint32_t>(some.size()), plan, {}, false);
      for (size_t i = 0; i < some.size(); ++i)
        std::copy_n(lease_->rows() + i * kAnswers, kFound, found + (first + i) * kFound);
    }
  }

  void take_edges(std::span<const uint32_t> rows) override { update_.replace(segment_.graph, rows); }

 private:
  size_t row_bytes() const {
    return size_t{segment_.dataset.dim()} * element_bytes(segment_.dataset.element());
  }

  void fill(std::span<const uint32_t> rows) {
    const RowsView stored = segment_.dataset.view();
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(values_.data() + i * row_bytes(), stored.row(rows[i]), row_bytes());
    const MatrixView queries{values_.data(), rows.size(), stored.dim, stored.element, row_bytes()};
    fill_workspace(segment_, queries, 0, static_cast<uint32_t>(rows.size()), *lease_, execution_);
  }

  const Segment& segment_;
  EdgeUpdate& update_;
  const Execution& execution_;
  DeviceWorkspaceLease lease_;
  Array<uint8_t> values_;  // [capacity, row_bytes()]
};

/// Attaches the missed ones among rows that are searched for.
class MissedRows {
 public:
  MissedRows(Segment& segment, ShortWalks& walks, uint32_t rows_most, const Execution& execution)
      : segment_(segment),
        walks_(walks),
        execution_(execution),
        rows_(execution.memory, rows_most),
        found_(execution.memory, size_t{rows_most} * kFound),
        changed_(execution.memory, rows_most) {}

  /// A sample of `count` rows. How many of them were missed.
  uint32_t attach(uint32_t count, uint64_t stream) {
    random_strata(segment_.rows(), count, segment_.seed, stream, rows_.data());
    count_ = count;
    search();
    const uint32_t missed = count_;
    for (uint32_t round = 0; count_ != 0; ++round) {
      const uint32_t changed = attach_once();
      if (changed == 0) break;
      walks_.take_edges({changed_.data(), changed});
      if (round + 1 == kRounds) break;
      search();
    }
    return missed;
  }

 private:
  /// Leaves the missed rows, and what was found instead.
  void search() {
    walks_.run({rows_.data(), count_}, found_.data());
    uint32_t missed = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const uint32_t* found = found_.data() + size_t{i} * kFound;
      if (found[0] == kNoRow || was_found(rows_[i], found)) continue;
      rows_[missed] = rows_[i];
      std::copy_n(found, kFound, found_.data() + size_t{missed++} * kFound);
    }
    count_ = missed;
  }

  bool was_found(uint32_t row, const uint32_t* found) const {
    const Codes& codes = segment_.codes;
    return std::any_of(found, found + kFound, [&](uint32_t other) {
      return other != kNoRow && std::memcmp(codes.row(row), codes.row(other), codes.stride()) == 0;
    });
  }

  /// Each missed row gets an edge from the nearest row that has not got one. How many have, which are in `changed_`.
  uint32_t attach_once() {
    uint32_t changed = 0;
    RowSet taken(execution_.memory, segment_.rows());
    for (uint32_t i = 0; i < count_; ++i) {
      if (i % kInsertsPerCheck == 0) execution_.check();
      const uint32_t* found = found_.data() + size_t{i} * kFound;
      const uint32_t* from = std::find_if(found, found + kFound, [&](uint32_t row) {
        return row == kNoRow || (!taken.holds(row) && insert_edge(segment_.graph, row, rows_[i]));
      });
      if (from == found + kFound || *from == kNoRow) continue;
      taken.insert(*from);
      changed_[changed++] = *from;
    }
    return changed;
  }

  Segment& segment_;
  ShortWalks& walks_;
  const Execution& execution_;
  uint32_t count_ = 0;
  Array<uint32_t> rows_;     // [count] searched for, then missed
  Array<uint32_t> found_;    // [count, kFound] the nearest rows that walks for them found
  Array<uint32_t> changed_;  // rows with other edges
};

uint32_t rows_of_batch(const Segment& segment) { return segment.rows() / kRowsPerProbe; }

bool is_by_product(const Segment& segment) { return segment.dataset.metric() == ANN_METRIC_INNER_PRODUCT; }

void attach_by(ShortWalks& walks, Segment& segment, const Execution& execution) {
  const uint32_t count = rows_of_batch(segment);
  MissedRows rows(segment, walks, count, execution);
  for (uint32_t batch = 0; batch < kBatchesMost; ++batch) {
    execution.check();
    if (uint64_t{rows.attach(count, kProbeStream + batch)} * kRowsPerMiss < count) break;
  }
}

}  // namespace

void attach_missed_rows(Segment& segment, const Execution& execution) {
  if (rows_of_batch(segment) == 0 || is_by_product(segment)) return;
  HostWalks walks(segment, nullptr, execution);
  attach_by(walks, segment, execution);
}

void attach_missed_rows(Segment& segment, DevicePlacement& placement, bool walks_there,
                        const Execution& execution) {
  if (rows_of_batch(segment) == 0 || is_by_product(segment)) return;
  std::unique_ptr<EdgeUpdate> update;
  std::optional<DeviceWalks> there;
  try {
    update = placement.update_edges();
    if (walks_there) there.emplace(segment, placement, *update, rows_of_batch(segment), execution);
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return;
  }
  if (there) return attach_by(*there, segment, execution);
  HostWalks walks(segment, update.get(), execution);
  attach_by(walks, segment, execution);
}

uint64_t attaching_device_bytes(const PlacedShape& shape) {
  const uint64_t queries = std::min<uint64_t>(shape.rows / kRowsPerProbe, kAtOnce);
  if (queries == 0) return 0;
  return EdgeUpdate::device_bytes(shape.degree) + workspace_device_bytes(shape, queries, kAnswers);
}

}  // namespace gannet

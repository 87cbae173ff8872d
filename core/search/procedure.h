// Procedure: how a segment is searched. One ordered table; a row of it is all that the library knows of a
// procedure but its kernels and its type of plan.
//
// A search goes: the caller's parameters are a SearchRequest; index/choose.cpp takes the row that is named, or the
// one that serves best; calibration says the effort for the wanted recall (tune/); the row makes a SearchPlan of
// it; answer_batch() runs that on the target.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "ann.h"
#include "place/placement.h"
#include "search/plan.h"
#include "search/queries.h"

namespace gannet {

/// Where a search runs: a segment, and its placement on a device, or on the CPU.
struct SearchTarget {
  const HostPlacement& host;
  DevicePlacement* device = nullptr;  // null: the CPU

  const Segment& segment() const { return host.segment; }
  bool on_device() const { return device != nullptr; }
};

/// The search that a caller wants.
struct SearchRequest {
  ann_search_params params;  // as given, each in its range; of TWO_LISTS warps_per_query with its default
  float recall = 0;          // wanted, with its default
  uint64_t queries = 0;
  uint32_t k = 0;  // at most the rows of the segment
  uint32_t k_asked = 0;
};

/// The quantity that calibration turns: none, a number of rows, a slack, or a number of walks.
enum class Knob { kNone, kBeam, kSlack, kWalks };

/// How far one search goes: a value of the knob, and the measurements with it.
struct Effort {
  constexpr Effort(double knob = 0, uint32_t expansions_max = 0, uint32_t width = 0)
      : knob(knob), expansions_max(expansions_max), width(width) {}

  double knob;                      // rows, or a slack
  uint32_t expansions_max;          // of one query, where walks are cut
  uint32_t width;                   // of CAGRA's: parents of an iteration; 0: not measured
  uint32_t warps = 0;               // of TWO_LISTS: that walk for a query
  bool capped = false;              // likewise: walks are cut near the mean
  uint32_t edges_part = kAllEdges;  // of a row's edges that BEST_FIRST reads on the CPU
  bool from_groups = false;         // whether its walk starts from groups of entry points there
  std::span<const uint32_t>
      covering;           // the heads at which its walk starts there, if it has a slack; none: entry points
  double recall = 0;      // that calibration promises of it; 0: not measured
  double expansions = 0;  // of one query, mean; 0: not measured
};

/// The rows of a list by a knob. One between two curves that end with the longest list may be a little above it.
inline uint32_t beam_of(double knob) {
  constexpr double kRounding = 1e-9;
  return static_cast<uint32_t>(std::ceil(knob * (1 - kRounding)));
}

struct Procedure {
  int32_t id = ANN_SEARCH_AUTO;  // ANN_SEARCH_*
  const char* name = nullptr;    // in ann.h, without ANN_SEARCH_
  Knob knob = Knob::kNone;
  bool on_host = false;
  bool on_device = false;

  /// The id of the row that answers under this name; null: the row itself.
  int32_t (*stands_for)(const SearchTarget& target, const SearchRequest& request) = nullptr;

  /// Throws where the procedure cannot serve the request on this target. May be null.
  void (*check)(const SearchTarget& target, const SearchRequest& request) = nullptr;

  SearchPlan (*plan)(const SearchTarget& target, const SearchRequest& request,
                     const Effort& effort) = nullptr;

  /// Answers a batch of host memory on the CPU; null where on_host is not set. On a device every plan runs
  /// through search/pipeline_cuda.cu, which has an overload for each type of plan.
  void (*run_on_host)(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
                      const Execution& execution, SearchCounts* counts) = nullptr;

  // --- The effort: the caller's own, or one that calibration has found for the wanted recall.

  /// The effort that the caller names; none: it goes by recall. Null: no parameter names one.
  std::optional<Effort> (*given)(const SearchRequest& request) = nullptr;
  /// The effort where nothing has been measured; `beam` is the beam of BEST_FIRST for the wanted recall.
  Effort (*unmeasured)(const SearchRequest& request, uint32_t beam) = nullptr;
  /// The values of the knob that calibration tries for k answers, rising with `step` from 0; none behind the last.
  /// Null, or none at step 0: the procedure has a calibration of its own there (tune/tuning.h).
  std::optional<double> (*knob_at)(const SearchTarget& target, uint32_t k, uint32_t step) = nullptr;
  /// The parameters under whose name a plan is calibrated: a procedure's id, and whatever else changes which rows
  /// an effort finds. Null: the procedure's own id alone.
  ann_search_params (*measured_as)(const SearchPlan& plan) = nullptr;
  uint32_t answers_measured = 100;  // k that calibration tries at most
  uint32_t width_max = 0;           // p that calibration tries at most; 0: there is no p
  bool knob_in_steps = false;       // only values that were tried serve
  /// On a device a query is cut after this multiple of the mean expansions of whole ones; 0: never. Most of a batch
  /// ends long before its longest query, for which the device then waits.
  double cut = 0;
};

/// The table, in the order of the ids.
std::span<const Procedure* const> procedures();

/// The row of an id other than AUTO; null where there is none.
const Procedure* find_procedure(int32_t id);

/// Answers a batch by a plan of a procedure.
void answer_batch(const SearchTarget& target, const Procedure& procedure, const SearchPlan& plan,
                  const SearchBatch& batch, const Execution& execution, SearchCounts* counts);

/// Compares a batch of host memory with every row on `device` (ANN_DEVICE_CUDA + i), where the rows are sent
/// unless `placement` has them.
void compare_host_batch(const Segment& segment, int32_t device, const DevicePlacement* placement,
                        const SearchBatch& batch, const Execution& execution, SearchCounts* counts);

// The rows, each in a file of its own.
extern const Procedure kBestFirst;  // best_first_procedure.cpp
extern const Procedure kExact;      // exact_procedure.cpp
extern const Procedure kCagra;      // cagra_procedure.cpp: one of the next two
extern const Procedure kCagraSingleCta;
extern const Procedure kCagraMultiCta;
extern const Procedure kTwoLists;  // two_lists_procedure.cpp
extern const Procedure kGgnn;      // ggnn_procedure.cpp
extern const Procedure kTsdg;      // tsdg_procedure.cpp
extern const Procedure kTsdgSmall;
extern const Procedure kTsdgLarge;
extern const Procedure kSlack;  // slack_procedure.cpp

}  // namespace gannet

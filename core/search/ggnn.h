// GGNN's search ("GGNN: Graph-based GPU Nearest Neighbor Search", section 4 and 5.4): a walk that needs few rows in
// its lists, since a slack added to the distance of the k-th best row says how far it goes.
//
//   start   the entry points of the graph are compared, which on GGNN's graph are its whole top layer
//   step    the nearest row of the queue is expanded: the ends of its edges that the cache does not know are
//           compared, and those within the bound enter the lists
//   stop    when the nearest row of the queue is beyond the bound, or after a limit of steps
//
// By choice the walk comes down through the layers (section 5.4, which rejects that): in each it goes on from the rows
// that it has met in the one above until it would stop, as the build's queries do.
//
// traverse/slack_cache.h describes the lists and the bound. This is the twin of search/ggnn_cuda.cu: answers and counts
// are equal, bit for bit. Rows are compared by codes or as stored, as by CAGRA's searches; by inner product, which
// is no distance and has no slack, always by codes, whose distances are.
//
// Departures: the best list has the rows that lossy codes need to re-rank, beyond the place that
// gives the bound. On graphs without GGNN's layers entry points take the place of the top layer.
#pragma once

#include <cstdint>

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "search/best_first.h"
#include "traverse/slack_cache.h"

namespace gannet {

inline constexpr uint32_t kGgnnBestMin = 10;  // section 4.1.2: "or at least 10"
inline constexpr uint32_t kGgnnListMax = 1984;
inline constexpr uint32_t kGgnnDescentListMax = 512;  // rows that a block brings to the next layer at once
inline constexpr uint32_t kGgnnQueueMax = 2048;
inline constexpr uint32_t kGgnnVisitedMax = 8192;
inline constexpr uint32_t kGgnnIterationsMax = 8192;
inline constexpr float kGgnnSlackMax = 2;  // tau: "typical values are above 0 and below 2"

/// One search, every choice made.
struct GgnnPlan {
  SlackShape shape;
  Slack slack;
  uint32_t iterations_max = 0;  // in each layer
  bool descends = false;        // through the layers of the graph, else from its entry points to the bottom
  uint32_t team = 8;            // lanes that compare a row on a device
  uint32_t threads = 32;        // of a query on a device
  uint32_t kept = 0;            // rows of an answer: k, and some more to re-rank
  bool stored = false;          // rows are compared as stored, else by their codes
};

/// The workspace of the twin.
struct GgnnSpace final : Workspace {
  GgnnSpace(const Dataset& dataset, const Codes& codes, const Allocator& memory);
  uint64_t bytes() const override;
  /// Makes room for the lists of a plan.
  void fit(const GgnnPlan& plan, uint32_t rows, uint32_t step);

  SlackCache cache;
  Array<uint8_t> values;       // the query, prepared for the dataset
  Array<uint8_t> code;         // [stride] the query's code
  Array<uint32_t> starts;      // [step]
  Array<uint32_t> found;       // [step] rows of a layer
  Array<uint32_t> candidates;  // [step] the same as rows of the bottom
  Array<uint32_t> numbers;     // [step] of their comparisons
  Array<float> distances;      // [the longer of the step and the best list]
  Array<uint32_t> rows;        // [best]
  Array<Neighbor> neighbors;   // [best]
  Allocator allocator;
};

/// Finds up to k near rows of one query and leaves them in space.neighbors, sorted; returns how many.
/// The answers are those of the device, bit for bit, and so are the counts.
uint32_t search_ggnn(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                     const PreparedQuery& query, const Admission& admission, uint32_t k, const GgnnPlan& plan,
                     GgnnSpace& space, SearchCounts* counts);

}  // namespace gannet

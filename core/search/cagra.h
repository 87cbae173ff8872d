// CAGRA's searches ("CAGRA: Highly Parallel Graph Construction and Approximate Nearest Neighbor Search
// for GPUs", section IV): the parts of a search of either kind, and its twin on the CPU.
//
//   M      length of the list of the nearest rows met ("internal top-M list"), sorted
//   p      rows expanded in one iteration ("search width"); d edges each, so the candidate list has p d
//   start  p d random rows are the first candidates
//   (1)    the candidates that belong there enter the list
//   (2)    the p nearest rows of the list that have not been parents become parents; the ends of their
//          edges are the next candidates
//   (3)    those candidates are compared that are met for the first time; back to (1)
//   stop   when every row of the list has been a parent, or after I_max iterations
//
// Single-CTA: one list a query and a table of the rows met. A forgettable table is emptied every few
// iterations and takes up the rows of the list again; a standard one holds everything. Both give the same
// answers: a row that left the list, or never entered it, finds it full of nearer rows when it is compared
// again. Forgetting costs distances only, as long as distances are compared exactly.
//
// Multi-CTA: several lists a query, each with a parent an iteration, and one table for all, so that a row
// is compared for one list only; the lists are merged at the end. The paper leaves open which list gets a
// row that two meet in one iteration. Here it is the one that comes first, whatever the schedule.
//
// The random rows are drawn from a hash of the query's content instead of its place in the batch, so that
// an answer depends on neither. Sets with no more rows than first candidates start from every row.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "search/best_first.h"

namespace gannet {

/// The longest list of a search, and of one CTA of several (of which a warp's registers hold the keys).
inline constexpr uint32_t kCagraListMax = 1984;
inline constexpr uint32_t kCagraCtaListMax = 512;
inline constexpr uint32_t kCagraCtaListMin = 32;
inline constexpr uint32_t kCagraCtasMax = 64;
inline constexpr uint32_t kCagraWidthMax = 64;
inline constexpr uint32_t kCagraCandidatesMax = 2048;  // p d
inline constexpr uint32_t kCagraIterationsMax = 4096;

/// One search, every choice made.
struct CagraPlan {
  uint32_t lists = 0;  // of a query, a CTA each
  uint32_t list = 0;   // M, of each list
  uint32_t width = 1;  // p
  uint32_t iterations_max = 0;
  uint32_t hash_bits = 0;  // log2 of the places of a table
  uint32_t reset = 0;      // iterations between two that empty the table; 0: it is never emptied
  uint32_t team = 8;       // lanes that compare a row
  uint32_t kept = 0;       // rows of an answer: k, and some more to re-rank
  bool multi_cta = false;
  bool stored = false;  // rows are compared as stored, else by their codes
};

/// The term of a word of a query in the hash of its content, by its place.
constexpr uint64_t content_of(uint32_t word, uint32_t place) { return mix(uint64_t{place} << 32 | word); }

/// The first candidates of a query, of which there are `places`; kNoRow where there is none.
constexpr uint32_t start_row(uint64_t content, uint32_t rows, uint32_t places, uint32_t place) {
  if (rows <= places) return place < rows ? place : kNoRow;
  return static_cast<uint32_t>(random_below(rows, content, 0, place));
}

/// The workspace of the twin.
struct CagraSpace final : Workspace {
  CagraSpace(const Dataset& dataset, const Codes& codes, const Allocator& memory);
  uint64_t bytes() const override;
  /// Makes room for the lists of a plan.
  void fit(const CagraPlan& plan, uint32_t degree);

  Visited visited;
  Array<uint8_t> values;           // the query, prepared for the dataset
  Array<uint8_t> code;             // [stride] the query's code
  Array<uint32_t> candidates;      // [p d]
  Array<uint32_t> code_distances;  // [p d]
  Array<float> distances;          // [the longer of p d and the lists]
  Array<uint32_t> rows;            // [lists * M]
  Array<uint64_t> keys;            // [lists, Beam::room(M)]
  Array<uint64_t> merged;          // [lists * M]
  Array<Beam> beams;               // [lists]
  Array<Neighbor> neighbors;       // [lists * M]
  Allocator allocator;
};

/// Finds up to k near rows of one query and leaves them in space.neighbors, sorted; returns how many.
/// The answers are those of the device, bit for bit, and so are the counts.
uint32_t search_cagra(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                      const PreparedQuery& query, const Admission& admission, uint32_t k,
                      const CagraPlan& plan, CagraSpace& space, SearchCounts* counts);

}  // namespace gannet

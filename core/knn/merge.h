// GGM: two k-NN graphs become one. "Large-Scale Approximate k-NN Graph Construction on GPU", section 5.1.
//
// Two sets of rows have k-NN lists each. The lists of both sets together need, for each row, those of the other
// set that are nearer than some of its own; neighbours within a set are known and need not be found again. Algorithm
// 3, line by line:
//
//   lines 1 and 2    G^u, G^v: the nearer and the farther half of each list. HalfLists holds the nearer ones;
//                    the lists of the caller, which nothing changes, keep the others aside
//   lines 3 to 9     each nearer half and as many random rows of the other set as it lacks of k: the start of
//                    the descent (TwoSets, nn_descent.h). The half is OLD, the random rows are NEW
//   lines 10 and 11  GNND, where only rows of different sets are compared (nn_descent.cpp; nn_descent.cu)
//   line 12          join_lists: the neighbours that the descent has found across, and the lists as they were given
//
// A row finds only rows of the other set by the descent, so that a NEW row meets nothing but OLD ones: a round
// has two thirds of the distances of GNND's. It ends as GNND does.
//
// The paper's Figure 7, SIFT 1M x 128 bytes, k = 64, p = 10, 16, 24, 32, on one NVIDIA H200 (sending, rounds and
// fetching; measuring and joining take the host's 16 cores .6 to 1.1 s more):
//
//   halves          .118 s .978   .133 .992   .181 .997   .186 .998    recall@10 of the joined lists
//   9:1             .131   .994   .138 .996   .155 .997   .174 .997
//   all rows anew   .158   .966   .154 .987   .203 .994   .225 .997    GNND
//
// Merging by searches, which the paper finds 5 to 10 % worse with GGNN's, is better here where each part has an
// index already: halves of 100,000 rows on 16 cores, .24 s for recall@10 of .999, GGM .74 s for .997.
//
// Departures from the paper. Ids are numbers of 64 bits that the caller chooses, and a list may name rows of
// neither set: they are kept with their distances, so that shards of one graph can be merged pair by pair. Lists
// that were merged before may be merged again: of their neighbours across only the nearer half is known to the
// descent, all of it to the join. Where a set has too few rows for a descent (kDescentRowsPerNeighbor), every
// pair across is compared. Lists are at least 16 long on the way (kListLeast) and cut at the end.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/dataset.h"
#include "knn/nn_descent.h"

namespace gannet {

/// The lists of a set as the caller has them.
struct GivenLists {
  const char* name = "";  // of the argument, for messages
  uint32_t rows = 0;
  uint32_t k = 0;
  uint64_t first_id = 0;                // where ids is null, of row 0
  const uint64_t* ids = nullptr;        // [rows], or null
  const uint64_t* neighbors = nullptr;  // [rows, k] ids, ANN_ID_NONE in unused places at the end
  const float* distances = nullptr;     // [rows, k] ascending

  uint64_t id(uint64_t row) const { return ids != nullptr ? ids[row] : first_id + row; }
};

/// Refuses invalid lists of neighbours: places after an unused one, distances that fall or are NaN, a row's own
/// id, or one id twice. Throws ANN_INVALID_ARGUMENT with the place.
void check_lists(const GivenLists& lists, const Execution& execution);

/// Whether the ids of two sets are numbers in a row.
bool ids_follow(const GivenLists& first, const GivenLists& second);

/// The lists of both sets by row numbers: the first set's rows, then the second's.
struct KnownLists {
  /// `both` has the rows of both sets, with their ids unless those are numbers in a row.
  KnownLists(const GivenLists& first, const GivenLists& second, const Dataset& both,
             const Execution& execution);

  /// The start of a descent of lists of `k`: the nearer half of each, of rows of either set.
  Array<uint32_t> halves(uint32_t k, const Execution& execution) const;

  const GivenLists& set_of(uint32_t row) const { return row < first.rows ? first : second; }
  uint64_t id_of(uint32_t row) const {
    return row < first.rows ? first.id(row) : second.id(row - first.rows);
  }
  uint32_t rows() const { return first.rows + second.rows; }
  /// Row numbers of a list, kNoRow for rows of neither set and in unused places.
  const uint32_t* numbers_of(uint32_t row) const { return numbers.data() + uint64_t{row} * stride; }

  const GivenLists& first;
  const GivenLists& second;
  uint32_t stride;          // the longer k
  Array<uint32_t> numbers;  // [rows, stride]
};

/// Rows of the other set that were found for each row, in any order.
struct AcrossLists {
  uint32_t k = 0;
  Array<uint32_t> rows;    // [rows, k] kNoRow in unused places
  Array<float> distances;  // [rows, k] as reported
};

/// Keeps the neighbours across, and measures their distances.
AcrossLists measure_across(const Dataset& both, uint32_t first_rows, const KnnGraph& found,
                           const Execution& execution);

/// The k nearest of the neighbours given and the neighbours found, by distance, then id: [rows, k] each.
void join_lists(const KnownLists& known, const AcrossLists& across, uint32_t k, uint64_t* neighbors,
                float* distances, const Execution& execution);

}  // namespace gannet

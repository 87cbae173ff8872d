// Refinement: the neighbours of a row's neighbours are probably its neighbours.
//
// A round looks, for each row x, at the first 24 entries y of its list and the first 16 entries z of
// each of theirs. A z that lives in a cell which x was compared with is known already, and so is one
// that an earlier round met: a path x, y, z counts only if one of its two edges is new since then.
// The others, some 50 of 384, are gathered and compared; rows read the lists of the round before, so
// that no two threads meet.
//
// Cost of a row: 24 lists of 64 bytes, 384 look-ups of a row's cell (2 bytes each, from the second
// cache up to some 400,000 rows), 50 gathered codes; about 3 us at 128 columns. Reading 24 or 32
// entries of each list found a fifth more and took twice as long.
#pragma once

#include <cstdint>
#include <vector>

#include "knn/cells_products.h"
#include "traverse/visited.h"

namespace gannet {

/// One thread's room for a round.
struct RefineSpace {
  RefineSpace(const CellCodes& codes, const CellMap& map, uint32_t k, const Allocator& memory);

  ProbeSpace probing;
  Visited met;                 // candidates and neighbours of the row
  Array<uint16_t> cells;       // [kSliceRows, kProbesMax] that the rows were compared with
  Array<uint8_t> compared;     // [cells] 1 for those of the row
  Array<uint8_t> code;         // [stride] the row's
  Array<uint32_t> candidates;  // rows to compare
  Array<uint32_t> line;        // their distances
  Array<uint32_t> distances;   // [nearest_room(k)]
  Array<uint32_t> places;      // [nearest_room(k)] of the list, or k + place of a candidate
  Array<uint64_t> keys;        // [2, nearest_room(k)]
};

class Refinement {
 public:
  /// `budget` as the lists were made with.
  Refinement(const CellCodes& codes, const CellMap& map, uint32_t budget, NearLists& lists,
             const Execution& execution);

  /// One round over all rows; how many entries it has found.
  uint64_t round(bool first);

 private:
  uint64_t refine_rows(const uint32_t* rows, uint32_t count, bool first, RefineSpace& space);
  uint32_t find_candidates(uint32_t row, bool first, RefineSpace& space) const;
  uint32_t refine_row(uint32_t row, uint32_t candidates, RefineSpace& space);
  bool is_fresh(uint32_t row, uint32_t place) const {
    return (fresh_[row * words_ + place / 64] >> (place % 64) & 1) != 0;
  }

  const Codes& codes_;  // that make lists
  const Codes& tiles_;  // of which the map is
  const CellMap& map_;
  uint32_t budget_;
  NearLists& lists_;
  const Execution& execution_;
  size_t words_;           // of 64 bits, for k entries
  Array<uint32_t> next_;   // [rows, k] neighbours after the round
  Array<uint64_t> fresh_;  // [rows, words] entries that the last round found
  Array<uint64_t> next_fresh_;
  std::vector<RefineSpace> spaces_;
};

/// Bytes of a thread's room, and of a Refinement's arrays beside lists.
uint64_t refine_space_bytes(uint64_t rows, size_t stride, uint32_t k);
uint64_t refinement_bytes(uint64_t rows, uint32_t k);

}  // namespace gannet

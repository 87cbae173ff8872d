// Rows compared with whole cells: tiles of distances, and the nearest of each row.
//
// The work comes in units: some hundred rows that live in consecutive cells, whose codes and lists
// stay in the second cache of one core. Each row of a unit wants the cells nearest to it, as many as
// `budget` rows live in; the wishes are turned round (which rows want this cell), and each cell is
// compared once with the rows that want it, kSliceRows at a time. No list belongs to two units, so no
// two threads meet, and the order in which a row sees its cells is always that of their numbers.
//
// Bytes of a unit of 512 rows at 128 columns and k = 48: codes 64 KB, lists 512 KB, wishes 1 MB at
// most; a cell of 128 rows is 17 KB, streamed once and met by some 40 rows. Operations of a row:
// `budget` pairs of 2 instructions a 64 columns, and 3 instructions for 16 distances to select.
#pragma once

#include <cstdint>
#include <vector>

#include "knn/cells_map.h"

namespace gannet {

/// Neighbours with their code distances, nearest first; kNoRow and UINT32_MAX in unused places.
struct NearLists {
  NearLists(uint64_t rows, uint32_t k, const Allocator& memory)
      : k(k), neighbors(memory, checked_product(rows, k)), distances(memory, checked_product(rows, k)) {}

  uint32_t k;
  Array<uint32_t> neighbors;  // [rows, k]
  Array<uint32_t> distances;  // [rows, k]
};

/// Candidates by bytes for k neighbours by floats. Of patches, whose nearest lie within rounding, .9866 of the nearest
/// 32 are among the first 48 by bytes, .9968 among 64 and .9985 among 96.
constexpr uint32_t cell_candidates(uint32_t k) { return k + k / 2 + 24; }

/// Cells that one row is compared with, at most: 98,000 rows, for which bytes of 128 columns take as long as NN-Descent.
inline constexpr uint32_t kProbesMax = 512;

/// The codes that make lists, and those that a map and its tiles are of: the same, or bytes that stand in for wide ones
/// (knn/cells.h). The latter give candidates alone, which are re-ranked, and so do a map's residuals.
struct CellCodes {
  const Codes& exact;
  const Codes& tiles;
  bool by_residuals = false;

  bool compares_twice() const { return by_residuals || &exact != &tiles; }
  /// Entries of a list of k before its candidates are compared once more.
  uint32_t listed(uint32_t k) const { return compares_twice() ? cell_candidates(k) : k; }
};

/// Rows of a unit, and the room of one thread for it.
uint32_t unit_rows(size_t stride, uint32_t k);

/// One thread's room to choose cells, and the home whose surroundings are open in it.
struct ProbeSpace {
  ProbeSpace(const Codes& codes, const CellMap& map, const Allocator& memory);

  uint32_t home = UINT32_MAX;
  size_t width;             // of a line: all cells
  Array<uint8_t> block;     // [kNearCells, stride] the centroids around home
  Array<uint8_t> packed;    // the same as the right side of a tile
  Array<uint32_t> weights;  // [kNearCells] rows of those cells
  Array<uint16_t> all;      // [cells] the numbers of all cells
  Array<uint32_t> ones;     // [cells]
  Array<uint8_t> slice;     // [kSliceRows, stride]
  Array<uint32_t> lines;    // [kSliceRows, width]
};

uint64_t probe_space_bytes(uint64_t rows, size_t stride);

/// Chooses, for each of `count` <= kSliceRows rows that live in `home`, the cells nearest to it: as many as `budget`
/// rows live in, its own not among them; fewer than kProbesMax, whose last place is written, too.
/// cells[i * kProbesMax] onwards are those of rows[i], ascending, counts[i] of them.
void choose_cells(const Codes& codes, const CellMap& map, uint32_t home, const uint32_t* rows, uint32_t count,
                  uint32_t budget, ProbeSpace& space, uint16_t* cells, uint16_t* counts);

struct UnitSpace {
  /// Lists have room for `k` entries by the tiles' codes.
  UnitSpace(const Codes& codes, const CellMap& map, uint32_t k, const Allocator& memory);

  uint32_t room;                 // rows that a unit may have
  Array<uint8_t> codes;          // [room, stride]
  Array<uint32_t> rows;          // [room] row numbers
  Array<uint8_t> slice;          // [kSliceRows, stride]
  Array<uint8_t> residuals;      // [kSliceRows, packed stride]
  Array<uint32_t> tile;          // [kSliceRows, cell_rows_max()]
  Array<uint16_t> probes;        // [room, kProbesMax] cells
  Array<uint16_t> probe_counts;  // [room]
  Array<uint32_t> begins;        // [cells + 1] of a cell's rows in `wanting`
  Array<uint16_t> wanting;       // [room * kProbesMax] rows of the unit by cell
  Array<uint32_t> distances;     // [room, nearest_room(k)]
  Array<uint32_t> places;        // [room, nearest_room(k)]
  Array<NearestList> lists;      // [room]
  Array<uint64_t> keys;          // [2, nearest_room(k)]
  Array<uint32_t> candidates;    // [nearest_room(k)] rows
  ProbeSpace probing;
};

/// The lists of the rows at positions first ... first + count, count <= unit_rows() of the tiles' codes, in a space for
/// codes.listed(lists.k).
void compare_unit(const CellCodes& codes, const CellMap& map, uint32_t first, uint32_t count, uint32_t budget,
                  UnitSpace& space, NearLists& lists, const Execution& execution);

/// neighbors[i * k] and distances[i * k] onwards become the list of rows[i] after a comparison with
/// all rows by the map's codes; count <= unit_rows().
void compare_with_all(const Codes& codes, const CellMap& map, const uint32_t* rows, uint32_t count,
                      uint32_t k, UnitSpace& space, uint32_t* neighbors, uint32_t* distances,
                      const Execution& execution);

uint64_t unit_bytes(uint64_t rows, size_t stride, uint32_t k);

}  // namespace gannet

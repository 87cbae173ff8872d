// CellMap: the rows sorted into k-means cells, each cell packed as the right side of a tile.
//
//   train    k-means on a sample of kSamplePerCell rows a cell, kLloydRounds rounds; between rounds
//            cells that hold far less than their share move into those that hold far more
//   settle   every row is compared with every centroid and lives in the nearest one's cell
//   order    cells are numbered along a chain of near centroids, so that consecutive cells want the
//            same others; a cell above cell_rows_max is split into several with one centroid
//   pack     the rows of each cell, ascending, are packed for tiles once: their codes, or, of float codes, bytes about
//            the centroid (distance/residuals.h), which order the rows of all scales
//
// Centroids are codes themselves: means of bytes, rounded, or of floats for wide codes, summed in
// the order of rows.
//
// Bytes: 6 a row for its cell and place and one packed code, stride + 8. Operations: n * cells pairs to
// settle; with kRowsPerCell = 192 and 100,000 rows that is 520 pairs a row, a twentieth of the
// products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"

namespace gannet {

/// Rows that a cell has on average, until there are kCellsMax of them.
inline constexpr uint32_t kRowsPerCell = 192;
inline constexpr uint32_t kCellsMax = 8192;

/// No cell has more rows: a tile's right side that fits the second cache up to 1,024 columns. From 8
/// million rows on it grows, so that 16 bits number the cells.
constexpr uint32_t cell_rows_max(uint64_t rows) {
  return static_cast<uint32_t>(rows < (8u << 20) ? 512 : round_up(rows / 16384, 16));
}

/// Cells, at most: the parts of a split cell are at least half full.
constexpr uint32_t cells_at_most(uint64_t rows) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows / kRowsPerCell, 1, kCellsMax) +
                               2 * rows / cell_rows_max(rows));
}
static_assert(cells_at_most(8u << 20) < 65536 && cells_at_most((8u << 20) - 1) < 65536 &&
              cells_at_most(UINT32_MAX) < 65536);

/// A row chooses the cells that it is compared with among this many around its own, unless it wants a fourth as many.
/// Comparing every row with every centroid once more would cost as much as settling. With 256 a million SIFT rows, which
/// want 107 cells each, found 0.897 of their neighbours where 0.97 live in those cells.
inline constexpr uint32_t kNearCells = 512;

/// Bytes of a residual of float codes of some bytes.
constexpr size_t residual_stride(size_t stride) { return round_up(stride / sizeof(float), kCodeAlign); }

/// Left rows of a tile.
inline constexpr uint32_t kSliceRows = 12;

/// One thread's room to compare a few rows with the centroids.
struct CentroidSpace {
  CentroidSpace(const Codes& codes, uint32_t cells, const Allocator& memory)
      : block(memory, kSliceRows * codes.stride()),
        width(round_up(cells, kPackRows)),
        distances(memory, kSliceRows * width) {}

  Array<uint8_t> block;  // [kSliceRows, stride]
  size_t width;
  Array<uint32_t> distances;  // [kSliceRows, width]
};

/// The form of rows in their cells: codes, or bytes about the centroid.
enum class CellRows { kCodes, kResiduals };

class CellMap {
 public:
  /// kResiduals is for float codes.
  CellMap(const Codes& codes, uint64_t seed, const Execution& execution, CellRows form = CellRows::kCodes);

  uint32_t cells() const { return cells_; }

  /// The rows of a cell are members()[begin(cell) ... begin(cell + 1)); such a place is a position.
  const uint32_t* members() const { return members_.data(); }
  uint32_t begin(uint32_t cell) const { return begins_[cell]; }
  uint32_t size(uint32_t cell) const { return begins_[cell + 1] - begins_[cell]; }
  const uint32_t* sizes() const { return sizes_.data(); }  // [cells]
  uint32_t home(uint32_t row) const { return homes_[row]; }

  /// How many rows from a position on live in one cell: at most kSliceRows and end - position.
  uint32_t rows_together(uint32_t position, uint32_t end) const {
    const uint32_t next_cell = begins_[homes_[members_[position]] + 1];
    return std::min({kSliceRows, end - position, next_cell - position});
  }

  /// Whether so many rows are so many cells that a row has to choose among all of them.
  bool looks_far(uint32_t budget) const {
    constexpr uint64_t kFar = 4;  // times as many cells are in sight otherwise
    return uint64_t{budget} * cells_ * kFar > homes_.size() * near_count_;
  }
  const uint8_t* packed_centroids() const { return packed_centroids_.data(); }

  /// The cells whose centroids are nearest to that of a cell, itself not among them; ascending.
  uint32_t near_count() const { return near_count_; }
  const uint16_t* near(uint32_t cell) const { return near_.data() + size_t{cell} * near_count_; }
  const uint8_t* centroid(uint32_t cell) const { return centroids_.data() + cell * stride_; }

  /// tile[i * width + j] becomes the distance of row i of a block to member j of a cell, in the codes' order and, by
  /// residuals, about it; count <= kSliceRows, width as Codes::tile wants it. `bytes` has room for kSliceRows residuals.
  void compare(const Codes& codes, const uint8_t* block, uint32_t count, uint32_t cell, uint8_t* bytes,
               uint32_t* tile, size_t width) const;

  /// Whether distances to members are those of codes.
  bool is_exact() const { return form_ == CellRows::kCodes; }
  /// Bytes of a row as it lies in its cell.
  size_t packed_stride() const { return packed_stride_; }

  /// space.distances[i, c] is the distance of rows[i] to the centroid of cell c; count <= kSliceRows.
  void centroid_distances(const Codes& codes, const uint32_t* rows, uint32_t count,
                          CentroidSpace& space) const;

 private:
  void train(const Codes& codes, uint64_t seed, const Execution& execution);
  void settle(const Codes& codes, const uint32_t* rows, uint32_t count, uint16_t* homes,
              const Execution& execution);
  void order_cells(const Codes& codes, const Execution& execution);
  void split_and_sort(const Codes& codes, const Execution& execution);
  void pack(const Codes& codes, const Execution& execution);
  void pack_residuals(const Codes& codes, uint32_t cell, uint8_t* block);
  void pack_centroids(const Codes& codes);
  void find_near_cells(const Codes& codes, const Execution& execution);

  uint32_t cells_ = 0;
  uint32_t near_count_ = 0;
  size_t stride_;
  CellRows form_;
  size_t packed_stride_;
  Array<uint8_t> centroids_;  // [cells, stride] as blocks hold codes
  Array<uint8_t> packed_centroids_;
  Array<uint16_t> homes_;    // [rows] cell; refinement looks 384 of them up for a row
  Array<uint32_t> members_;  // [rows] rows by cell, ascending in each
  Array<uint32_t> begins_;   // [cells + 1] positions
  Array<uint32_t> sizes_;    // [cells]
  Array<uint64_t> offsets_;  // [cells] bytes
  Array<uint16_t> near_;     // [cells, near_count]
  Array<uint8_t> packed_;    // each cell as the right side of a tile
  // By residuals, [rows of cells, each rounded up to kPackRows]: the terms beside the bytes.
  Array<uint64_t> terms_;  // [cells] the first row of a cell in these
  Array<float> steps_;
  Array<float> squares_;
  Array<int32_t> wholes_;

  ResidualRows residuals(uint32_t cell) const {
    const uint64_t first = terms_[cell];
    return {steps_.data() + first, squares_.data() + first, wholes_.data() + first};
  }
};

/// Bytes that a map holds, and takes beside that while it is made.
uint64_t cell_map_bytes(uint64_t rows, size_t stride, uint32_t threads);

}  // namespace gannet

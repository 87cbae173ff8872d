// The k-NN graph by cells on a CUDA device: every row is compared with the k-means cells around it.
//
//   map        k-means on a sample; every row lives in the cell of its nearest centroid; the cells
//              near each cell                                                      (cells_map.cu)
//   judge      the true neighbours of 256 sampled rows, and how many rows around it a row must be
//              compared with for a share of 0.97 to be among them                  (cells_judge.cu)
//   products   every row with the nearest cells that hold so many rows             (cells_products.cu)
//   fall back  where less than 0.90 is found: NN-Descent, and the better of both lists  (cells.cu)
//
// The same result every time: sums are of integers, lists keep the k smallest keys of a set, and a
// sampled or chosen row is a function of the seed. Wide codes go to NN-Descent at once.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "dataset/codes_cuda.h"
#include "knn/nn_descent.h"

namespace gannet::cuda {

/// What it has found out, for tests and times.
struct CellsReport {
  uint32_t cells = 0;
  uint32_t budget = 0;   // rows that each row was compared with beside its own cell, at most
  double share = 0;      // of the true neighbours of the sample, in the end
  uint32_t iterations = 0;  // rounds of NN-Descent where it took over
};

/// Fills `neighbors`, [rows, k] on the device as KnnGraph has them, and `distances`, [rows, k] code
/// distances, UINT32_MAX where there is no neighbour; that one may be null. k and seed are those of
/// `params`, the rest of it serves the fall back. The monitor is asked between launches, which take
/// some 20 ms on a large device.
CellsReport cells_knn(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                      uint32_t* distances, const Stream& stream, const Execution& execution);

// --- Between the files of the phase ---------------------------------------------------------------

/// Cells that a row may choose from, and the words of a bit for each.
inline constexpr uint32_t kNearCells = 256;
inline constexpr uint32_t kWantedWords = kNearCells / 32;
inline constexpr uint16_t kNoCell = 0xffff;

/// What kernels take of a map.
struct CellsView {
  CodesView centroids;      // [cells] as codes
  const uint32_t* homes;    // [rows] cell
  const uint32_t* members;  // [rows] rows by cell, ascending in each; a place is a position
  const uint32_t* begins;   // [cells + 1] positions
  const uint16_t* near;     // [cells, kNearCells] nearest first, kNoCell behind the last
};

class CellMap {
 public:
  CellMap(const CodesView& codes, uint64_t seed, const Stream& stream, const Execution& execution);

  uint32_t cells() const { return cells_; }
  CellsView view() const {
    return {{centroids_.data(), squares_.data(), cells_, stride_}, homes_.data(), members_.data(),
            begins_.data(), near_.data()};
  }

 private:
  uint32_t cells_;
  uint32_t stride_;
  DeviceArray<uint8_t> centroids_;  // [cells, stride]
  DeviceArray<uint32_t> squares_;   // [cells]
  DeviceArray<uint32_t> homes_;     // [rows]
  DeviceArray<uint32_t> members_;   // [rows]
  DeviceArray<uint32_t> begins_;    // [cells + 1]
  DeviceArray<uint16_t> near_;      // [cells, kNearCells]
};

/// The nearest `depth` <= 32 of each of 256 rows (those beyond `count` do not exist) in each of
/// `slices` parts of all rows: keys [slices, 256, 32], ascending, RowKey::kNone behind the last.
inline constexpr uint32_t kJudgedRows = 256;
inline constexpr uint32_t kJudgedDepth = 32;
void compare_with_all(const CodesView& codes, const CellsView& map, const uint32_t* rows,
                      uint32_t count, uint32_t depth, uint32_t slices, uint64_t* keys,
                      const Stream& stream);

/// The lists of all rows after a comparison with the cells nearest to each that together hold at most
/// `budget` rows, and its own.
void compare_with_cells(const CodesView& codes, const CellMap& map, uint32_t k, uint32_t budget,
                        uint32_t* neighbors, uint32_t* distances, const Stream& stream,
                        const Execution& execution);

class Judge {
 public:
  Judge(const CodesView& codes, const CellMap& map, uint32_t k, uint64_t seed,
        const Stream& stream);

  /// How many rows each must be compared with, nearest cells first, for `share` of the true
  /// neighbours to be among them.
  uint32_t budget(const CellMap& map, double share);

  /// The share of true neighbours in lists [rows, k]; of rows at equal distance any will do.
  double share(const uint32_t* neighbors, uint32_t k);

 private:
  const CodesView codes_;
  const Stream& stream_;
  uint32_t count_;
  uint32_t depth_;
  DeviceArray<uint32_t> sample_;   // [count]
  DeviceArray<uint64_t> truth_;    // [count, kJudgedDepth] keys
  DeviceArray<uint32_t> numbers_;  // [count, kJudgedDepth] what a question is answered with
};

}  // namespace gannet::cuda

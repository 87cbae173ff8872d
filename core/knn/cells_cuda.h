// The k-NN graph by cells on a CUDA device: the rows of each k-means cell are compared, as products on
// tensor cores, with all rows that have the cell among their nearest.
//
//   map        k-means on a sample; the 64 cells nearest to every row, of many cells by way of groups of
//              them; rows in the order of their cells, and cells in an order where neighbours are near
//                                                                              (cells_map.cu)
//   products   which rows probe which chunk of a cell; the chunk in shared memory times those rows;
//              of each row and chunk a few candidates                          (cells_products.cu)
//   lists      the nearest of a row's candidates, then rounds of neighbours' neighbours; at last lists
//              by row number                                                   (cells_lists.cu)
//   recall     256 rows against all others: the share of true neighbours that lists hold
//                                                                              (cells_recall.cu)
//   more       where recall is too low, more rounds as long as they help; where it is below 0.90
//              even then, lists of NN-Descent and of up to two other maps, if there is memory for them, merged
//                                                                              (cells.cu, cells_merge.cu)
//
// The same result every time: sums are of integers, lists keep the smallest keys of a set, no result depends on
// the order of atomics, and a sampled row is a function of the seed. It is not the CPU's result, whose
// cells (cells.h) are compared exactly and in another order; both find the same share.
//
// For wide codes, whose neighbours bytes cannot rank, bytes choose cells and candidates (cells_bytes.cu);
// distances of lists and recall are of the floats.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/launch.h"
#include "dataset/codes_cuda.h"
#include "knn/cells_effort.h"
#include "knn/nn_descent.h"

namespace gannet::cuda {

/// What the lists of sampled rows show.
struct ListMeasures {
  double share = 0;      // of their true min(k, 32) neighbours, of rows at equal distance any
  double dimension = 0;  // local intrinsic dimension about them; 0: all have copies, or too few neighbours
};

/// Figures of one run.
struct CellsReport {
  uint32_t cells = 0;
  ListMeasures lists;       // in the end
  uint32_t rounds = 0;      // of neighbours' neighbours
  uint32_t iterations = 0;  // of NN-Descent where it was needed
};

/// Fills `neighbors`, [rows, k] on the device as KnnGraph has them, and `distances`, [rows, k] code
/// distances, UINT32_MAX where there is no neighbour; that one may be null. k and seed are those of
/// `params`, the rest of it serves the fall back. The monitor is checked between launches, which take
/// some 20 ms at most on a large device.
CellsReport cells_knn(const CodesView& codes, const NnDescentParams& params, const CellsEffort& effort,
                      uint32_t* neighbors, uint32_t* distances, const Stream& stream,
                      const Execution& execution);

// --- Between the files of the phase ---------------------------------------------------------------
//
// A place is a row's number in the order of cells. Everything between map and the last step is in
// places; lists hold them with a flag: place << 1 | whether the last round found it.

inline constexpr uint32_t kNone = UINT32_MAX;

/// Whether the work takes so long that the host waits for each part of it, to look at the monitor.
inline bool waits_between(const CodesView& codes) { return uint64_t{codes.rows} * codes.stride > 1 << 29; }

/// Consecutive places, all of one cell.
struct Chunk {
  uint32_t first;
  uint32_t count;
};

/// A map as kernels read it.
struct CellsView {
  CodesView codes;               // by place, bytes
  CodesView exact;               // by place, the codes of distances: the same, or wide
  const uint32_t* members;       // [rows] row at a place
  const uint32_t* near;          // [rows, kNearCells] by row: cells, nearest first, kNone behind
  const uint32_t* begins;        // [cells + 1] places
  const uint32_t* chunk_begins;  // [cells + 1] chunks
  const Chunk* chunks;           // [chunk_begins[cells]]
  uint32_t cells;
};

class CellMap {
 public:
  /// `near` is memory for [rows, kNearCells], needed until the products are done.
  CellMap(const CodesView& codes, uint64_t seed, const CellsEffort& effort, uint32_t* near,
          const Stream& stream, const Execution& execution);

  CellsView view() const {
    const CodesView codes = {sorted_.data(), squares_.data(), rows_, stride_};
    return {codes,          codes, members_.data(), near_, begins_.data(), chunk_begins_.data(),
            chunks_.data(), cells_};
  }
  uint32_t chunks_max() const { return cell_chunks_max(rows_); }

  /// near[row * kNearCells] onwards become the cells nearest to a row, nearest first, kNone behind, and
  /// homes[row] the first of them.
  void find_near(const CodesView& rows, uint32_t* near, uint32_t* homes, const Stream& stream,
                 const Execution& execution) const;

 private:
  void train(const CodesView& codes, uint64_t seed, uint32_t* homes, const Stream& stream,
             const Execution& execution);
  void group(const CodesView& unordered, uint64_t seed, const Stream& stream, const Execution& execution);
  CodesView centroids() const { return {centroids_.data(), centroid_squares_.data(), cells_, stride_}; }

  uint32_t rows_;
  uint32_t stride_;
  uint32_t cells_;
  CellsEffort effort_;
  uint32_t* near_;
  DeviceArray<uint8_t> sorted_;             // [rows, stride] codes by place
  DeviceArray<uint32_t> squares_;           // [rows] by place
  DeviceArray<uint32_t> members_;           // [rows]
  DeviceArray<uint32_t> begins_;            // [cells + 1]
  DeviceArray<uint32_t> chunk_begins_;      // [cells + 1]
  DeviceArray<Chunk> chunks_;               // [chunks_max]
  DeviceArray<uint8_t> centroids_;          // [cells, stride]
  DeviceArray<uint32_t> centroid_squares_;  // [cells]
  std::unique_ptr<CellMap> groups_;         // of centroids as rows, if there are more than effort.matched
};

/// Wide codes as bytes.
class WideAsBytes {
 public:
  WideAsBytes(const CodesView& wide, const Stream& stream);
  CodesView view() const { return {codes_.data(), squares_.data(), rows_, stride_}; }

 private:
  uint32_t rows_;
  uint32_t stride_;
  DeviceArray<uint8_t> codes_;     // [rows, stride]
  DeviceArray<uint32_t> squares_;  // [rows]
};

/// sorted[i] becomes the code of row members[i]; squares are not.
void sort_by_place(const CodesView& codes, const uint32_t* members, uint8_t* sorted, const Stream& stream);

/// Lists of places while they are made: 32 entries a register and lane.
struct PlaceLists {
  uint32_t* near;       // [rows, length] place << 1 | new, nearest first, kNone behind the last
  uint32_t* distances;  // [rows, length]
  uint32_t length;      // kShortList, kLongList or kLongestList
};

/// Candidates of a slice of places.
struct Candidates {
  const uint32_t* keys;   // [rows, probes, kProbeKeys]
  const uint32_t* slots;  // [rows, probes] chunk, kNone behind the last
  uint32_t first;         // place
  uint32_t rows;
  uint32_t probes;
};

/// Fills lists of all rows with the nearest of their candidates, nearly in order, without distances.
void compare_with_cells(const CellMap& map, const CellsEffort& effort, const PlaceLists& lists,
                        const Stream& stream, const Execution& execution);

/// Compares other rows with the cells nearest to them, which `near`, [rows, kNearCells], holds; for those
/// it gets the places nearest to each row, nearest first, kNone behind.
void compare_others(const CellMap& map, const CodesView& rows, const CellsEffort& effort, uint32_t* near,
                    const Stream& stream, const Execution& execution);

/// The nearest candidates of the rows of a slice; as new entries of lists, or bare places.
void keep_nearest(const CellsView& map, const Candidates& candidates, const PlaceLists& lists,
                  bool as_entries, const Stream& stream);

/// A round of neighbours' neighbours: from `lists` and `reverse`, [rows, effort.reverse] memory, to
/// `next`, which shares its distances with `lists`. The first round measures those: `measured` is false.
void refine_lists(const CellsView& map, const PlaceLists& lists, const PlaceLists& next,
                  const CellsEffort& effort, bool measured, uint32_t* reverse, const Stream& stream,
                  const Execution& execution);

/// Lists by row number, of the first k.
void write_lists(const CellsView& map, const PlaceLists& lists, uint32_t k, uint32_t* neighbors,
                 uint32_t* distances, const Stream& stream);

/// Merges lists by row number, [rows, k] nearest first, with others of the same rows.
void merge_lists(uint32_t rows, uint32_t k, uint32_t* neighbors, uint32_t* distances,
                 const uint32_t* more_neighbors, const uint32_t* more_distances, const Stream& stream);

/// Rows whose true neighbours are counted.
inline constexpr uint32_t kSampledRows = 256;
inline constexpr uint32_t kSampledDepth = 32;

class RecallSample {
 public:
  RecallSample(const CellsView& map, uint64_t seed, const Stream& stream);

  /// `distances` is [rows, length], by place or by row number. Waits for the stream.
  ListMeasures measure(const uint32_t* distances, uint32_t length, uint32_t k, bool by_row) const;

 private:
  CellsView map_;
  const Stream& stream_;
  uint32_t count_;
  DeviceArray<uint32_t> places_;   // [count]
  DeviceArray<uint8_t> codes_;     // [kSampledRows, stride] as map.exact has them
  DeviceArray<uint32_t> squares_;  // [kSampledRows]
  DeviceArray<uint32_t> found_;    // entries, rows nearer than each, and the last entries
};

}  // namespace gannet::cuda

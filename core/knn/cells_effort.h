// The work of cells on a CUDA device, and the memory that it takes: for them and for estimates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gannet::cuda {

/// The work before recall is measured, and the recall that ends it.
struct CellsEffort {
  uint32_t probes = 126;       // chunks of cells that a row is compared with, at most kProbesMax
  uint32_t rounds = 1;         // of neighbours' neighbours, at least one
  uint32_t expanded = 40;      // neighbours of a row of whose lists a round looks at 32 entries, at most 64
  uint32_t reversed = 32;      // first entries of a list whose reverse edges are listed
  uint32_t reverse = 64;       // places of a reverse list, a multiple of 32
  uint32_t matched = 8192;     // cells that rows are compared with one by one, at most kMatchedMax; if there
                               // are more, rows find groups of cells first
  uint32_t group_probes = 24;  // chunks of groups whose cells are compared with a row
  double enough = 0.955;       // share of true neighbours below which more rounds follow, and other maps
  double least = 0.90;         // below which NN-Descent's lists and those of other maps are merged
  uint64_t slice = 1 << 17;    // rows whose candidates are held at once, or a 16th of all if that is more
};
/// For search graphs, and for lists themselves, whose recall@10 is .99. Rounds help those rows most whose
/// list is good already, so graphs gain more by cells and lists more by rounds.
inline constexpr CellsEffort kGraphEffort{};
inline constexpr CellsEffort kListEffort{.rounds = 2, .expanded = 48, .enough = 0.975};

inline constexpr uint32_t kNearCells = 64;  // of each row
inline constexpr uint32_t kProbesMax = 126;
inline constexpr uint32_t kProbeKeys = 8;                     // candidates that each gives
inline constexpr uint32_t kProbeBytes = 12 + 4 * kProbeKeys;  // a probe's, while its slice is compared

// Lists while they are made: long ones take several times as long.
inline constexpr uint32_t kShortList = 64;
inline constexpr uint32_t kLongList = 256;
inline constexpr uint32_t kLongestList = 512;
constexpr uint32_t list_length(uint32_t k) {
  return k <= kShortList ? kShortList : k <= kLongList ? kLongList : kLongestList;
}

/// The effort for lists of k. Products find little of the far end of the longest lists: rounds add it.
constexpr CellsEffort effort_for(uint32_t k, CellsEffort effort) {
  if (list_length(k) <= kLongList) return effort;
  effort.rounds = std::max(effort.rounds, 2u);
  effort.expanded = std::max(effort.expanded, 64u);
  return effort;
}

inline constexpr uint32_t kRowsPerCell = 244;
inline constexpr uint32_t kMatchedMax = 1u << 15;
constexpr uint32_t cell_count(uint64_t rows) {
  const uint64_t cells = std::max<uint64_t>(rows / kRowsPerCell, 1);
  return static_cast<uint32_t>(cells < 64 ? cells : cells / 32 * 32);  // whole units of a tile
}
/// Chunks of up to 128 rows of a cell each, at most.
constexpr uint32_t cell_chunks_max(uint64_t rows) {
  return cell_count(rows) + static_cast<uint32_t>(rows / 128);
}

/// Rows of a slice: of many rows more, since each slice looks through all chunks, which takes less memory
/// than reverse lists do later; of long rows fewer, so that a launch stays below some 20 ms.
constexpr uint64_t slice_rows(uint64_t rows, uint64_t stride, const CellsEffort& effort) {
  const uint64_t by_time = std::max<uint64_t>((1 << 27) / stride, 1024);
  return std::min({rows, std::max(effort.slice, rows / 16), by_time});
}

/// Device memory that cells_knn takes at most, beside codes and result, unless cells find less than `least`: then
/// lists of NN-Descent and of other maps are merged as far as there is memory. Wide codes of a stride have bytes
/// beside them.
constexpr uint64_t cells_bytes(uint64_t rows, uint64_t code_stride, uint32_t k, const CellsEffort& effort,
                               bool wide) {
  const uint64_t stride = wide ? (code_stride / 4 + 63) / 64 * 64 : code_stride;
  const uint64_t cells = cell_count(rows);
  const uint64_t chunks = cell_chunks_max(rows);
  const uint64_t slice = slice_rows(rows, stride, effort);
  const bool grouped = cells > effort.matched;
  const uint64_t lists = rows * list_length(k) * 12;
  const uint64_t map = rows * (stride + 8) + 8 * (cells + chunks) + cells * (stride + 4) +
                       (grouped ? cells * (stride + 8) : 0);
  const uint64_t choosing =
      grouped ? slice * effort.group_probes * kProbeBytes : slice * 1024 + cells * (stride + 4);
  const uint64_t unsorted = wide ? rows * (stride + 4) : 0;
  const uint64_t sorted = wide ? rows * code_stride : 0;
  const uint64_t training = rows * 4 + cells * (stride + 4) + std::max(choosing, cells * (stride * 4 + 512));
  const uint64_t settling = rows * 4 + std::max(choosing, rows * 16);
  const uint64_t comparing = slice * effort.probes * kProbeBytes + chunks * 16 + slice * effort.probes / 128;
  const uint64_t refining = rows * effort.reverse * 4;
  return lists + map +
         std::max(unsorted + std::max(training, settling), sorted + std::max(comparing, refining));
}

}  // namespace gannet::cuda

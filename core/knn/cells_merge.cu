// Cells: the lists of two ways to find the same rows' neighbours, merged.
//
// A thread owns a row: both lists are in order of distance and number, so that the rows of both stand at equal keys,
// and the union takes one pass to count and one from the far end to move, in the first list's own memory.
//
// Bytes of a row with lists of k: 16 k read, up to 8 k written, each thread in lines of its own. 500,000 rows with
// lists of 96: 1.2 GB.

#include "backend/launch_items.cuh"
#include "knn/cells_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

struct Args {
  uint32_t* rows;                  // [rows, k]
  uint32_t* distances;             // [rows, k]
  const uint32_t* more_rows;       // [rows, k]
  const uint32_t* more_distances;  // [rows, k]
  uint32_t k;
};

struct MergeRow {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  static __device__ uint64_t key_at(const uint32_t* rows, const uint32_t* distances, uint32_t at) {
    return uint64_t{distances[at]} << 32 | rows[at];
  }

  __device__ void run(uint64_t row) const {
    uint32_t* const rows = args.rows + row * args.k;
    uint32_t* const distances = args.distances + row * args.k;
    const uint32_t* const more_rows = args.more_rows + row * args.k;
    const uint32_t* const more_distances = args.more_distances + row * args.k;
    uint32_t own = 0;  // entries of either list among the k nearest of both
    uint32_t more = 0;
    uint32_t kept = 0;
    for (; kept < args.k; ++kept) {
      const uint64_t a = own < args.k ? key_at(rows, distances, own) : RowKey::kNone;
      const uint64_t b = more < args.k ? key_at(more_rows, more_distances, more) : RowKey::kNone;
      if (a == RowKey::kNone && b == RowKey::kNone) break;
      own += a <= b ? 1 : 0;
      more += b <= a ? 1 : 0;
    }
    while (more > 0) {
      const uint64_t b = key_at(more_rows, more_distances, more - 1);
      const uint64_t a = own > 0 ? key_at(rows, distances, own - 1) : 0;
      const bool moves = own > 0 && a >= b;
      more -= own == 0 || a <= b ? 1 : 0;
      own -= moves ? 1 : 0;
      const uint64_t key = moves ? a : b;
      --kept;
      rows[kept] = static_cast<uint32_t>(key);
      distances[kept] = static_cast<uint32_t>(key >> 32);
    }
  }
};

}  // namespace

void merge_lists(uint32_t rows, uint32_t k, uint32_t* neighbors, uint32_t* distances,
                 const uint32_t* more_neighbors, const uint32_t* more_distances, const Stream& stream) {
  launch_items<MergeRow>("merge_row", rows, Args{neighbors, distances, more_neighbors, more_distances, k},
                         stream);
}

}  // namespace gannet::cuda

// CAGRA's rank-based pruning (section III-B1).
//
// Operations a row: `looked_at` lists of `looked_at` entries, each compared with 16 ranks of this row's list at a
// time (distance/detours.h). Bytes: those lists, read from memory at random; all are requested before
// the first is used.
//
// By distance the table of section III-B1 is made first: a distance for each entry of each list.

#include <algorithm>
#include <vector>

#include "graph/search_graph.h"

namespace gannet {
namespace {

struct Workspace {
  Workspace(uint32_t k, const Allocator& memory)
      : own(memory, round_up(k, kDetourRanks)),
        detours(memory, round_up(k, kDetourRanks)),
        order(memory, k),
        sorted(memory, k) {}

  Array<uint32_t> own;      // [k rounded up] the row's list
  Array<uint32_t> detours;  // [k rounded up]
  Array<uint64_t> order;    // [k] detours << 32 | rank
  Array<uint64_t> sorted;   // [k]
};

/// The `degree` entries of a list with the fewest detours, equal counts in order of rank.
void keep(const uint32_t* list, uint32_t length, uint32_t degree, Workspace& space, uint32_t* kept) {
  for (uint32_t rank = 0; rank < length; ++rank)
    space.order[rank] = uint64_t{space.detours[rank]} << 32 | rank;
  kernels().sort_keys(space.order.data(), length, space.sorted.data());
  for (uint32_t i = 0; i < degree; ++i)
    kept[i] = i < length ? list[static_cast<uint32_t>(space.sorted[i])] : kNoRow;
}

void prune_row(const KnnGraph& knn, uint32_t row, const Pruning& pruning, Workspace& space, uint32_t* kept) {
  const uint32_t* list = knn.list(row);
  const uint32_t length = static_cast<uint32_t>(std::find(list, list + knn.k, kNoRow) - list);
  const uint32_t looked_into = std::min(knn.k, pruning.looked_at);
  const uint32_t looked_at = std::min(length, pruning.looked_at);
  for (uint32_t rank = 0; rank < looked_at; ++rank) {
    const char* other = reinterpret_cast<const char*>(knn.list(list[rank]));
    for (uint32_t byte = 0; byte < looked_into * 4; byte += 64) __builtin_prefetch(other + byte);
  }
  std::fill(std::copy_n(list, length, space.own.begin()), space.own.end(), kNoRow);
  space.detours.fill(0);
  const uint32_t ranks = static_cast<uint32_t>(round_up(length, kDetourRanks));
  for (uint32_t rank = 0; rank < looked_at; ++rank) {
    const uint32_t* other = knn.list(list[rank]);
    uint32_t entries = looked_into;
    while (entries > 0 && other[entries - 1] == kNoRow) --entries;
    kernels().count_detours(space.own.data(), ranks, other, entries, rank, space.detours.data());
  }
  keep(list, length, pruning.degree, space, kept);
}

/// The same by distances, entry by entry.
void prune_row_by_distance(const KnnGraph& knn, const Array<uint32_t>& distances, uint32_t row,
                           const Pruning& pruning, Workspace& space, uint32_t* kept) {
  const uint32_t* list = knn.list(row);
  const uint32_t length = static_cast<uint32_t>(std::find(list, list + knn.k, kNoRow) - list);
  const uint32_t* own = distances.data() + uint64_t{row} * knn.k;
  space.detours.fill(0);
  for (uint32_t rank_z = 0; rank_z < std::min(length, pruning.looked_at); ++rank_z) {
    const uint32_t* other = knn.list(list[rank_z]);
    const uint32_t* legs = distances.data() + uint64_t{list[rank_z]} * knn.k;
    for (uint32_t i = 0; i < std::min(knn.k, pruning.looked_at) && other[i] != kNoRow; ++i) {
      const uint32_t rank = static_cast<uint32_t>(std::find(list, list + length, other[i]) - list);
      if (rank < length && std::max(own[rank_z], legs[i]) < own[rank]) ++space.detours[rank];
    }
  }
  keep(list, length, pruning.degree, space, kept);
}

template <class PruneRow>
Array<uint32_t> prune_rows(const KnnGraph& knn, uint32_t degree, const Execution& execution,
                           const PruneRow& prune) {
  Array<uint32_t> kept(execution.memory, checked_product(knn.rows, degree));
  std::vector<Workspace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(knn.k, execution.memory);
  parallel_for(execution, knn.rows, 256, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    for (uint64_t row = begin; row < end; ++row)
      prune(static_cast<uint32_t>(row), spaces[worker], kept.data() + row * degree);
  });
  return kept;
}

}  // namespace

Array<uint32_t> prune_by_rank(const KnnGraph& knn, const Pruning& pruning, const Execution& execution) {
  return prune_rows(knn, pruning.degree, execution, [&](uint32_t row, Workspace& space, uint32_t* kept) {
    prune_row(knn, row, pruning, space, kept);
  });
}

Array<uint32_t> prune_by_distance(const KnnGraph& knn, const Array<uint32_t>& distances,
                                  const Pruning& pruning, const Execution& execution) {
  return prune_rows(knn, pruning.degree, execution, [&](uint32_t row, Workspace& space, uint32_t* kept) {
    prune_row_by_distance(knn, distances, row, pruning, space, kept);
  });
}

Array<uint32_t> list_distances(const KnnGraph& knn, const Codes& codes, const Execution& execution) {
  Array<uint32_t> distances(execution.memory, checked_product(knn.rows, knn.k));
  Array<uint8_t> space(execution.memory, codes.stride() * execution.threads);
  parallel_for(execution, knn.rows, 256, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint8_t* code = space.data() + worker * codes.stride();
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t number = static_cast<uint32_t>(row);
      const uint32_t* list = knn.list(row);
      const uint32_t length = static_cast<uint32_t>(std::find(list, list + knn.k, kNoRow) - list);
      uint32_t* out = distances.data() + row * knn.k;
      codes.gather(&number, 1, code);
      codes.distances(code, list, length, out);
      std::fill(out + length, out + knn.k, UINT32_MAX);
    }
  });
  return distances;
}

uint64_t prune_bytes(uint64_t rows, uint32_t k, size_t stride, const Pruning& pruning, uint32_t threads) {
  const uint64_t own_and_detours = 2 * round_up(k, kDetourRanks) * sizeof(uint32_t);
  const uint64_t orders = 2 * uint64_t{k} * sizeof(uint64_t);
  const uint64_t workers = threads * (own_and_detours + orders + 4 * kAlignment);
  if (!pruning.by_distance) return workers;
  const uint64_t distances = rows * k * sizeof(uint32_t);
  return distances + std::max(workers, uint64_t{threads} * stride);
}

}  // namespace gannet

// CAGRA's rank-based pruning (section III-B1).
//
// Operations a row: degree^2 entries of other lists looked up in a table of this row's ranks, an
// open-addressed hash of 1,024 places that stays in the first cache (4 bytes for each row of the
// data, directly addressed, would miss it at every lookup). It is at most a quarter full.

#include <algorithm>
#include <vector>

#include "graph/search_graph.h"

namespace gannet {
namespace {

/// The ranks of one list, by row.
class RankTable {
 public:
  explicit RankTable(const Allocator& memory) : places_(memory, kPlaces) { places_.fill(kEmpty); }

  void enter(uint32_t row, uint32_t rank) { places_[place_of(row)] = uint64_t{row} << 32 | rank; }

  /// The rank of a row, or 0, which no detour can lie below.
  uint32_t rank(uint32_t row) const {
    const uint64_t entry = places_[place_of(row)];
    return entry == kEmpty ? 0 : static_cast<uint32_t>(entry);
  }

  void clear() { places_.fill(kEmpty); }

 private:
  static constexpr uint32_t kPlacesLog2 = 10;
  static constexpr uint32_t kPlaces = 1u << kPlacesLog2;
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static_assert(ANN_DEGREE_MAX * 4 <= kPlaces);

  /// Where the row stands, or the empty place where it would.
  uint32_t place_of(uint32_t row) const {
    uint32_t place = (row * 0x9e3779b1u) >> (32 - kPlacesLog2);
    while (places_[place] != kEmpty && places_[place] >> 32 != row) place = (place + 1) % kPlaces;
    return place;
  }

  Array<uint64_t> places_;  // row << 32 | rank
};

struct Workspace {
  Workspace(uint32_t k, const Allocator& memory) : ranks(memory), detours(memory, k) {}

  RankTable ranks;
  Array<uint64_t> detours;  // [k] detours << 32 | rank
};

void prune_row(const KnnGraph& knn, uint32_t row, uint32_t degree, Workspace& space,
               uint32_t* kept) {
  const uint32_t* list = knn.list(row);
  space.ranks.clear();
  uint32_t length = 0;
  for (; length < knn.k && list[length] != kNoRow; ++length) {
    space.ranks.enter(list[length], length);
    space.detours[length] = length;
  }
  const uint32_t looked_at = std::min(length, degree);
  for (uint32_t rank_z = 0; rank_z < looked_at; ++rank_z) {
    const uint32_t* list_z = knn.list(list[rank_z]);
    if (rank_z + 2 < looked_at) __builtin_prefetch(knn.list(list[rank_z + 2]));
    for (uint32_t rank_y = 0; rank_y < std::min(knn.k, degree); ++rank_y) {
      const uint32_t y = list_z[rank_y];
      if (y == kNoRow) break;
      const uint32_t rank = space.ranks.rank(y);
      if (rank > std::max(rank_z, rank_y)) space.detours[rank] += uint64_t{1} << 32;
    }
  }
  std::sort(space.detours.data(), space.detours.data() + length);
  for (uint32_t i = 0; i < degree; ++i)
    kept[i] = i < length ? list[static_cast<uint32_t>(space.detours[i])] : kNoRow;
}

}  // namespace

Array<uint32_t> prune_by_rank(const KnnGraph& knn, uint32_t degree, const Execution& execution) {
  Array<uint32_t> kept(execution.memory, checked_product(knn.rows, degree));
  std::vector<Workspace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(knn.k, execution.memory);
  parallel_for(execution, knn.rows, 256, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    for (uint64_t row = begin; row < end; ++row)
      prune_row(knn, static_cast<uint32_t>(row), degree, spaces[worker],
                kept.data() + row * degree);
  });
  return kept;
}

}  // namespace gannet

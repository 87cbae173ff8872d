#include "knn/cells_refine.h"

#include <algorithm>
#include <atomic>

#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint32_t kExpanded = 24;
constexpr uint32_t kRead = 16;
constexpr uint32_t kCandidatesMax = kExpanded * kRead;
constexpr uint64_t kRowsPerTask = 128;

void prefetch_code(const Codes& codes, uint32_t row) {
  // The first lines; the hardware follows within a row.
  __builtin_prefetch(codes.row(row));
  if (codes.stride() > 64) __builtin_prefetch(codes.row(row) + 64);
}

}  // namespace

RefineSpace::RefineSpace(const CellCodes& codes, const CellMap& map, uint32_t k, const Allocator& memory)
    : probing(codes.tiles, map, memory),
      met(memory, codes.exact.rows()),
      cells(memory, kSliceRows * size_t{kProbesMax}),
      compared(Array<uint8_t>::zeroed(memory, map.cells())),
      code(memory, codes.exact.stride()),
      candidates(memory, kCandidatesMax),
      line(memory, kCandidatesMax),
      distances(memory, nearest_room(k)),
      places(memory, nearest_room(k)),
      keys(memory, 2 * nearest_room(k)) {}

Refinement::Refinement(const CellCodes& codes, const CellMap& map, uint32_t budget, NearLists& lists,
                       const Execution& execution)
    : codes_(codes.exact),
      tiles_(codes.tiles),
      map_(map),
      budget_(budget),
      lists_(lists),
      execution_(execution),
      words_((lists.k + 63) / 64),
      next_(execution.memory, checked_product(codes_.rows(), lists.k)),
      fresh_(execution.memory, checked_product(codes_.rows(), words_)),
      next_fresh_(execution.memory, checked_product(codes_.rows(), words_)) {
  spaces_.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces_.emplace_back(codes, map, lists.k, execution.memory);
}

uint64_t Refinement::round(bool first) {
  std::atomic<uint64_t> found = 0;
  parallel_for(execution_, codes_.rows(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    const uint32_t* rows = map_.members();
    uint64_t entries = 0;
    for (uint64_t at = begin; at < end;) {
      execution_.check();
      const uint32_t count = map_.rows_together(static_cast<uint32_t>(at), static_cast<uint32_t>(end));
      entries += refine_rows(rows + at, count, first, spaces_[worker]);
      at += count;
    }
    found.fetch_add(entries, std::memory_order_relaxed);
  });
  std::swap(lists_.neighbors, next_);
  std::swap(fresh_, next_fresh_);
  return found.load();
}

/// The rows live in one cell.
uint64_t Refinement::refine_rows(const uint32_t* rows, uint32_t count, bool first, RefineSpace& space) {
  const uint32_t home = map_.home(rows[0]);
  uint16_t counts[kSliceRows];
  choose_cells(tiles_, map_, home, rows, count, budget_, space.probing, space.cells.data(), counts);
  uint64_t found = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint16_t* cells = space.cells.data() + i * size_t{kProbesMax};
    space.compared[home] = 1;
    for (uint32_t p = 0; p < counts[i]; ++p) space.compared[cells[p]] = 1;
    const uint32_t candidates = find_candidates(rows[i], first, space);
    for (uint32_t p = 0; p < counts[i]; ++p) space.compared[cells[p]] = 0;
    space.compared[home] = 0;
    found += refine_row(rows[i], candidates, space);
  }
  return found;
}

/// Neighbours of neighbours that the row has not been compared with; how many.
uint32_t Refinement::find_candidates(uint32_t row, bool first, RefineSpace& space) const {
  const uint32_t k = lists_.k;
  const uint32_t read = std::min(k, kRead);
  const uint32_t* neighbors = lists_.neighbors.data();
  const uint32_t* own = neighbors + uint64_t{row} * k;
  uint32_t size = 0;
  for (; size < k && own[size] != kNoRow; ++size) space.met.enter(own[size]);
  const uint32_t expanded = std::min(size, kExpanded);
  for (uint32_t i = 0; i < expanded; ++i) {
    __builtin_prefetch(neighbors + uint64_t{own[i]} * k);
    if (!first) __builtin_prefetch(fresh_.data() + own[i] * words_);
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < expanded; ++i) {
    const uint32_t* theirs = neighbors + uint64_t{own[i]} * k;
    static_assert(kRead <= 64, "the first word has all");
    const uint64_t news = first || is_fresh(row, i) ? ~uint64_t{0} : fresh_[own[i] * words_];
    // Most are known by their cell; they are left out without a branch, which would be guessed wrong.
    uint32_t outside[kRead];
    uint32_t kept = 0;
    for (uint32_t j = 0; j < read && theirs[j] != kNoRow; ++j) {
      outside[kept] = theirs[j];
      kept += (news >> j & 1) & (space.compared[map_.home(theirs[j])] ^ 1u);
    }
    for (uint32_t j = 0; j < kept; ++j) {
      if (outside[j] == row || !space.met.enter(outside[j])) continue;
      prefetch_code(codes_, outside[j]);
      space.candidates[count++] = outside[j];
    }
  }
  space.met.clear();
  return count;
}

/// Writes the row's next list: the nearest of its own and the candidates. How many are new.
uint32_t Refinement::refine_row(uint32_t row, uint32_t candidates, RefineSpace& space) {
  const uint32_t k = lists_.k;
  const uint32_t* own = lists_.neighbors.data() + uint64_t{row} * k;
  uint32_t* own_distances = lists_.distances.data() + uint64_t{row} * k;
  uint32_t* next = next_.data() + uint64_t{row} * k;
  uint64_t* fresh = next_fresh_.data() + row * words_;
  std::fill(fresh, fresh + words_, 0);
  codes_.gather(&row, 1, space.code.data());
  codes_.distances(space.code.data(), space.candidates.data(), candidates, space.line.data());
  const uint32_t size = static_cast<uint32_t>(std::find(own, own + k, kNoRow) - own);
  NearestList list{space.distances.data(), space.places.data(), k, size,
                   size == k ? own_distances[k - 1] : UINT32_MAX};
  std::copy_n(own_distances, size, list.distances);
  for (uint32_t i = 0; i < size; ++i) list.places[i] = i;
  kernels().show_nearest(list, space.line.data(), candidates, k);
  if (list.size == size && list.limit == (size == k ? own_distances[k - 1] : UINT32_MAX)) {
    std::copy_n(own, k, next);
    return 0;
  }
  kernels().thin_out(list);
  uint64_t* from = space.keys.data();
  uint64_t* to = from + nearest_room(k);
  for (uint32_t i = 0; i < list.size; ++i) {
    const uint32_t place = list.places[i];
    const bool found = place >= k;
    from[i] = RowKey::of(list.distances[i], found ? space.candidates[place - k] : own[place], found);
  }
  kernels().sort_keys(from, list.size, to);
  const uint32_t kept = std::min(k, list.size);
  uint32_t found = 0;
  for (uint32_t i = 0; i < kept; ++i) {
    next[i] = RowKey::row(to[i]);
    own_distances[i] = RowKey::distance(to[i]);
    fresh[i / 64] |= uint64_t{RowKey::flag(to[i])} << (i % 64);
    found += RowKey::flag(to[i]) ? 1 : 0;
  }
  std::fill(next + kept, next + k, kNoRow);
  return found;
}

uint64_t refine_space_bytes(uint64_t rows, size_t stride, uint32_t k) {
  return probe_space_bytes(rows, stride) + rows / 8 + 8192 * 4 + kSliceRows * kProbesMax * 2 +
         cells_at_most(rows) + stride + kCandidatesMax * 8 + nearest_room(k) * 24 + 12 * kAlignment;
}

uint64_t refinement_bytes(uint64_t rows, uint32_t k) {
  return rows * k * 4 + rows * ((k + 63) / 64) * 16 + 3 * kAlignment;
}

}  // namespace gannet

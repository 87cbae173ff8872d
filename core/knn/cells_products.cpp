#include "knn/cells_products.h"

#include <algorithm>
#include <numeric>

#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr size_t kUnitBytes = 640 << 10;  // 400 or 1,200 KB change nothing with 1 MB of second cache
constexpr uint32_t kUnitMax = 512;

void open_lists(uint32_t count, uint32_t k, UnitSpace& space) {
  const size_t room = nearest_room(k);
  for (uint32_t i = 0; i < count; ++i)
    space.lists[i] = {space.distances.data() + i * room, space.places.data() + i * room, k, 0, UINT32_MAX};
}

/// Compares a cell with those rows of the unit that want it, `wanting`.
void show_cell(const Codes& codes, const CellMap& map, uint32_t cell, const uint16_t* wanting, uint32_t count,
               UnitSpace& space, const Execution& execution) {
  const size_t stride = codes.stride();
  const uint32_t first = map.begin(cell);
  const uint32_t size = map.size(cell);
  const size_t width = cell_rows_max(codes.rows());
  for (uint32_t begin = 0; begin < count; begin += kSliceRows) {
    execution.check();
    const uint32_t rows = std::min(kSliceRows, count - begin);
    for (uint32_t i = 0; i < rows; ++i)
      std::memcpy(space.slice.data() + i * stride, space.codes.data() + wanting[begin + i] * stride, stride);
    map.compare(codes, space.slice.data(), rows, cell, space.residuals.data(), space.tile.data(), width);
    for (uint32_t i = 0; i < rows; ++i) {
      const uint32_t row = space.rows[wanting[begin + i]];
      uint32_t* line = space.tile.data() + i * width;
      if (map.home(row) == cell) {
        const uint32_t* self = std::lower_bound(map.members() + first, map.members() + first + size, row);
        line[self - (map.members() + first)] = UINT32_MAX;
      }
      kernels().show_nearest(space.lists[wanting[begin + i]], line, size, first);
    }
  }
}

/// The k nearest of a list, sorted by distance, then row.
void close_list(const CellMap& map, NearestList& list, UnitSpace& space, uint32_t* neighbors,
                uint32_t* distances, uint32_t k) {
  kernels().thin_out(list);
  uint64_t* from = space.keys.data();
  uint64_t* to = from + nearest_room(k);
  for (uint32_t i = 0; i < list.size; ++i)
    from[i] = RowKey::of(list.distances[i], map.members()[list.places[i]], false);
  kernels().sort_keys(from, list.size, to);
  const uint32_t count = std::min(k, list.size);
  for (uint32_t i = 0; i < count; ++i) {
    neighbors[i] = RowKey::row(to[i]);
    distances[i] = RowKey::distance(to[i]);
  }
  std::fill(neighbors + count, neighbors + k, kNoRow);
  std::fill(distances + count, distances + k, UINT32_MAX);
}

/// Leaves the k nearest of a list's candidates, and some more, by the codes that make lists.
void compare_again(const Codes& codes, const CellMap& map, uint32_t row, uint32_t k, UnitSpace& space,
                   NearestList& list) {
  kernels().thin_out(list);
  uint32_t* const rows = space.candidates.data();
  for (uint32_t i = 0; i < list.size; ++i) {
    rows[i] = map.members()[list.places[i]];
    __builtin_prefetch(codes.row(rows[i]));
    __builtin_prefetch(codes.row(rows[i]) + 64);
  }
  codes.distances_of_row(row, rows, list.size, list.distances);
  list.k = k;
  list.limit = UINT32_MAX;
}

/// Turns "this row wants those cells" into "those rows want this cell".
void turn_round(const CellMap& map, uint32_t count, UnitSpace& space) {
  uint32_t* begins = space.begins.data();
  std::fill(begins, begins + map.cells() + 1, 0);
  const auto each_wish = [&](const auto& visit) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint16_t* cells = space.probes.data() + i * size_t{kProbesMax};
      for (uint32_t p = 0; p < space.probe_counts[i]; ++p) visit(i, cells[p]);
    }
  };
  each_wish([&](uint32_t, uint32_t cell) { ++begins[cell]; });
  uint32_t total = 0;
  for (uint32_t cell = 0; cell <= map.cells(); ++cell) {
    total += begins[cell];
    begins[cell] = total;  // the end for now; filled from behind
  }
  for (uint32_t i = count; i-- > 0;) {
    const uint16_t* cells = space.probes.data() + i * size_t{kProbesMax};
    for (uint32_t p = 0; p < space.probe_counts[i]; ++p)
      space.wanting[--begins[cells[p]]] = static_cast<uint16_t>(i);
  }
}

/// Makes the centroids around `home` the right side of a tile.
void open_home(const Codes& codes, const CellMap& map, uint32_t home, ProbeSpace& space) {
  if (space.home == home) return;
  const uint16_t* near = map.near(home);
  for (uint32_t i = 0; i < map.near_count(); ++i) {
    std::memcpy(space.block.data() + i * codes.stride(), map.centroid(near[i]), codes.stride());
    space.weights[i] = map.size(near[i]);
  }
  codes.pack(space.block.data(), map.near_count(), space.packed.data());
  space.home = home;
}

constexpr uint32_t kOwn = UINT32_MAX;  // the distance of a row's own cell, farther than any other

/// The cells that a row chooses among.
struct NearCells {
  const uint16_t* cells;
  const uint32_t* weights;  // rows of each
  const uint32_t* ones;     // a weight that counts cells
  uint32_t count;
};

/// Those of the cells `near` that are nearest and together hold at most `budget` rows; the nearest of them where they
/// are too many.
uint32_t nearest_within(const NearCells& near, const uint32_t* line, uint32_t budget, uint16_t* chosen) {
  const auto [cells, weights, ones, count] = near;
  uint32_t bound = 0;
  uint32_t size = 0;
  if (kernels().bound_within(line, weights, count, budget, &bound)) {
    const auto within =
        std::count_if(line, line + count, [&](uint32_t distance) { return distance <= bound; });
    if (within >= kProbesMax && !kernels().bound_within(line, ones, count, kProbesMax - 1, &bound))
      bound = *std::min_element(line, line + count);  // more of them are equally near
    for (uint32_t i = 0; i < count; ++i) {
      chosen[size] = cells[i];
      size += line[i] <= bound && line[i] != kOwn && size < kProbesMax - 1 ? 1 : 0;
    }
    return size;
  }
  // The nearest centroid stands for several cells, parts of one that was too large: some of them.
  const uint32_t least = *std::min_element(line, line + count);
  uint32_t room = budget;
  for (uint32_t i = 0; i < count && size < kProbesMax - 1; ++i) {
    if (line[i] != least || weights[i] > room) continue;
    room -= weights[i];
    chosen[size++] = cells[i];
  }
  return size;
}

}  // namespace

uint32_t unit_rows(size_t stride, uint32_t k) {
  const size_t row = 2 * stride + nearest_room(k) * 8 + 128;
  return static_cast<uint32_t>(std::clamp<size_t>(kUnitBytes / row, 2 * kSliceRows, kUnitMax));
}

UnitSpace::UnitSpace(const Codes& codes, const CellMap& map, uint32_t k, const Allocator& memory)
    : room(std::min(codes.rows(), unit_rows(codes.stride(), k))),
      codes(memory, room * codes.stride()),
      rows(memory, room),
      slice(memory, kSliceRows * codes.stride()),
      residuals(memory, kSliceRows * map.packed_stride()),
      tile(memory, kSliceRows * size_t{cell_rows_max(codes.rows())}),
      probes(memory, size_t{room} * kProbesMax),
      probe_counts(memory, room),
      begins(memory, size_t{map.cells()} + 1),
      wanting(memory, size_t{room} * kProbesMax),
      distances(memory, size_t{room} * nearest_room(k)),
      places(memory, size_t{room} * nearest_room(k)),
      lists(memory, room),
      keys(memory, 2 * nearest_room(k)),
      candidates(memory, nearest_room(k)),
      probing(codes, map, memory) {}

ProbeSpace::ProbeSpace(const Codes& codes, const CellMap& map, const Allocator& memory)
    : width(round_up(map.cells(), kPackRows)),
      block(memory, map.near_count() * codes.stride()),
      packed(memory, packed_bytes(map.near_count(), codes.stride())),
      weights(memory, map.near_count()),
      all(memory, map.cells()),
      ones(memory, map.cells()),
      slice(memory, kSliceRows * codes.stride()),
      lines(memory, kSliceRows * width) {
  std::iota(all.begin(), all.end(), uint16_t{0});
  std::fill(ones.begin(), ones.end(), 1u);
}

void choose_cells(const Codes& codes, const CellMap& map, uint32_t home, const uint32_t* rows, uint32_t count,
                  uint32_t budget, ProbeSpace& space, uint16_t* cells, uint16_t* counts) {
  std::fill(counts, counts + count, 0);
  if (map.near_count() == 0) return;
  codes.gather(rows, count, space.slice.data());
  const bool far = map.looks_far(budget);
  if (!far) open_home(codes, map, home, space);
  const NearCells near =
      far ? NearCells{space.all.data(), map.sizes(), space.ones.data(), map.cells()}
          : NearCells{map.near(home), space.weights.data(), space.ones.data(), map.near_count()};
  codes.tile(space.slice.data(), count, far ? map.packed_centroids() : space.packed.data(), near.count,
             space.lines.data(), space.width);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t* line = space.lines.data() + i * space.width;
    if (far) line[home] = kOwn;
    counts[i] = static_cast<uint16_t>(nearest_within(near, line, budget, cells + i * size_t{kProbesMax}));
  }
}

/// The rows of a unit meet their own cells first, which brings the limits of their lists down before
/// most distances come.
void show_homes(const Codes& codes, const CellMap& map, uint32_t count, UnitSpace& space,
                const Execution& execution) {
  for (uint32_t i = 0; i < count; ++i) space.wanting[i] = static_cast<uint16_t>(i);
  for (uint32_t begin = 0; begin < count;) {
    const uint32_t cell = map.home(space.rows[begin]);
    uint32_t end = begin + 1;
    while (end < count && map.home(space.rows[end]) == cell) ++end;
    show_cell(codes, map, cell, space.wanting.data() + begin, end - begin, space, execution);
    begin = end;
  }
}

void compare_unit(const CellCodes& both, const CellMap& map, uint32_t first, uint32_t count, uint32_t budget,
                  UnitSpace& space, NearLists& lists, const Execution& execution) {
  const Codes& codes = both.tiles;
  const uint32_t* rows = map.members() + first;
  std::copy_n(rows, count, space.rows.data());
  codes.gather(rows, count, space.codes.data());
  open_lists(count, both.listed(lists.k), space);
  show_homes(codes, map, count, space, execution);
  for (uint32_t begin = 0; begin < count;) {
    execution.check();
    const uint32_t together = map.rows_together(first + begin, first + count);
    choose_cells(codes, map, map.home(rows[begin]), rows + begin, together, budget, space.probing,
                 space.probes.data() + begin * size_t{kProbesMax}, space.probe_counts.data() + begin);
    begin += together;
  }
  turn_round(map, count, space);
  for (uint32_t cell = 0; cell < map.cells(); ++cell) {
    const uint32_t begin = space.begins[cell];
    const uint32_t end = space.begins[cell + 1];
    if (begin != end)
      show_cell(codes, map, cell, space.wanting.data() + begin, end - begin, space, execution);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (both.compares_twice()) {
      execution.check();
      compare_again(both.exact, map, rows[i], lists.k, space, space.lists[i]);
    }
    close_list(map, space.lists[i], space, lists.neighbors.data() + uint64_t{rows[i]} * lists.k,
               lists.distances.data() + uint64_t{rows[i]} * lists.k, lists.k);
  }
}

void compare_with_all(const Codes& codes, const CellMap& map, const uint32_t* rows, uint32_t count,
                      uint32_t k, UnitSpace& space, uint32_t* neighbors, uint32_t* distances,
                      const Execution& execution) {
  std::copy_n(rows, count, space.rows.data());
  codes.gather(rows, count, space.codes.data());
  open_lists(count, k, space);
  for (uint32_t i = 0; i < count; ++i) space.wanting[i] = static_cast<uint16_t>(i);
  for (uint32_t cell = 0; cell < map.cells(); ++cell)
    show_cell(codes, map, cell, space.wanting.data(), count, space, execution);
  for (uint32_t i = 0; i < count; ++i)
    close_list(map, space.lists[i], space, neighbors + i * size_t{k}, distances + i * size_t{k}, k);
}

uint64_t probe_space_bytes(uint64_t rows, size_t stride) {
  return kNearCells * (stride + 4) + packed_bytes(kNearCells, stride) + kSliceRows * stride +
         (cells_at_most(rows) + kPackRows) * (kSliceRows * 4 + 6) + 7 * kAlignment;
}

uint64_t unit_bytes(uint64_t rows, size_t stride, uint32_t k) {
  const uint64_t room = std::min<uint64_t>(rows, unit_rows(stride, k));
  return room * (stride + 4 + kProbesMax * 4 + 2 + nearest_room(k) * 8 + sizeof(NearestList)) +
         kSliceRows * (2 * stride + cell_rows_max(rows) * 4) + cells_at_most(rows) * 4 +
         nearest_room(k) * 20 + probe_space_bytes(rows, stride) + 14 * kAlignment;
}

}  // namespace gannet

#include "search/exact_by_codes.h"

#include <algorithm>
#include <vector>

#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint32_t kGroup = 128;  // queries that share a packed tile
constexpr uint32_t kTileRows = 128;
constexpr uint32_t kSlice = 12;  // queries of one call

/// Rows by code among which the k nearest are looked for.
constexpr uint32_t looked_at(uint32_t k) { return k + k / 2 + 64; }

uint32_t group_size(uint32_t count, uint32_t threads) {
  return std::clamp(count / std::max(1u, threads), 1u, kGroup);
}

struct Workspace {
  Workspace(size_t stride, uint32_t group, uint32_t kept, const Allocator& memory)
      : queries(memory, group * stride),
        rows(memory, kTileRows * stride),
        packed(memory, packed_bytes(kTileRows, stride)),
        tile(memory, size_t{kSlice} * kTileRows),
        distances(memory, size_t{group} * nearest_room(kept)),
        places(memory, size_t{group} * nearest_room(kept)),
        lists(memory, group),
        exact(memory, nearest_room(kept)) {}

  Array<uint8_t> queries;     // [group, stride] codes
  Array<uint8_t> rows;        // [kTileRows, stride]
  Array<uint8_t> packed;      // the same, packed
  Array<uint32_t> tile;       // [kSlice, kTileRows]
  Array<uint32_t> distances;  // [group, nearest_room(kept)]
  Array<uint32_t> places;     // [group, nearest_room(kept)] row numbers
  Array<NearestList> lists;   // [group]
  Array<float> exact;         // [nearest_room(kept)]
};

void show_rows(const Codes& codes, uint32_t row, uint32_t rows, uint32_t queries, const uint32_t* excluded,
               RowSetView held_out, Workspace& space) {
  uint32_t numbers[kTileRows];
  uint32_t held_out_places[kTileRows];  // places of rows that are held out
  uint32_t held_out_count = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    numbers[i] = row + i;
    if (held_out.holds(row + i)) held_out_places[held_out_count++] = i;
  }
  codes.gather(numbers, rows, space.rows.data());
  codes.pack(space.rows.data(), rows, space.packed.data());
  for (uint32_t first = 0; first < queries; first += kSlice) {
    const uint32_t slice = std::min(kSlice, queries - first);
    codes.tile(space.queries.data() + first * codes.stride(), slice, space.packed.data(), rows,
               space.tile.data(), kTileRows);
    for (uint32_t i = 0; i < slice; ++i) {
      uint32_t* line = space.tile.data() + i * size_t{kTileRows};
      // Unsigned: rows before this tile wrap round.
      if (excluded != nullptr && excluded[first + i] - row < rows)
        line[excluded[first + i] - row] = UINT32_MAX;
      for (uint32_t place = 0; place < held_out_count; ++place) line[held_out_places[place]] = UINT32_MAX;
      kernels().show_nearest(space.lists[first + i], line, rows, row);
    }
  }
}

/// Whether the k nearest of a list, of which `farthest` is the last, come early enough by code that none is
/// likely to lie beyond its end.
bool trusted(const Codes& codes, const NearestList& list, const float* exact, uint32_t k, float farthest) {
  if (codes.lossless() || list.size == codes.rows()) return true;
  uint32_t last = 0;
  for (uint32_t i = 0; i < list.size; ++i) {
    if (exact[i] <= farthest) last = std::max(last, list.distances[i]);
  }
  const uint32_t before = static_cast<uint32_t>(
      std::count_if(list.distances, list.distances + list.size, [&](uint32_t d) { return d <= last; }));
  return before <= k + (list.size - k) / 2;
}

/// The same by comparing all rows as stored. `nearest` has room for k.
void nearest_as_stored(const Dataset& dataset, const PreparedQuery& query, uint32_t excluded,
                       RowSetView held_out, uint32_t k, float* nearest, const Execution& execution) {
  float tile[kTileRows];
  uint32_t found = 0;
  for (uint32_t first = 0; first < dataset.rows(); first += kTileRows) {
    if (first % (kTileRows * 64) == 0) execution.check();
    const uint32_t count = std::min(kTileRows, dataset.rows() - first);
    dataset.distances(query, nullptr, first, count, tile);
    for (uint32_t i = 0; i < count; ++i) {
      if (first + i == excluded || held_out.holds(first + i) || (found == k && tile[i] >= nearest[0]))
        continue;
      if (found == k) std::pop_heap(nearest, nearest + found--);
      nearest[found++] = tile[i];
      std::push_heap(nearest, nearest + found);
    }
  }
  std::sort_heap(nearest, nearest + found);
}

/// The first rows of a list by code, equal ones by number.
void write_first(const NearestList& list, uint32_t* rows, uint32_t count) {
  uint64_t first[CodeOrder::kLooked];
  std::fill_n(first, count, RowKey::kNone);
  for (uint32_t i = 0; i < list.size; ++i) {
    const uint64_t key = RowKey::of(list.distances[i], list.places[i], false);
    if (key >= first[count - 1]) continue;
    uint64_t* const place = std::upper_bound(first, first + count, key);
    std::copy_backward(place, first + count - 1, first + count);
    *place = key;
  }
  for (uint32_t i = 0; i < count; ++i) rows[i] = first[i] == RowKey::kNone ? kNoRow : RowKey::row(first[i]);
}

}  // namespace

void nearest_by_codes(const Dataset& dataset, const Codes& codes, const QueryBlock& queries, uint32_t first,
                      uint32_t count, const uint32_t* excluded, RowSetView held_out, uint32_t k,
                      float* distances, const Execution& execution, uint32_t* first_by_code) {
  const uint32_t kept = std::min(codes.rows(), distances != nullptr ? looked_at(k) : k);
  const uint32_t group = group_size(count, execution.threads);
  std::vector<Workspace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(codes.stride(), group, kept, execution.memory);
  parallel_for(execution, count, group, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    Workspace& space = spaces[worker];
    const uint32_t size = static_cast<uint32_t>(end - begin);
    const size_t room = nearest_room(kept);
    for (uint32_t i = 0; i < size; ++i) {
      codes.encode_query(queries[first + begin + i], space.queries.data() + i * codes.stride());
      space.lists[i] = {space.distances.data() + i * room, space.places.data() + i * room, kept, 0,
                        UINT32_MAX};
    }
    for (uint32_t row = 0; row < codes.rows(); row += kTileRows) {
      execution.check();
      show_rows(codes, row, std::min(kTileRows, codes.rows() - row), size,
                excluded != nullptr ? excluded + first + begin : nullptr, held_out, space);
    }
    for (uint32_t i = 0; i < size; ++i) {
      NearestList& list = space.lists[i];
      kernels().thin_out(list);
      if (first_by_code != nullptr)
        write_first(list, first_by_code + (begin + i) * CodeOrder::kLooked, CodeOrder::kLooked);
      if (distances == nullptr) continue;
      dataset.distances(queries[first + begin + i], list.places, 0, list.size, space.exact.data());
      float* nearest = distances + (begin + i) * k;
      std::partial_sort_copy(space.exact.data(), space.exact.data() + list.size, nearest, nearest + k);
      if (!trusted(codes, list, space.exact.data(), k, nearest[k - 1]))
        nearest_as_stored(dataset, queries[first + begin + i],
                          excluded != nullptr ? excluded[first + begin + i] : kNoRow, held_out, k, nearest,
                          execution);
    }
  });
}

uint64_t nearest_by_codes_bytes(size_t stride, uint32_t count, uint32_t k, uint32_t threads) {
  const uint64_t group = group_size(count, threads);
  const uint64_t room = nearest_room(looked_at(k));
  return threads * ((group + kTileRows) * stride + packed_bytes(kTileRows, stride) + kSlice * kTileRows * 4 +
                    group * (room * 8 + sizeof(NearestList)) + room * 4 + 8 * kAlignment);
}

}  // namespace gannet

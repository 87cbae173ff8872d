#include "knn/cells_map.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "base/row_loops.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x63656c6c73;  // "cells"
constexpr uint32_t kSamplePerCell = 32;
constexpr uint32_t kLloydRounds = 3;

uint32_t cell_count(uint64_t rows) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows / kRowsPerCell, 1, kCellsMax));
}

/// begins[c] ... begins[c + 1] are the places of sorted[] that hold the items with homes[i] == c, in
/// ascending order.
void sort_by_home(const uint16_t* homes, uint32_t count, uint32_t cells, uint32_t* begins, uint32_t* sorted,
                  const Execution& execution) {
  std::fill(begins, begins + cells + 1, 0);
  serial_for(execution, count, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) ++begins[homes[i] + 1];
  });
  for (uint32_t cell = 0; cell < cells; ++cell) begins[cell + 1] += begins[cell];
  serial_for(execution, count, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) sorted[begins[homes[i]]++] = static_cast<uint32_t>(i);
  });
  for (uint32_t cell = cells; cell > 0; --cell) begins[cell] = begins[cell - 1];
  begins[0] = 0;
}

/// The mean of some codes, as a code. Sums in the order of `places`, so that floats have one result.
void mean_code(const Codes& codes, const uint32_t* sample, const uint32_t* places, uint32_t count,
               double* sums, uint8_t* block, uint8_t* mean) {
  const size_t columns = codes.wide() ? codes.stride() / sizeof(float) : codes.stride();
  std::fill(sums, sums + columns, 0.0);
  for (uint32_t i = 0; i < count; ++i) {
    codes.gather(sample + places[i], 1, block);
    if (codes.wide()) {
      const float* values = reinterpret_cast<const float*>(block);
      for (size_t column = 0; column < columns; ++column) sums[column] += values[column];
    } else {
      for (size_t column = 0; column < columns; ++column) sums[column] += block[column];
    }
  }
  for (size_t column = 0; column < columns; ++column) {
    const double value = sums[column] / count;
    if (codes.wide()) {
      reinterpret_cast<float*>(mean)[column] = static_cast<float>(value);
    } else {
      mean[column] = static_cast<uint8_t>(value + 0.5);
    }
  }
}

/// Pairs (poor cell, sampled row that becomes its centroid): cells with less than an eighth of their
/// share move into those with more than twice theirs, the poorest into the richest.
std::vector<std::pair<uint32_t, uint32_t>> moves(const uint32_t* begins, const uint32_t* sorted,
                                                 uint32_t cells, uint32_t sampled) {
  const uint32_t share = std::max(1u, sampled / cells);
  std::vector<std::pair<uint32_t, uint32_t>> by_size;
  for (uint32_t cell = 0; cell < cells; ++cell) by_size.push_back({begins[cell + 1] - begins[cell], cell});
  std::sort(by_size.begin(), by_size.end());
  std::vector<std::pair<uint32_t, uint32_t>> moved;
  uint32_t poor = 0;
  for (uint32_t rich = cells; rich-- > poor;) {
    const auto [size, cell] = by_size[rich];
    if (size <= 2 * share) break;
    const uint32_t wanted = size / share - 1;
    for (uint32_t i = 0; i < wanted && poor < rich && by_size[poor].first * 8 <= share; ++i) {
      const uint32_t place = begins[cell] + static_cast<uint32_t>(uint64_t{size} * (i + 1) / (wanted + 1));
      moved.push_back({by_size[poor++].second, sorted[place]});
    }
  }
  return moved;
}

}  // namespace

CellMap::CellMap(const Codes& codes, uint64_t seed, const Execution& execution, CellRows form)
    : cells_(cell_count(codes.rows())),
      stride_(codes.stride()),
      form_(form),
      packed_stride_(form == CellRows::kCodes ? stride_ : residual_stride(stride_)),
      centroids_(execution.memory, size_t{cells_at_most(codes.rows())} * codes.stride()),
      packed_centroids_(execution.memory, packed_bytes(cells_at_most(codes.rows()), codes.stride())),
      homes_(execution.memory, codes.rows()),
      members_(execution.memory, codes.rows()) {
  train(codes, seed, execution);
  order_cells(codes, execution);
  settle(codes, nullptr, codes.rows(), homes_.data(), execution);
  split_and_sort(codes, execution);
  find_near_cells(codes, execution);
  pack(codes, execution);
}

void CellMap::pack_centroids(const Codes& codes) {
  codes.pack(centroids_.data(), cells_, packed_centroids_.data());
}

void CellMap::centroid_distances(const Codes& codes, const uint32_t* rows, uint32_t count,
                                 CentroidSpace& space) const {
  codes.gather(rows, count, space.block.data());
  codes.tile(space.block.data(), count, packed_centroids_.data(), cells_, space.distances.data(),
             space.width);
}

/// homes[i] becomes the nearest cell of rows[i], or of row i.
void CellMap::settle(const Codes& codes, const uint32_t* rows, uint32_t count, uint16_t* homes,
                     const Execution& execution) {
  std::vector<CentroidSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(codes, cells_, execution.memory);
  parallel_for(execution, count, kSliceRows * 16, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    CentroidSpace& space = spaces[worker];
    for (uint64_t first = begin; first < end; first += kSliceRows) {
      const uint32_t slice = static_cast<uint32_t>(std::min<uint64_t>(kSliceRows, end - first));
      uint32_t numbers[kSliceRows];
      for (uint32_t i = 0; i < slice; ++i)
        numbers[i] = rows != nullptr ? rows[first + i] : static_cast<uint32_t>(first + i);
      centroid_distances(codes, numbers, slice, space);
      uint32_t nearest[kSliceRows];
      kernels().nearest_in_rows(space.distances.data(), space.width, slice, cells_, nearest);
      std::transform(nearest, nearest + slice, homes + first,
                     [](uint32_t cell) { return static_cast<uint16_t>(cell); });
    }
  });
}

void CellMap::train(const Codes& codes, uint64_t seed, const Execution& execution) {
  const Allocator& memory = execution.memory;
  const uint32_t sampled =
      static_cast<uint32_t>(std::min<uint64_t>(codes.rows(), uint64_t{cells_} * kSamplePerCell));
  Array<uint32_t> sample(memory, sampled);
  random_strata(codes.rows(), sampled, seed, kSampleStream, sample.data());
  for (uint32_t cell = 0; cell < cells_; ++cell) {
    const uint64_t place =
        random_below(sampled / cells_, seed, kSampleStream + 1, cell) + uint64_t{cell} * (sampled / cells_);
    codes.gather(sample.data() + place, 1, centroids_.data() + cell * codes.stride());
  }
  pack_centroids(codes);
  Array<uint16_t> homes(memory, sampled);
  Array<uint32_t> sorted(memory, sampled);
  Array<uint32_t> begins(memory, size_t{cells_} + 1);
  Array<double> sums(memory, codes.stride() * execution.threads);
  Array<uint8_t> blocks(memory, codes.stride() * execution.threads);
  for (uint32_t round = 0; round < kLloydRounds; ++round) {
    settle(codes, sample.data(), sampled, homes.data(), execution);
    sort_by_home(homes.data(), sampled, cells_, begins.data(), sorted.data(), execution);
    parallel_for(execution, cells_, 8, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t cell = begin; cell < end; ++cell) {
        const uint32_t count = begins[cell + 1] - begins[cell];
        if (count != 0)
          mean_code(codes, sample.data(), sorted.data() + begins[cell], count,
                    sums.data() + codes.stride() * worker, blocks.data() + codes.stride() * worker,
                    centroids_.data() + cell * codes.stride());
      }
    });
    if (round + 1 < kLloydRounds) {
      for (const auto& [cell, place] : moves(begins.data(), sorted.data(), cells_, sampled))
        codes.gather(sample.data() + place, 1, centroids_.data() + cell * codes.stride());
    }
    pack_centroids(codes);
  }
}

/// Renumbers the centroids along a chain: each is followed by the nearest that is left.
void CellMap::order_cells(const Codes& codes, const Execution& execution) {
  const size_t stride = codes.stride();
  Array<uint8_t> ordered(execution.memory, size_t{cells_} * stride);
  Array<uint32_t> distances(execution.memory, round_up(cells_, kPackRows));
  Array<uint8_t> placed = Array<uint8_t>::zeroed(execution.memory, cells_);
  uint32_t current = 0;
  for (uint32_t cell = 0; cell < cells_; ++cell) {
    if (cell % 64 == 0) execution.check();
    placed[current] = 1;
    std::memcpy(ordered.data() + cell * stride, centroids_.data() + current * stride, stride);
    codes.tile(centroids_.data() + current * stride, 1, packed_centroids_.data(), cells_, distances.data(),
               distances.size());
    uint32_t least = UINT32_MAX;
    for (uint32_t other = 0; other < cells_; ++other) {
      if (placed[other] == 0 && distances[other] < least) {
        least = distances[other];
        current = other;
      }
    }
  }
  std::memcpy(centroids_.data(), ordered.data(), ordered.size());
  pack_centroids(codes);
}

void CellMap::split_and_sort(const Codes& codes, const Execution& execution) {
  const Allocator& memory = execution.memory;
  const size_t stride = codes.stride();
  const uint32_t settled = cells_;
  const uint32_t most = cell_rows_max(codes.rows());
  Array<uint32_t> begins(memory, size_t{settled} + 1);
  sort_by_home(homes_.data(), codes.rows(), settled, begins.data(), members_.data(), execution);
  Array<uint8_t> old(memory, settled * stride);
  std::memcpy(old.data(), centroids_.data(), old.size());
  const auto pieces = [&](uint32_t cell) { return (begins[cell + 1] - begins[cell] + most - 1) / most; };
  cells_ = 0;
  for (uint32_t cell = 0; cell < settled; ++cell) cells_ += pieces(cell);  // empty ones vanish
  begins_ = Array<uint32_t>(memory, size_t{cells_} + 1);
  sizes_ = Array<uint32_t>(memory, cells_);
  offsets_ = Array<uint64_t>(memory, cells_);
  if (!is_exact()) terms_ = Array<uint64_t>(memory, cells_);
  uint64_t bytes = 0;
  uint64_t terms = 0;
  uint32_t next = 0;
  for (uint32_t cell = 0; cell < settled; ++cell) {
    const uint64_t count = begins[cell + 1] - begins[cell];
    for (uint32_t piece = 0; piece < pieces(cell); ++piece, ++next) {
      begins_[next] = begins[cell] + static_cast<uint32_t>(count * piece / pieces(cell));
      const uint32_t end = begins[cell] + static_cast<uint32_t>(count * (piece + 1) / pieces(cell));
      sizes_[next] = end - begins_[next];
      offsets_[next] = bytes;
      bytes += round_up(packed_bytes(sizes_[next], packed_stride_), kAlignment);
      if (!is_exact()) terms_[next] = terms;
      terms += round_up(sizes_[next], kPackRows);
      for (uint32_t place = begins_[next]; place < end; ++place)
        homes_[members_[place]] = static_cast<uint16_t>(next);
      std::memcpy(centroids_.data() + next * stride, old.data() + cell * stride, stride);
    }
  }
  begins_[cells_] = codes.rows();
  packed_ = Array<uint8_t>(memory, bytes);
  if (!is_exact()) {
    steps_ = Array<float>(memory, terms);
    squares_ = Array<float>(memory, terms);
    wholes_ = Array<int32_t>(memory, terms);
  }
  pack_centroids(codes);
}

void CellMap::find_near_cells(const Codes& codes, const Execution& execution) {
  const Allocator& memory = execution.memory;
  near_count_ = std::min(cells_ - 1, kNearCells);
  near_ = Array<uint16_t>(memory, size_t{cells_} * near_count_);
  const size_t width = round_up(cells_, kPackRows);
  const size_t room = nearest_room(kNearCells);
  Array<uint32_t> lines(memory, width * execution.threads);
  Array<uint32_t> lists(memory, 2 * room * execution.threads);
  parallel_for(execution, cells_, 16, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t* line = lines.data() + width * worker;
    uint32_t* distances = lists.data() + 2 * room * worker;
    for (uint64_t cell = begin; cell < end; ++cell) {
      codes.tile(centroid(static_cast<uint32_t>(cell)), 1, packed_centroids_.data(), cells_, line, width);
      line[cell] = UINT32_MAX;
      NearestList list{distances, distances + room, near_count_, 0, UINT32_MAX};
      kernels().show_nearest(list, line, cells_, 0);
      kernels().thin_out(list);
      // Some more than wanted may have stayed.
      uint16_t* near = near_.data() + cell * near_count_;
      uint64_t keys[nearest_room(kNearCells)];
      for (uint32_t i = 0; i < list.size; ++i) keys[i] = uint64_t{list.distances[i]} << 32 | list.places[i];
      std::nth_element(keys, keys + near_count_, keys + list.size);
      for (uint32_t i = 0; i < near_count_; ++i) near[i] = static_cast<uint16_t>(keys[i]);
      std::sort(near, near + near_count_);
    }
  });
}

void CellMap::pack(const Codes& codes, const Execution& execution) {
  const size_t room = cell_rows_max(codes.rows()) * packed_stride_;
  Array<uint8_t> blocks(execution.memory, room * execution.threads);
  parallel_for(execution, cells_, 1, [&](uint64_t number, uint64_t, uint32_t worker) {
    const auto cell = static_cast<uint32_t>(number);
    uint8_t* block = blocks.data() + room * worker;
    if (!is_exact()) return pack_residuals(codes, cell, block);
    codes.gather(members_.data() + begins_[cell], sizes_[cell], block);
    codes.pack(block, sizes_[cell], packed_.data() + offsets_[cell]);
  });
}

void CellMap::pack_residuals(const Codes& codes, uint32_t cell, uint8_t* block) {
  const auto columns = static_cast<uint32_t>(stride_ / sizeof(float));
  const auto centre = reinterpret_cast<const float*>(centroid(cell));
  std::memset(block, 0, sizes_[cell] * packed_stride_);  // beyond the columns
  const uint64_t room = round_up(sizes_[cell], kPackRows);
  for (uint64_t i = 0; i < room; ++i) {
    ResidualTerms terms;  // beyond the members: zero
    if (i < sizes_[cell])
      terms = kernels().residual_code(reinterpret_cast<const float*>(codes.row(members_[begins_[cell] + i])),
                                      centre, columns, block + i * packed_stride_);
    steps_[terms_[cell] + i] = terms.step;
    squares_[terms_[cell] + i] = terms.square;
    wholes_[terms_[cell] + i] = terms.whole;
  }
  kernels().code_pack(block, packed_stride_, sizes_[cell], packed_.data() + offsets_[cell]);
}

void CellMap::compare(const Codes& codes, const uint8_t* block, uint32_t count, uint32_t cell, uint8_t* bytes,
                      uint32_t* tile, size_t width) const {
  const uint8_t* packed = packed_.data() + offsets_[cell];
  if (is_exact()) return codes.tile(block, count, packed, sizes_[cell], tile, width);
  const auto columns = static_cast<uint32_t>(stride_ / sizeof(float));
  ResidualTerms terms[kSliceRows];
  for (uint32_t i = 0; i < count; ++i) {
    terms[i] = kernels().residual_code(reinterpret_cast<const float*>(block + i * stride_),
                                       reinterpret_cast<const float*>(centroid(cell)), columns,
                                       bytes + i * packed_stride_);
    std::memset(bytes + i * packed_stride_ + columns, 0, packed_stride_ - columns);
  }
  kernels().code_tile(bytes, count, packed, sizes_[cell], packed_stride_, columns, tile, width);
  for (uint32_t i = 0; i < count; ++i)
    kernels().residual_line(tile + i * width, residuals(cell), sizes_[cell], terms[i], tile + i * width);
}

uint64_t cell_map_bytes(uint64_t rows, size_t stride, uint32_t threads) {
  const uint64_t cells = cells_at_most(rows);
  const uint64_t most = cell_rows_max(rows);
  const uint64_t padding = kPackRows * (stride + 8) + kAlignment;
  const uint64_t map = rows * (6 + stride + 8) + cells * (2 * stride + 36 + kNearCells * 2 + padding);
  const uint64_t sample = std::min(rows, uint64_t{cell_count(rows)} * kSamplePerCell) * 10;
  const uint64_t made = cells * (stride + 16) + sample;
  const uint64_t space = kSliceRows * (stride + (cells + 16) * 4) + most * stride + stride * 9 +
                         (cells + 16) * 4 + nearest_room(kNearCells) * 8;
  return map + made + threads * (space + 8 * kAlignment) + 32 * kAlignment;
}

}  // namespace gannet

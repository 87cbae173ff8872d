#include "knn/exact_knn.h"

#include <algorithm>
#include <vector>

namespace gannet {
namespace {

constexpr uint32_t kTileRows = 64;

struct Workspace {
  Workspace(uint32_t k, size_t stride, const Allocator& memory)
      : left(memory, kTileRows * stride),
        right(memory, kTileRows * stride),
        packed(memory, packed_bytes(kTileRows, stride)),
        distances(memory, kTileRows * kTileRows),
        lists(memory, kTileRows * (k + size_t{1})) {}

  Array<uint8_t> left;        // [kTileRows, stride]
  Array<uint8_t> right;       // [kTileRows, stride]
  Array<uint8_t> packed;      // right, packed
  Array<uint32_t> distances;  // [kTileRows, kTileRows]
  Array<uint64_t> lists;      // [kTileRows, k + 1] ascending keys
};

/// Keeps `key` in an ascending list of at most k, which has room for one more.
void keep_nearest(uint64_t* list, uint32_t& size, uint32_t k, uint64_t key) {
  if (size == k && key >= list[k - 1]) return;
  uint64_t* place = std::lower_bound(list, list + size, key);
  std::copy_backward(place, list + size, list + size + 1);
  *place = key;
  size = std::min(size + 1, k);
}

void gather_range(const Codes& codes, uint32_t first, uint32_t count, uint8_t* block) {
  uint32_t ids[kTileRows] = {};
  for (uint32_t i = 0; i < count; ++i) ids[i] = first + i;
  codes.gather(ids, count, block);
}

/// The lists of rows first ... first + count.
void build_tile(const Codes& codes, uint32_t first, uint32_t count, uint32_t k, Workspace& space,
                uint32_t* neighbors) {
  uint32_t sizes[kTileRows] = {};
  gather_range(codes, first, count, space.left.data());
  for (uint32_t column = 0; column < codes.rows(); column += kTileRows) {
    const uint32_t columns = std::min(kTileRows, codes.rows() - column);
    gather_range(codes, column, columns, space.right.data());
    codes.pack(space.right.data(), columns, space.packed.data());
    codes.tile(space.left.data(), count, space.packed.data(), columns, space.distances.data(), kTileRows);
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t j = 0; j < columns; ++j) {
        if (column + j != first + i)
          keep_nearest(space.lists.data() + i * (k + size_t{1}), sizes[i], k,
                       RowKey::of(space.distances[i * kTileRows + j], column + j, false));
      }
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < k; ++j)
      neighbors[i * size_t{k} + j] =
          j < sizes[i] ? RowKey::row(space.lists[i * (k + size_t{1}) + j]) : kNoRow;
  }
}

}  // namespace

KnnGraph exact_knn(const Codes& codes, uint32_t k, const Execution& execution) {
  KnnGraph graph{Array<uint32_t>(execution.memory, checked_product(codes.rows(), k)), codes.rows(), k, 0};
  std::vector<Workspace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(k, codes.stride(), execution.memory);
  std::atomic<uint64_t> done = 0;
  parallel_for(execution, codes.rows(), kTileRows, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    build_tile(codes, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin), k, spaces[worker],
               graph.neighbors.data() + begin * k);
    execution.advance(static_cast<double>(done += end - begin) / codes.rows());
  });
  return graph;
}

uint64_t exact_knn_bytes(uint64_t rows, size_t stride, uint32_t k, uint32_t threads) {
  const uint64_t graph = rows * k * sizeof(uint32_t);
  const uint64_t blocks = 2 * kTileRows * stride + packed_bytes(kTileRows, stride);
  const uint64_t distances = kTileRows * kTileRows * sizeof(uint32_t);
  const uint64_t lists = kTileRows * (k + uint64_t{1}) * sizeof(uint64_t);
  return graph + threads * (blocks + distances + lists + 5 * kAlignment);
}

}  // namespace gannet

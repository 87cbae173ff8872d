// NearestSample: how far rows of a segment lie from their nearest neighbours, on a sample of rows.
//
// GGNN's search bounds its slack by d+_nn1, the greatest such distance "across all points within the currently
// processed subset of the graph" (equation 3). The first edge of a row leads to its nearest neighbour in every graph
// of the library, so a comparison a row is enough; 2,048 of them take some 0.3 ms, once. A sample also keeps
// one row far from all others from deciding alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>

#include "base/random.h"
#include "segment/segment.h"
#include "traverse/slack_cache.h"

namespace gannet {

class NearestSample {
 public:
  /// The distance, in the units of codes, that a share (0 to 1) of the rows sampled does not exceed. The first call
  /// measures. Any thread.
  float quantile(const Segment& segment, double share) {
    std::call_once(once_, [&] { measure(segment); });
    if (count_ == 0) return 0;
    const double place = std::ceil(share * count_) - 1;
    return distances_[static_cast<uint32_t>(std::clamp<double>(place, 0, count_ - 1))];
  }

 private:
  static constexpr uint32_t kRows = 2048;
  static constexpr uint64_t kStream = 0x6e6e31;  // "nn1"

  void measure(const Segment& segment) {
    uint32_t rows[kRows];
    const uint32_t sampled = std::min(kRows, segment.rows());
    random_strata(segment.rows(), sampled, segment.seed, kStream, rows);
    const SquareKind kind = segment.codes.wide() ? SquareKind::kFloatBits : SquareKind::kInteger;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sampled; ++i) {
      const AdjacencyRow edges = segment.graph.touched_row(rows[i]);
      if (edges.length == 0 || edges.targets[0] == kNoRow) continue;
      distances_[count++] = std::sqrt(square_of(kind, compare(segment, rows[i], edges.targets[0])));
    }
    std::sort(distances_, distances_ + count);
    count_ = count;
  }

  /// The code distance of two rows. Signed codes are turned over before they are compared.
  static uint32_t compare(const Segment& segment, uint32_t row, uint32_t other) {
    const Codes& codes = segment.codes;
    alignas(kCodeAlign) uint8_t turned[ANN_DIM_MAX];
    const uint8_t* code = codes.row(row);
    if (codes.flip() != 0) {
      segment.dataset.row(row);  // which checks it, where it lies in a mapped file
      codes.gather(&row, 1, turned);
      code = turned;
    }
    const uint32_t both[] = {row, other};  // the first to check it too
    uint32_t squares[2];
    codes.distances(code, both, 2, squares);
    return squares[1];
  }

  std::once_flag once_;
  uint32_t count_ = 0;
  float distances_[kRows] = {};  // ascending
};

}  // namespace gannet

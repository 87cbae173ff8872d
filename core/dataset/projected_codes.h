// ProjectedCodes: codes of many columns as fewer bytes, along the directions in which they differ most.
//
// Vectors of hundreds of columns rarely fill them. Walks of the CPU read a row to find out how far it is, and of 960
// columns of GIST a projection to 128 bytes puts .998 of the true 10 nearest among its first 26, which a search
// compares as stored anyhow. So where a build finds such a projection, the walks of the CPU compare
//
//     code_j = clamp(round((x . b_j - o_j) f)) + 128,    j < m,
//
// for a code x of bytes (dataset/codes.h): b_j are m directions of signed bytes, o_j the mean of the products, and f
// one factor for all, so that squared L2 of these codes is that of rows but for what lies beyond the m directions.
// Cells look for the candidates of k-NN lists by them too (knn/cells.h). CUDA devices and the walks of CAGRA, GGNN and
// TSDG compare x.
//
//   directions  the eigenvectors of the covariance of a sample's codes, by orthogonal iteration, and turned at random
//               among themselves, so that each has as much of the variance as another and one step serves all
//   m           the least multiple of 64, a quarter of the columns at most, that keeps the order of the rows
//               (index/choose_projection.h); of codes for lists alone the most
//
// LeanVec (Tepper et al., TMLR 2024) projects in this way, to floats. Everything here but the directions, which a file
// keeps, is integers, so that all machines have the same codes. Products come from the distances of
// tiles, whose bytes are b + 128: 2 x.b = |x|^2 + |b + 128|^2 - |x - (b + 128)|^2 - 256 sum x.
//
// Work: m products of the columns a row, 3.4 ns each of 960 columns with VNNI. The covariance of 4,096 rows of 960
// columns is 3.8e9 products of bytes, 13 ms; three multiplications and as many orthogonalizations of 192 directions 70
// ms.
//
// Rejected: texts of 384 columns, themselves a projection of words, have .78 of the true 10 there by 128 bytes and .93
// by 256: nothing is left out of them. SIFT and words have too few columns to gain.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "base/first_touch.h"
#include "base/memory.h"
#include "distance/kernels.h"

namespace gannet {

class Codes;

/// The directions along which codes of bytes differ most, orthogonal and of length one, the widest first.
class Directions {
 public:
  static constexpr uint32_t kStep = 64;  // directions of a projection are a multiple of it
  static constexpr uint32_t kShare = 4;  // and at most the columns by this

  /// Fitted to a sample of the rows. There are none where columns or rows are too few, or columns too many.
  Directions(const Codes& codes, uint64_t seed, const Execution& execution);

  uint32_t count() const { return count_; }
  const float* operator[](uint32_t number) const { return values_.data() + size_t{number} * stride_; }
  /// Codes of the sample, [sample_rows(), stride].
  const uint8_t* sample() const { return sample_.data(); }
  uint32_t sample_rows() const { return sample_rows_; }

  /// How many there are, of codes of `stride` bytes.
  static uint32_t count_of(uint64_t rows, size_t stride);
  /// Bytes that they hold and that finding them takes at most.
  static uint64_t bytes(uint64_t rows, size_t stride);

 private:
  size_t stride_;
  uint32_t count_;
  uint32_t sample_rows_ = 0;
  Array<uint8_t> sample_;
  Array<float> values_;  // [count, stride]
};

class ProjectedCodes {
 public:
  static constexpr uint32_t kStep = Directions::kStep;  // bytes of a code are a multiple of it,
  static constexpr uint32_t kMost = 512;                // and at most so many
  static constexpr size_t kStrideMost = 4096;           // of the codes projected

  /// The parts of the codes that do not follow from others, as read from a file.
  struct Parts {
    Array<uint8_t> codes;         // [rows, m]
    Array<uint8_t> projection;    // [projection_bytes(m, stride of the codes projected)]
    FirstTouch* touch = nullptr;  // called before a code is read, unless null
  };

  /// The codes of a file, of codes of `stride` bytes; m is found by the bytes of the projection.
  ProjectedCodes(size_t stride, Parts&& parts, const Allocator& memory);

  /// Projects all rows along the first `width` of some directions, turned among themselves.
  ProjectedCodes(const Codes& codes, const Directions& directions, uint32_t width, uint64_t seed,
                 const Execution& execution);

  /// m, the bytes of a code.
  uint32_t width() const { return width_; }
  const uint8_t* data() const { return stored_.data(); }
  const uint8_t* row(uint32_t number) const { return stored_.data() + size_t{number} * width_; }
  const Array<uint8_t>& projection() const { return projection_; }
  uint64_t bytes() const {
    return stored_.bytes() + projection_.bytes() + packed_.bytes() + squares_.bytes();
  }
  /// Checks everything that has not been yet.
  void touch_all(const Execution& execution = {}) const {
    if (touch_ != nullptr) touch_->touch_all(execution);
  }

  /// The projection in one piece of memory: f32 f; zeros up to 64 bytes; i32 [m] o; u8 [m, stride] b + 128.
  static constexpr size_t kHeadBytes = 64;
  static constexpr uint64_t projection_bytes(uint64_t width, uint64_t stride) {
    return kHeadBytes + width * (sizeof(int32_t) + stride);
  }

  /// Bytes that projecting a code takes beside it and the result, a multiple of the alignment.
  size_t scratch_bytes() const { return width_ * sizeof(uint32_t); }
  /// Projects a code, [stride], to [m]; `scratch` is aligned.
  void project(const uint8_t* code, uint8_t* scratch, uint8_t* out) const {
    project(code, 1, reinterpret_cast<uint32_t*>(scratch), out);
  }

  /// out[i] is the distance of a projected query to row ids[i].
  void distances(const uint8_t* query, const uint32_t* ids, uint32_t count, uint32_t* out) const;

 private:
  ProjectedCodes(size_t stride, Array<uint8_t>&& projection, const Allocator& memory);
  void project(const uint8_t* codes, uint32_t count, uint32_t* tile, uint8_t* out) const;
  void fit(const Directions& directions, const Execution& execution);
  void pack(const Allocator& memory);
  float factor() const;
  const int32_t* offsets() const;
  const uint8_t* directions() const;
  /// The products of codes with the directions, [count, width], in place of `tile`.
  void multiply(const uint8_t* codes, uint32_t count, uint32_t* tile) const;

  size_t stride_ = 0;  // of the codes projected
  uint32_t width_ = 0;
  Array<uint8_t> stored_;      // [rows, width]
  Array<uint8_t> projection_;  // [projection_bytes]
  Array<uint8_t> packed_;      // the directions as the right side of a tile
  Array<uint32_t> squares_;    // [width] of b + 128
  FirstTouch* touch_ = nullptr;
};

/// Bytes that projected codes of codes of `stride` bytes hold at most.
uint64_t projected_codes_bytes(uint64_t rows, size_t stride);

/// Bytes that making them takes at most beside those and their directions.
uint64_t fit_projected_codes_bytes(size_t stride, uint32_t threads);

}  // namespace gannet

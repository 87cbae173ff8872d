// Wide codes as halves on a CUDA device, for walks with one list and with two: half the bytes of each row that a query
// is compared with. Queries stay floats, and rows that are answered are re-ranked as stored, so a rounded half may cost
// an answer its place in a list and no more.
//
// Halves keep 11 bits of every column, which is enough wherever rows do not lie far from the centre and close together.
// So rows of a sample are compared with the ends of their edges by both: halves serve if 19 of 20 squared distances
// differ by no more than 1 of 32, which is what two roundings of bytes do to a distance of 16 steps
// (dataset/codes.h). The sample, the sums and their order are the same on every device, so nothing of it is stored.
//
// Image patches, 60,000 x 192 f32: 768 bytes a row as floats, 384 as halves. 10,000 queries that compare 472 rows each
// read 3.6 GB as floats, from the caches. By halves they take .65 of the time at .95, 1,000 queries .67 to .77, one .81
// (one NVIDIA H200).
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

/// Codes of fewer columns are not worth a copy: a row is read by the line.
inline constexpr uint32_t kHalfColumnsMin = 64;

struct HalfCodesArgs {
  const uint8_t* codes;   // [rows, code_stride] floats
  uint8_t* halves;        // [rows, stride] the same, zeros behind them
  const uint32_t* edges;  // [rows, degree] kNoRow where there are fewer
  uint32_t rows;
  uint32_t code_stride;  // bytes, a multiple of 64
  uint32_t stride;       // bytes, a multiple of 64
  uint32_t degree;
};

/// Makes the halves; whether they serve. Returns when both are known.
bool make_half_codes(const HalfCodesArgs& args, const Stream& stream);

}  // namespace gannet::cuda

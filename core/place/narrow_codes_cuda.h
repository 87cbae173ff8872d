// Wide codes in fewer bytes on a CUDA device: as halves, for walks with one list and with two, and as bytes with a scale
// for each row, for walks with two. Queries stay as precise as they are, and rows that are answered are re-ranked as
// stored, so a rounded row may cost an answer its place in a list and no more.
//
// HALVES keep 11 bits of every column, which is enough wherever rows do not lie far from the centre and close together.
// So rows of a sample are compared with the ends of their edges by both: halves serve if 19 of 20 squared distances
// differ by no more than 1 of 32, which is what two roundings of bytes do to a distance of 16 steps
// (dataset/codes.h). The sample, the sums and their order are the same on every device, so nothing of it is stored.
//
// BYTES are those of dataset/scaled_codes.h about one cell, the centre: one step for all rows hides short ones, a step
// for each does not. They serve if 19 of 20 distances differ by no more than 1 of 8: of 850,000 patches 2 % differ by
// more (10 % by more than 1 of 32), and of the ten nearest to a query .9993 are among the first twenty. Calibration
// measures the recall of the walks that take them. Two lists for ten answers reach .998 of 850,000 patches by them; beyond,
// walks for a hundred answers find the first ten (tune/device_calibration.cpp), and other numbers of answers have what
// two lists do not reach. Beside the bytes of a row it is the starts that pay: walks by floats and halves start at all
// entry points, 64 or 256 of them, and those by bytes at the nearest of 512 pivots, longest walks first
// (search/starts_cuda.cu).
//
// Image patches, 60,000 x 192 f32: 768 bytes a row as floats, 384 as halves, 208 as bytes, which take 256. Time by halves as
// a part of that by floats: 10,000 queries .65 at .95, 1,000 .67 to .77, one .81 (one NVIDIA H200). By bytes as a part of
// that by halves (one NVIDIA H100, ten answers at .95 and .99): 10,000 queries .64 and .59, 1,000 .95 and .91; of 850,000
// patches .61 and .43, .80 and .76. Bytes that start as halves do: 10,000 queries .89 and .84, .84 and .91.
//
// Few columns, time by narrow codes as a part of that by floats (one NVIDIA H200, ten answers at .95 and .99, sets made
// with a length drawn for each row): 300,000 x 40, bytes, 10,000 queries .72 and .69, 1,000 .87 and .84; 300,000 x 56, bytes,
// which take as many lines as halves do, .74 and .66, .94 and .87; 500,000 x 24, halves, .90 and .89, .94 and .95. By
// bytes the last take .93 and .90, but 1,000 queries 1.10 and 1.11, since their products are the longer way to a distance.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

/// Halves of fewer columns take as many cache lines as floats, and bytes of fewer as many as halves.
inline constexpr uint32_t kHalfColumnsMin = 17;
inline constexpr uint32_t kByteColumnsMin = 33;

struct NarrowCodesArgs {
  const uint8_t* codes;   // [rows, code_stride] floats
  uint8_t* narrow;        // [rows, stride] the same
  const uint32_t* edges;  // [rows, degree] kNoRow where there are fewer
  uint32_t rows;
  uint32_t code_stride;  // bytes, a multiple of 64
  uint32_t stride;       // bytes, a multiple of 64
  uint32_t degree;
  uint32_t dim;       // columns,
  uint32_t terms_at;  // and where terms stand behind bytes
};

/// Makes halves, zeros behind them; whether they serve. Returns when both are known.
bool make_half_codes(const NarrowCodesArgs& args, const Stream& stream);

/// The same of bytes with a scale, as ScaledCodes lays rows out about one cell, the centre of the codes.
bool make_byte_codes(const NarrowCodesArgs& args, const Stream& stream);

}  // namespace gannet::cuda

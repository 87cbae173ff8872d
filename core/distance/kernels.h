// The distance loops, chosen at run time, equal bit for bit on every level.
//
// Four families. ROWS computes the distances that are reported, on the rows as stored. CODES computes
// the distances that a search or a build walks by, on 8-bit codes (dataset/codes.h). BOUNDS says which rows
// are too far to be among the nearest. LISTS selects: the nearest of many distances, keys in order, detours.
//
// Why the levels agree. Integers are exact anyhow. Floats are summed in 64 fixed lanes: column i
// goes to lane i mod 64, each product is rounded before it is added (no fused multiply-add), and the
// lanes are folded in one order: 64 to 16 as (l + l+16) + (l+32 + l+48), then 16 to 8, 4, 2, 1 by
// halves. Lanes beyond the last column add +0, which changes no sum that began with +0. Fusing would
// save one operation in three, but these loops wait for loads: at 960 columns of f32 the same 16
// values cost two loads, which bind first.
//
// Rows may start at any address and are never read past their last column.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gannet {

/// Codes are compared in blocks of this many rows on the packed side.
inline constexpr uint32_t kPackRows = 16;

/// Code rows are this many bytes or a multiple, zero beyond the dimension.
inline constexpr uint32_t kCodeAlign = 64;
/// Tiles of codes compare whole steps of so many columns.
inline constexpr uint32_t kCodeStep = 8;

/// Rows of any kind: where the first one starts and how far apart they are.
struct RowsView {
  const void* data = nullptr;  // [rows, dim]
  size_t stride = 0;           // bytes
  uint32_t dim = 0;
  int32_t element = 0;

  const uint8_t* row(uint64_t number) const { return static_cast<const uint8_t*>(data) + number * stride; }
};

/// A list that keeps the k nearest, and some more, of the distances inserted
/// (nearest_list.h). Both arrays hold nearest_room(k) numbers.
struct NearestList {
  uint32_t* distances = nullptr;
  uint32_t* places = nullptr;
  uint32_t k = 0;
  uint32_t size = 0;
  uint32_t limit = UINT32_MAX;    // only nearer rows are taken
  const uint64_t* ids = nullptr;  // of places: of equal distances those with the lowest stay
};

/// Distances are inserted in groups of this many.
inline constexpr uint32_t kNearestPiece = 64;

/// Entries that stay when such a list is thinned out, and its room: another piece, and whole vectors.
constexpr uint32_t nearest_kept(uint32_t k) { return k + k / 8 + 16; }
constexpr uint32_t nearest_room(uint32_t k) { return (nearest_kept(k) + kNearestPiece + 31) / 16 * 16; }

/// The sorted list of a walk (near_list.h): keys of distance * 2^32 + 2 * row + (1 where the row has been
/// expanded), UINT64_MAX in all of its near_room(capacity) places that hold none.
struct NearList {
  uint64_t* keys = nullptr;
  uint32_t capacity = 0;
  uint32_t size = 0;
  uint32_t next = 0;  // rows before this place are expanded
};

/// Rows are inserted in groups of this many.
inline constexpr uint32_t kNearPiece = 32;

/// Its room: another piece, and whole vectors.
constexpr size_t near_room(uint32_t capacity) { return size_t{capacity} + kNearPiece + 8; }

/// The terms of a vector beside its code of whole numbers X (bounds.h).
struct BoundCode {
  bool usable = false;  // false: too large or too small for any bound
  float step = 0;       // s: the vector is about s X
  float square = 0;     // |x|^2
  float error = 0;      // |x - s X|
  float whole = 0;      // |X|^2
};

/// A lower bound of the difference of a tile's rows from a query q, up to a term of the query alone: with
/// d = |X - Q|^2 of the tile,
///   self + scale * step * (d - whole_x - whole_q) - length_q * error_x - error_q * length_x.
/// Arrays are as long as the tile, rounded up to kPackRows.
struct BoundRows {
  float* self = nullptr;
  float* step = nullptr;
  float* whole = nullptr;
  float* error = nullptr;
  float* length = nullptr;
};
struct BoundQuery {
  float scale = 0;
  float whole = 0;
  float length = 0;
  float error = 0;
  float bound = 0;  // rows that differ by more are too far
};

/// The terms of a row beside its bytes X about a centre, and those of a tile's rows.
struct ResidualTerms {
  float step = 0;     // s: the row is about the centre and s X
  float square = 0;   // s^2 |X|^2
  int32_t whole = 0;  // |X|^2
};
struct ResidualRows {
  const float* step = nullptr;
  const float* square = nullptr;
  const int32_t* whole = nullptr;
};

/// Detours are counted for this many ranks at once.
inline constexpr uint32_t kDetourRanks = 16;

struct Kernels {
  const char* name;

  // ROWS. Each gives out[i] for the rows ids[0..count), or rows 0..count of the view if ids is null.
  // A query for f32, f16 and bf16 rows is [dim] f32; for i8 and u8 rows [dim] of that element.

  /// Squared L2, indexed by element. Integers are summed in 32 bits and then made floats.
  void (*squared_l2[6])(const void* query, const RowsView& rows, const uint32_t* ids, uint32_t count,
                        float* out);
  /// Inner product, indexed by element.
  void (*dot[6])(const void* query, const RowsView& rows, const uint32_t* ids, uint32_t count, float* out);

  /// A row of f32, f16 or bf16 as floats, indexed by element.
  void (*widen[4])(const void* row, uint32_t dim, float* out);

  // BOUNDS (bounds.h).

  /// Codes `width` values, a multiple of 16, as bytes X + 128.
  BoundCode (*bound_code)(const float* values, size_t width, uint8_t* code);

  /// The places j < count whose bound is not above the query's, ascending, with room for kPackRows more;
  /// line[j] is |X - Q|^2, and may be read as far as the arrays.
  uint32_t (*within_bound)(const uint32_t* line, const BoundRows& rows, uint32_t count,
                           const BoundQuery& query, uint32_t* places);

  // CODES: squared L2 of rows of `stride` bytes (a multiple of kCodeAlign). Code bytes are xored
  // with `flip` (0 or 0x80, the latter for signed rows) before use; queries and blocks hold bytes
  // already flipped.

  /// out[i] = |query - codes[ids[i]]|^2; `out` overlaps nothing that is read.
  void (*code_gather)(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip,
                      const uint32_t* ids, uint32_t count, uint32_t* out);

  /// Brings a block [count, stride] into the form that `code_tile` takes on its right side, count
  /// rounded up to kPackRows: the bytes of the padded block, and 8 bytes a row.
  void (*code_pack)(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed);

  /// out[i * out_stride + j] = |left i - right j|^2 for a plain block and a packed one, which are zero beyond the first
  /// `columns` bytes of a row, a multiple of kCodeStep; out_stride is at least right_count rounded up to kPackRows, and
  /// columns up to there may be overwritten.
  void (*code_tile)(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
                    size_t stride, size_t columns, uint32_t* out, size_t out_stride);

  /// The same of codes that are floats (float_tile.h): `columns` a row, a multiple of 16 and zero beyond the dimension.
  /// The bits of floats that squared_l2 gives; packed_bytes() of room.
  void (*float_pack)(const float* block, uint32_t columns, uint32_t count, float* packed);
  void (*float_tile)(const float* left, uint32_t left_count, const float* packed, uint32_t right_count,
                     uint32_t columns, uint32_t* out, size_t out_stride);

  /// A row of float codes as bytes X + 128 about a centre (residuals.h); `columns` as above.
  ResidualTerms (*residual_code)(const float* row, const float* centre, uint32_t columns, uint8_t* code);

  /// out[j] becomes the bits of the distance of row j < count from a query, both about one centre, that are apart[j]
  /// apart by `code_tile`; out may be apart. Both arrays, and those of the rows, are as long as the tile, rounded up to
  /// kPackRows; what lies behind `count` means nothing.
  void (*residual_line)(const uint32_t* apart, const ResidualRows& rows, uint32_t count,
                        const ResidualTerms& query, uint32_t* out);

  /// The first place of the smallest value in each row, and in each column, of a tile.
  void (*nearest_in_rows)(const uint32_t* tile, size_t stride, uint32_t rows, uint32_t columns,
                          uint32_t* places);
  void (*nearest_in_columns)(const uint32_t* tile, size_t stride, uint32_t rows, uint32_t columns,
                             uint32_t* places);

  // LISTS of near places (nearest_list.h, near_list.h, detours.h).

  /// Shows a list the distances line[0..count) of the places first, first + 1, ...
  void (*show_nearest)(NearestList& list, const uint32_t* line, uint32_t count, uint32_t first);

  /// Drops entries that are not among the nearest k, except some.
  void (*thin_out)(NearestList& list);

  /// Shows the list of a walk rows that it does not hold, and their distances.
  void (*show_near)(NearList& list, const uint32_t* distances, const uint32_t* rows, uint32_t count);

  /// The first place from `place` on whose row has not been expanded, or list.size.
  uint32_t (*next_near)(const NearList& list, uint32_t place);

  /// A bound such that the weights of all line[j] <= bound add up to at most `budget` and, where one
  /// more distance would not exceed it, to 15/16 of it. False if the nearest alone weigh more.
  bool (*bound_within)(const uint32_t* line, const uint32_t* weights, uint32_t count, uint32_t budget,
                       uint32_t* bound);

  /// Sorts distinct keys; `from` and `to` do not overlap.
  void (*sort_keys)(const uint64_t* from, uint32_t count, uint64_t* to);

  /// detours[r] += 1 for every r with own[r] == theirs[p] for a p, and r > rank, r > p (detours.h).
  void (*count_detours)(const uint32_t* own, uint32_t count, const uint32_t* theirs, uint32_t their_count,
                        uint32_t rank, uint32_t* detours);
};

/// Bytes of a packed block.
constexpr size_t packed_bytes(uint32_t count, size_t stride) {
  const size_t padded = (count + kPackRows - 1) / kPackRows * size_t{kPackRows};
  return padded * (stride + 8);
}

/// The kernels of this process: the best level that the machine has, or a lower one named by
/// GANNET_SIMD. Chosen once.
const Kernels& kernels();

// One table a level; the tests compare them. NEON's exists on 64-bit ARM, those of AVX on x86-64.
extern const Kernels kPortableKernels;
extern const Kernels kNeonKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;

}  // namespace gannet

// vector_file.h: reads and writes vectors in the file formats in common use.
//
//   .fbin .f16bin .i8bin .u8bin         uint32 rows, uint32 dim, then rows x dim values
//   .ibin .u64bin                       the same of ids, of 32 and of 64 bits
//   .fvecs .bvecs .ivecs                for each row int32 dim, then dim values
//   .npy                                NumPy: a C-ordered array [rows, dim] of f4, f2, i1, u1 or i4,
//                                       of f8, which is read as f32, or of ids: u4, i8 or u8, [rows] too
//
// All are little endian; sizes and offsets are 64 bits wide. Nothing that a file says about itself is
// believed until its size agrees, and no memory is taken before that. Rows can be read in parts, so a
// file may be larger than memory. "-" and "fbin:-" are standard input and output (standard_streams.h).
//
// True neighbours come as .ivecs, or as .ibin in the layout of the big-ann benchmarks: uint32
// queries, uint32 k, queries x k int32 row numbers, then queries x k float distances. Where the
// distances are missing the file's size says so. .u64bin is the same with numbers of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ann.h"
#include "standard_streams.h"

// The fault of a file, and its place: "rows.fbin: at byte 4: dim is 0; expected 1 to 32768".
class VectorFileError : public std::runtime_error {
 public:
  // For a fault at one place of the file.
  VectorFileError(const std::string& path, uint64_t offset, const std::string& found,
                  const std::string& expected)
      : std::runtime_error(path + ": at byte " + std::to_string(offset) + ": " + found + "; expected " +
                           expected) {}
  // For a fault of the file as a whole.
  VectorFileError(const std::string& path, const std::string& text)
      : std::runtime_error(path + ": " + text) {}
};

// Elements that files have and ann.h has not: row numbers in .ibin and .ivecs, those and ids in .npy, and
// NumPy's floats of 64 bits.
constexpr int32_t kElementI32 = 1 << 16;
constexpr int32_t kElementU32 = kElementI32 + 1;
constexpr int32_t kElementI64 = kElementI32 + 2;
constexpr int32_t kElementU64 = kElementI32 + 3;
constexpr int32_t kElementF64 = kElementI32 + 4;

// Whether values are ids or row numbers rather than coordinates.
bool is_of_ids(int32_t element);

// More rows than any file here has; a head that says more is damaged.
constexpr int64_t kFileRowsMax = int64_t{1} << 40;

// Bytes of one value, and its name as "f32".
uint32_t element_bytes(int32_t element);
const char* element_name(int32_t element);

// Vectors in memory, packed row after row.
struct Vectors {
  int32_t element = 0;  // ANN_F32, ANN_F16, ANN_I8, ANN_U8 or one of ids
  uint64_t rows = 0;
  uint32_t dim = 0;
  std::vector<std::byte> data;

  uint64_t row_bytes() const { return uint64_t{dim} * element_bytes(element); }

  // A view of `count` rows from `first` on, for calls of ann.h; valid as long as this object.
  ann_matrix view(uint64_t first, uint64_t count) const;
  ann_matrix view() const { return view(0, rows); }
};

// A file of vectors, opened and its head checked; the name's ending says what it is. All members
// throw VectorFileError.
class VectorReader {
 public:
  explicit VectorReader(const std::string& path);

  // The name for messages.
  const std::string& path() const { return path_; }
  // Of the values that read() gives: floats of 64 bits are given as f32.
  int32_t element() const { return element_; }
  // Of the values in the file.
  int32_t stored_element() const { return stored_element_; }
  uint64_t rows() const { return rows_; }
  uint32_t dim() const { return dim_; }
  uint64_t row_bytes() const { return uint64_t{dim_} * element_bytes(element_); }
  // Refuses a file of ids, where coordinates are asked for.
  void expect_vectors() const;

  // Reads `count` rows from `first` on into `out`, packed. A float of 64 bits above the range of f32 is
  // refused with its place.
  void read(uint64_t first, uint64_t count, void* out);
  Vectors read(uint64_t first, uint64_t count);
  // The same of ids, [count, dim], as ann.h has them; -1 is ANN_ID_NONE where that is allowed.
  std::vector<uint64_t> read_ids(uint64_t first, uint64_t count, bool none_allowed);

  // Whether distances, [rows, dim], stand behind the row numbers of an .ibin or .u64bin file; none where they do not.
  bool has_distances() const { return has_distances_; }
  std::vector<float> read_distances();

 private:
  friend struct VectorHeads;

  uint64_t stored_row_bytes() const { return uint64_t{dim_} * element_bytes(stored_element_); }
  void seek(uint64_t at);
  void read_bytes(uint64_t at, void* to, size_t bytes);
  void read_packed(uint64_t first, uint64_t count, std::byte* out);
  void read_headed(uint64_t first, uint64_t count, std::byte* out);
  void read_as_f32(uint64_t first, uint64_t count, std::byte* out);

  std::string path_;
  File file_;
  uint64_t size_ = 0;
  int32_t element_ = 0;
  int32_t stored_element_ = 0;
  uint64_t rows_ = 0;
  uint32_t dim_ = 0;
  uint64_t data_at_ = 0;   // where the first row starts
  uint64_t row_head_ = 0;  // bytes before the values of each row
  bool has_distances_ = false;
};

// Reads a file of vectors whole, and refuses one of ids.
Vectors read_vectors(const std::string& path);

// Writes a file row by row under a name of its own, and gives it its real name in finish(): an
// interrupted program leaves no half of a file behind, and a file that had the name is whole until the new
// one is. All members throw VectorFileError.
class VectorWriter {
 public:
  // Standard output has to be told beforehand how many rows come; files need not.
  VectorWriter(const std::string& path, int32_t element, uint32_t dim,
               std::optional<uint64_t> rows_to_come = {});
  ~VectorWriter();
  VectorWriter(const VectorWriter&) = delete;
  VectorWriter& operator=(const VectorWriter&) = delete;

  // Adds `count` packed rows.
  void append(const void* rows, uint64_t count);
  // Adds bytes behind the last row.
  void append_tail(const void* from, uint64_t bytes);
  void finish();

 private:
  void open_part();
  void write_head(uint64_t rows);
  void write(const void* from, uint64_t bytes);
  std::string shown_name() const;
  [[noreturn]] void fail() const;

  std::string path_;
  std::string real_path_;  // where links lead
  std::string part_path_;  // empty: standard output
  std::string ending_;
  File file_;
  int32_t element_;
  uint32_t dim_;
  uint64_t rows_ = 0;
  std::optional<uint64_t> rows_to_come_;
};

// The element that files with this name's ending hold; 0 for .npy, which holds any. Throws
// VectorFileError for other endings.
int32_t element_of_name(const std::string& path);

// Reads a list of ids: [rows] or [rows, 1] numbers of a .npy, .ibin or .u64bin file. Throws VectorFileError, for a
// negative one too.
std::vector<uint64_t> read_ids(const std::string& path);

// True neighbours of some queries.
struct GroundTruth {
  uint64_t queries = 0;
  uint32_t k = 0;
  std::vector<int32_t> ids;      // [queries, k]; -1 where there are fewer than k rows
  std::vector<float> distances;  // [queries, k], or empty
};

// Both throw VectorFileError. Files are written as .ibin with distances, or .ivecs without.
GroundTruth read_ground_truth(const std::string& path);
void write_ground_truth(const std::string& path, const GroundTruth& truth);

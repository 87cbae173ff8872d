// vector_file.h: reads vectors from the file formats in common use.
//
//   .fbin .f16bin .i8bin .u8bin   uint32 rows, uint32 dim, then rows x dim values
//   .fvecs .bvecs                 for each row int32 dim, then dim values (float, uint8)
//   .npy                          NumPy: a C-ordered array [rows, dim] of f4, f2, i1 or u1
//
// All are little endian. A file is read whole and checked first: nothing that it says about itself
// is believed until its size agrees, and no memory is taken before that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ann.h"

// What is wrong with a file, and where: "rows.fbin: at byte 4: dim is 0; expected 1 to 32768".
class VectorFileError : public std::runtime_error {
 public:
  // For a fault at one place of the file.
  VectorFileError(const std::string& path, uint64_t offset, const std::string& found,
                  const std::string& expected)
      : std::runtime_error(path + ": at byte " + std::to_string(offset) + ": " + found +
                           "; expected " + expected) {}
  // For a fault of the file as a whole.
  VectorFileError(const std::string& path, const std::string& text)
      : std::runtime_error(path + ": " + text) {}
};

// Vectors in memory, packed row after row.
struct Vectors {
  int32_t element = 0;  // ANN_F32, ANN_F16, ANN_I8 or ANN_U8
  uint64_t rows = 0;
  uint32_t dim = 0;
  std::vector<std::byte> data;

  uint64_t row_bytes() const;

  // A view of `count` rows from `first` on, for calls of ann.h; valid as long as this object.
  ann_matrix view(uint64_t first, uint64_t count) const;
};

// Bytes of one value, and its name as "f32".
uint32_t element_bytes(int32_t element);
const char* element_name(int32_t element);

// Reads a file; its name's ending says how. Throws VectorFileError.
Vectors read_vectors(const std::string& path);

// neighbour_file.h: neighbours of queries, with ids of 64 bits, as files hold them.
//
//   .npy     u8 [queries, k], 2^64 - 1 where there are fewer than k; no distances
//   .ibin    as in vector_file.h, with distances; ids of 31 bits
//   .u64bin  the same with ids of 64 bits
//   .ivecs   row by row, no distances; ids of 31 bits
//
// Row numbers of .npy are read in any width that vector_file.h knows.
#pragma once

#include <string>

#include "handles.h"
#include "vector_file.h"

// Throws VectorFileError. `distances` is empty where the file has none.
Neighbours read_neighbours(const std::string& path);

// Opens its file when it is made, which is before the search, and throws VectorFileError if that or the
// writing fails.
class NeighbourWriter {
 public:
  NeighbourWriter(const std::string& path, uint64_t queries, uint32_t k);

  // Throws where an id of the index is too wide for the format.
  void check_ids(const ann_index* index) const;
  void check_ids(const std::vector<uint64_t>& ids) const;
  void write(const Neighbours& found);

 private:
  void append_narrow(const Neighbours& found);

  std::string path_;
  int32_t element_;
  VectorWriter writer_;
};

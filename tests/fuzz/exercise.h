// Using an index that a file gave: everything that a caller may ask of it, and what must hold of the
// answers whatever the file said.
#pragma once

#include <cstdint>
#include <vector>

#include "ann.h"
#include "storage/format.h"

namespace gannet::fuzz {

/// What the bytes of a file say about the answers that may come.
struct FileContent {
  format::Header header;
  std::vector<uint64_t> ids;  // by row; empty: ids are row numbers
  std::vector<uint8_t> rows;  // [rows, row_stride]
  bool only_known = true;     // a save gives the same bytes back

  bool has_id(uint64_t id) const;
};

/// Of a file whose header and table were accepted.
FileContent content_of(const std::vector<uint8_t>& file);

/// Everything that an index answered, to be compared with what it answers later.
struct Record {
  std::vector<uint8_t> bytes;
  bool met_damage = false;  // a call answered ANN_CORRUPT

  bool operator==(const Record&) const = default;
};

/// Asks for neighbours, rows, graph and its measures. `checked`: the file was checked in full, so no
/// call may meet damage, and ids are distinct.
Record exercise(const ann_index* index, const FileContent& content, bool checked);

/// Saves to memory.
ann_status save_to(const ann_index* index, uint32_t threads, std::vector<uint8_t>* out);

/// Opens a file in mode FULL and in mode LAZY, exercises both, saves, opens what was saved, and
/// compares. Returns the verdict of FULL.
ann_status open_and_exercise(const std::vector<uint8_t>& file, uint32_t threads);

}  // namespace gannet::fuzz

// A legal file, written straight from the specification: any shape, any values that it allows.
//
// The product's own save makes files of indexes that a build can make. A hostile sender does not stop
// there, so these files take every metric, element, kind of code and optional section, and values that
// agree with each other no more than the specification demands.
#pragma once

#include <cstdint>
#include <vector>

#include "input.h"
#include "storage/format.h"

namespace gannet::fuzz {

struct FileShape {
  format::Header header = {};  // its content, from metric on
  uint32_t curves = 0;
  uint64_t queries = 0;
  uint32_t slack_curves = 0;
  uint32_t device_curves = 0;
  uint32_t first_curves = 0;
  uint32_t covering_heads = 0;
  uint32_t covering_curves = 0;
  uint32_t projected_width = 0;
  uint32_t half_bytes = 0;
  uint32_t unknown_sections = 0;
  uint64_t values_seed = 0;
};

/// A shape that check_ranges of the reader accepts. `large`: may have a section of several chunks.
FileShape read_shape(Input& input, bool large);

/// The whole file, sums and tail included.
std::vector<uint8_t> make_file(const FileShape& shape);

}  // namespace gannet::fuzz

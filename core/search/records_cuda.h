// Queries that lie on a CUDA device, made records as a search there takes them: byte for byte those
// that Dataset::prepare makes on the CPU.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

struct RecordArgs {
  const uint8_t* queries;  // [count, query_stride] the caller's, at any address
  uint8_t* records;        // [count, record_stride] values with zeros behind, all zeros where one is not
                           // finite; with room behind `value_bytes` the length, a double; or null
  double* norms;           // [count] the lengths, or null
  uint8_t* usable;         // [count] 1, or 0 where a value is not finite
  uint64_t query_stride;   // bytes
  uint32_t record_stride;  // bytes, a multiple of 16
  uint32_t value_bytes;    // bytes, likewise
  uint32_t dim;
  uint32_t count;
  int32_t element;  // of the queries
  uint8_t flip;     // xored with every byte of records that hold elements
  bool aligned;     // every query starts on a multiple of its element's size
  bool scaled;      // for cosine: float queries are brought into range, lengths are measured
  bool as_floats;   // records hold floats, else the elements
};

void start_records(const RecordArgs& args, const Stream& stream);

}  // namespace gannet::cuda

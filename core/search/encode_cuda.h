// The codes of queries, made on a CUDA device: byte for byte those of Codes::encode_query.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

struct EncodeArgs {
  const uint8_t* queries;  // [count, query_stride] prepared values: f32 for float rows, else the element;
                           // for cosine the length, a double, `value_bytes` from there
  const float* centre;     // [columns]
  uint8_t* codes;          // [count, code_stride]
  uint32_t query_stride;   // bytes
  uint32_t value_bytes;    // bytes
  uint32_t code_stride;    // bytes
  uint32_t count;
  uint32_t dim;
  uint32_t columns;  // of a code: dim, and for inner product the extra ones
  int32_t metric;
  float inverse_step;
};

/// `element` is that of the rows; `wide` codes are floats.
void start_encode(const EncodeArgs& args, int32_t element, bool wide, const Stream& stream);

}  // namespace gannet::cuda

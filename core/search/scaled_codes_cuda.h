// The codes of queries for codes with a scale for each row, made on a CUDA device (dataset/scaled_codes.h has
// the layout): by a kernel for a batch whose warps walk, or by the block that walks for a query
// (search/encode_scaled_steps.cuh).
//
// Of the walks one list and two lists take them (search/walk_cuda.cu, search/walk_block_cuda.cu). CAGRA walks
// by the plain codes that every index has, or by rows as stored.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

struct EncodeScaledArgs {
  const uint8_t* queries;  // [count, query_stride] prepared values: f32 for float rows, else the element
  const float* centres;    // [cells + 1, dim], the first zeros, by inner product
  const float* centre;  // [dim] of wide codes, whose values are coded, by squared L2 about one cell; or null
  uint8_t* codes;       // [count, code_bytes]
  uint32_t query_stride;  // bytes
  uint32_t code_bytes;    // of a query: ScaledView::query_bytes()
  uint32_t row_stride;    // bytes of a row's code, and so many digits a query has twice
  uint32_t terms_at;
  uint32_t count;
  uint32_t dim;
  uint32_t cells;
  int32_t most;        // the largest |V|
  float inverse_step;  // of wide codes
};

/// Codes queries by inner product as ScaledCodes::encode_query does, up to V, and says in the third word
/// where the terms of a row stand. `element` is that of the rows.
void start_encode_scaled(const EncodeScaledArgs& args, int32_t element, const Stream& stream);

}  // namespace gannet::cuda

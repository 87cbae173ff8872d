// Codes with a scale for each row on a CUDA device: the codes of queries, and the walks that compare by them.
//
// Two of the walks take them: one list, and two lists of a warp (search/walk_cuda.cu). Blocks and CAGRA walk by the
// plain codes that every index has.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/walk_cuda.h"

namespace gannet::cuda {

struct EncodeScaledArgs {
  const uint8_t* queries;  // [count, query_stride] prepared values: f32 for float rows, else the element
  const float* centres;    // [cells + 1, dim], the first zeros
  uint8_t* codes;          // [count, code_bytes]
  uint32_t query_stride;   // bytes
  uint32_t code_bytes;     // of a query: ScaledView::query_bytes()
  uint32_t row_stride;     // bytes of a row's code, and so many digits a query has twice
  uint32_t terms_at;
  uint32_t count;
  uint32_t dim;
  uint32_t cells;
  int32_t most;  // the largest |V|
};

/// Codes queries by inner product as ScaledCodes::encode_query does, up to V, and says in the third word where the
/// terms of a row stand. `element` is that of the rows.
void start_encode_scaled(const EncodeScaledArgs& args, int32_t element, const Stream& stream);

/// start_one_list() and start_two_lists() of a warp, of an index by inner product: args.codes are rows with a scale
/// each, args.queries as start_encode_scaled() has made them. Walks start at the entry points.
void start_scaled_one_list(int32_t device, const WalkArgs& args, const Stream& stream);
void start_scaled_two_lists(int32_t device, const WalkArgs& args, const Stream& stream);

}  // namespace gannet::cuda

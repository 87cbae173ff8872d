// A level's functions as a table. Each kernels_LEVEL.cpp includes this where all of them are defined, since
// the names below are those of its own copies, compiled with its own instructions.
#pragma once

#include "distance/kernels.h"
#include "distance/row_loops.h"

namespace gannet {
namespace {  // one for each file, of that file's functions

constexpr Kernels table_of_level(const char* name, decltype(Kernels::code_tile) tile) {
  return {
      name,
      {nullptr, each_row<float, float, float_distance<ANN_F32, false>>,
       each_row<float, float, float_distance<ANN_F16, false>>,
       each_row<float, float, float_distance<ANN_BF16, false>>,
       each_row<int8_t, int32_t, integer_distance<int8_t, false>>,
       each_row<uint8_t, int32_t, integer_distance<uint8_t, false>>},
      {nullptr, each_row<float, float, float_distance<ANN_F32, true>>,
       each_row<float, float, float_distance<ANN_F16, true>>,
       each_row<float, float, float_distance<ANN_BF16, true>>,
       each_row<int8_t, int32_t, integer_distance<int8_t, true>>,
       each_row<uint8_t, int32_t, integer_distance<uint8_t, true>>},
      {nullptr, widen<ANN_F32>, widen<ANN_F16>, widen<ANN_BF16>},
      bound_code,
      within_bound,
      code_gather,
      code_pack,
      tile,
      float_pack,
      float_tile,
      residual_code,
      residual_line,
      nearest_in_rows,
      nearest_in_columns,
      show_nearest,
      thin_out,
      show_near,
      next_near,
      bound_within,
      sort_keys,
      count_detours,
  };
}

}  // namespace
}  // namespace gannet

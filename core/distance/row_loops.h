// The loop over rows that all levels share, around a distance of two vectors.
#pragma once

#include "distance/kernels.h"

namespace gannet {

/// One loop over the rows of a kernel, with the next rows requested ahead: gathered rows are where
/// the time goes, and two rows ahead hide about the latency of one.
template <class Query, class Value, Value (*kDistance)(const Query*, const void*, uint32_t)>
void each_row(const void* query, const RowsView& rows, const uint32_t* ids, uint32_t count, float* out) {
  const Query* vector = static_cast<const Query*>(query);
  for (uint32_t i = 0; i < count; ++i) {
    if (ids != nullptr && i + 2 < count) {
      const uint8_t* ahead = rows.row(ids[i + 2]);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + 64);
    }
    out[i] = static_cast<float>(kDistance(vector, rows.row(ids != nullptr ? ids[i] : i), rows.dim));
  }
}

}  // namespace gannet

// The last step of a search by codes on a CUDA device: the rows that a walk found, compared with the
// query as stored, and the k nearest of them. Distances are those of Dataset::distances, bit for bit.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/answers_cuda.h"

namespace gannet::cuda {

/// Rows of a query that can be compared.
inline constexpr uint32_t kRerankMax = 2048;

struct RerankArgs {
  const uint8_t* rows;         // [rows, row_stride] as stored, zeros behind each
  const float* norms;          // [rows] lengths, for cosine
  const uint8_t* queries;      // [count, query_stride] f32 for float rows, else the element, zeros behind;
                               // for cosine the length, a double, `value_bytes` from there
  const uint32_t* candidates;  // [count, kept] distinct rows; kNoRow where there are no more
  uint32_t* out_rows;          // [count, k] nearest first, by (distance, row); kNoRow at the end
  float* out_distances;        // [count, k] +infinity at the end
  uint32_t row_stride;         // bytes, a multiple of 16
  uint32_t query_stride;       // likewise
  uint32_t value_bytes;        // likewise
  uint32_t dim;
  uint32_t count;
  uint32_t kept;  // at most kRerankMax
  uint32_t k;     // at most kept
  int32_t metric;
};

/// With the ids of `answers` null rows and distances are written, else the answers where a caller wants them.
void start_rerank(const RerankArgs& args, const AnswerArgs& answers, int32_t element, const Stream& stream);

}  // namespace gannet::cuda

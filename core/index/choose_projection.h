// Which projection the walks of the CPU compare, if any (dataset/projected_codes.h).
//
// A search compares the first rows by code as stored, of 10 answers the first 26. A projection serves if its order
// keeps the true 10 among the first 20 nearly as codes of all columns do, also for the tenth of the rows that fares
// worst: what it loses there no longer walk finds. Share of the true 10 among the first 10 and 26 of GIST by 64 bytes
// .745 and .974, by 128 .861 and .998, by 192 .901 and .9997; of texts of 384 columns by 96 .495 and .697.
//
// One that does not serve walks may still find candidates for k-NN lists, which are compared by all columns then
// (knn/cells.h): 100,000 glyphs of 784 columns have .986 of the true 10 among the first 20 by 192 bytes, and lists take
// 7.9 instead of 23.8 s of thread time (AVX2), the whole build 13.8 instead of 29.0.
#pragma once

#include <optional>

#include "base/execution.h"
#include "dataset/codes.h"

namespace gannet {

struct Projection {
  std::optional<ProjectedCodes> codes;  // none serves anything
  CodeOrder order;
  bool serves_walks = false;  // else lists alone
};

/// The narrowest projection that serves walks, by L2 and cosine, or else the widest tried if it serves lists.
Projection choose_projection(const Dataset& dataset, const Codes& codes, uint64_t seed,
                             const Execution& execution);

/// Bytes that choosing takes at most beside the codes chosen, of codes of `stride` bytes.
uint64_t choose_projection_bytes(uint64_t rows, uint32_t dim, size_t stride, uint32_t threads);

}  // namespace gannet

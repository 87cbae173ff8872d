// CAGRA's searches on a CUDA device: the arguments of the kernels, and the calls that start them.
// search/cagra.h describes the searches.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/cagra.h"
#include "search/walk_counters.h"
#include "segment/row_set.h"

namespace gannet::cuda {

/// The form in which rows are compared: codes of bytes, wide codes or rows as stored.
enum class RowKind { kBytes, kF32, kF16, kBf16 };

/// The kernel for a kind: kernel.operator()<kind>(). A lambda is to capture, or it would be a function of no
/// kind.
template <class Kernel>
auto for_row_kind(RowKind kind, const Kernel& kernel) {
  switch (kind) {
    case RowKind::kBytes:
      return kernel.template operator()<RowKind::kBytes>();
    case RowKind::kF32:
      return kernel.template operator()<RowKind::kF32>();
    case RowKind::kF16:
      return kernel.template operator()<RowKind::kF16>();
    default:
      return kernel.template operator()<RowKind::kBf16>();
  }
}

struct CagraArgs {
  const uint8_t* rows;     // [row_count, stride] that are compared
  const float* norms;      // [row_count] lengths, for cosine of stored rows
  Adjacency graph;         // fixed rows
  const uint8_t* queries;  // [count, query_stride] codes, or f32; for cosine of stored rows the length, a
                           // double, `value_bytes` from there
  uint32_t* out_rows;      // [count, kept] nearest first; kNoRow where there are no more
  float* out_distances;    // [count, kept] of codes; null where rows are compared once more
  WalkCounters* counters;
  RowSetView removed;  // rows that are walked through and never answered
  RowSetView hidden;   // rows past which `graph` leads, where no walk starts either
  uint32_t* tables;    // [blocks, 2^hash_bits] of standard single-CTA searches, else null
  uint64_t* claims;    // [groups, 2^hash_bits] of multi-CTA searches
  uint64_t* found;     // [groups, lists, list_size] their lists at the end
  uint32_t* progress;  // [groups, lists] zero before; how far each CTA has come
  uint32_t row_count;
  uint32_t stride;        // bytes, a multiple of 16
  uint32_t columns;       // of floats
  uint32_t query_stride;  // bytes
  uint32_t query_words;   // that are hashed
  uint32_t value_bytes;
  uint32_t count;  // of queries
  uint32_t kept;
  uint32_t lists;
  uint32_t list;       // M
  uint32_t list_size;  // the power of two from M on, at least 32
  uint32_t width;      // p
  uint32_t iterations_max;
  uint32_t hash_bits;
  uint32_t reset;
  uint32_t team;
  uint32_t groups;
  int32_t metric;  // of stored rows; L2 for codes
  int32_t stored;  // 1: rows as stored
};

/// One of the kernels, for an index and a plan, with the device memory that it needs.
struct CagraLaunch {
  void (*function)(CagraArgs) = nullptr;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  uint32_t blocks = 0;       // of the grid
  uint32_t groups = 0;       // of CTAs of a query
  uint64_t table_bytes = 0;  // of device memory
  uint64_t found_bytes = 0;
  uint64_t progress_bytes = 0;

  uint64_t scratch_bytes() const { return table_bytes + found_bytes + progress_bytes; }
};

/// Errors: ANN_LIMIT where the CTAs of one query do not run at the same time on the device.
CagraLaunch choose_cagra(int32_t device, RowKind kind, const CagraPlan& plan, uint32_t degree,
                         uint32_t count);

/// The device memory of a launch. Where there is not enough, the launch becomes one that answers fewer queries
/// at a time, down to one; answers are the same. Throws ANN_DEVICE_NO_MEMORY where even that takes too much.
DeviceArray<uint8_t> take_scratch(const CagraPlan& plan, CagraLaunch* choice, const Stream& stream);

/// `scratch` is device memory, [scratch_bytes()], a multiple of 16. Fills in the fields that the plan decides.
void start_cagra(const CagraLaunch& choice, const CagraPlan& plan, CagraArgs args, uint8_t* scratch,
                 const Stream& stream);

// The kernels, one file each.
void (*single_cta_kernel(RowKind kind))(CagraArgs);
void (*multi_cta_kernel(RowKind kind))(CagraArgs);
uint32_t single_cta_threads(const CagraPlan& plan, uint32_t degree);
uint32_t single_cta_shared_bytes(const CagraPlan& plan, uint32_t degree);
uint32_t multi_cta_threads();
uint32_t multi_cta_shared_bytes(const CagraPlan& plan, uint32_t degree);

}  // namespace gannet::cuda

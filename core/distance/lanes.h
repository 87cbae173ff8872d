// Sixteen lanes as the vectors that a level has: the compiler's vectors, for loops that read alike on all of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "distance/kernels.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

#if defined(__AVX512F__)
constexpr uint32_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr uint32_t kVectorBytes = 32;
#else
constexpr uint32_t kVectorBytes = 16;
#endif
using FloatLanes = float __attribute__((vector_size(kVectorBytes)));
using IntLanes = int32_t __attribute__((vector_size(kVectorBytes)));
using WordLanes = uint32_t __attribute__((vector_size(kVectorBytes)));
using ByteLanes = uint8_t __attribute__((vector_size(kVectorBytes / 4)));

constexpr uint32_t kVectorLanes = kVectorBytes / sizeof(float);
constexpr uint32_t kLaneVectors = kPackRows / kVectorLanes;  // of sixteen lanes

/// A vector from memory that need not be aligned, and back.
template <class Vector>
inline void load_lanes(Vector& lanes, const void* from) {
  std::memcpy(&lanes, from, sizeof lanes);
}
template <class Vector>
inline void store_lanes(const Vector& lanes, void* to) {
  std::memcpy(to, &lanes, sizeof lanes);
}

}  // namespace
}  // namespace gannet

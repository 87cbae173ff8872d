// Which level of distance loops this process uses.

#include "distance/kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/environment.h"

namespace gannet {
namespace {

#if defined(__x86_64__)
/// Clang knows "f16c" for __builtin_cpu_supports from version 15 on only. Whether the system keeps the
/// wide registers follows from the test for AVX2.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const Kernels& choose() {
  const char* wanted = environment_simd();
  const auto allowed = [wanted](const char* level) {
    // A level is allowed unless a lower one is named. Unknown names change nothing.
    static constexpr const char* kOrder[] = {"portable", "avx2", "avx512", "avx512vnni"};
    int wanted_rank = 3;
    int level_rank = 0;
    for (int rank = 0; rank < 4; ++rank) {
      if (wanted != nullptr && std::strcmp(wanted, kOrder[rank]) == 0) wanted_rank = rank;
      if (std::strcmp(level, kOrder[rank]) == 0) level_rank = rank;
    }
    return level_rank <= wanted_rank;
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  if (has_avx512 && __builtin_cpu_supports("avx512vnni") && allowed("avx512vnni")) return kAvx512VnniKernels;
  if (has_avx512 && allowed("avx512")) return kAvx512Kernels;
  if (has_avx2 && allowed("avx2")) return kAvx2Kernels;
#elif defined(__aarch64__)
  if (wanted == nullptr || std::strcmp(wanted, "portable") != 0) return kNeonKernels;
#endif
  (void)allowed;
  return kPortableKernels;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace gannet

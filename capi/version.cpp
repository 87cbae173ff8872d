// ann.h, sections 1 and 2: versions and names of statuses.

#include "ann.h"
#include "distance/kernels.h"

#define GANNET_TEXT_OF(value) #value
#define GANNET_TEXT(value) GANNET_TEXT_OF(value)

#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
#define GANNET_CUDA_TEXT GANNET_CUDA_BUILD
#else
#define GANNET_CUDA_TEXT "no CUDA"
#endif

#if defined(__clang__)
#define GANNET_COMPILER "clang " __clang_version__
#else
#define GANNET_COMPILER "gcc " __VERSION__
#endif

#define GANNET_BUILD_INFO(level)                                                               \
  "gannet " GANNET_TEXT(ANN_VERSION_MAJOR) "." GANNET_TEXT(ANN_VERSION_MINOR) "." GANNET_TEXT( \
      ANN_VERSION_PATCH) ", " GANNET_COMPILER ", " GANNET_CUDA_TEXT ", " level

extern "C" {

const char* ann_version(void) {
  return GANNET_TEXT(ANN_VERSION_MAJOR) "." GANNET_TEXT(ANN_VERSION_MINOR) "." GANNET_TEXT(ANN_VERSION_PATCH);
}

uint32_t ann_abi_version(void) { return ANN_ABI_VERSION; }

const char* ann_build_info(void) {
  const gannet::Kernels* chosen = &gannet::kernels();
#if defined(__x86_64__)
  if (chosen == &gannet::kAvx512VnniKernels) return GANNET_BUILD_INFO("avx512vnni");
  if (chosen == &gannet::kAvx512Kernels) return GANNET_BUILD_INFO("avx512");
  if (chosen == &gannet::kAvx2Kernels) return GANNET_BUILD_INFO("avx2");
#elif defined(__aarch64__)
  if (chosen == &gannet::kNeonKernels) return GANNET_BUILD_INFO("neon");
#endif
  (void)chosen;
  return GANNET_BUILD_INFO("portable");
}

const char* ann_status_name(ann_status status) {
  switch (status) {
    case ANN_OK:
      return "ANN_OK";
    case ANN_INVALID_ARGUMENT:
      return "ANN_INVALID_ARGUMENT";
    case ANN_LIMIT:
      return "ANN_LIMIT";
    case ANN_UNSUPPORTED:
      return "ANN_UNSUPPORTED";
    case ANN_NOT_FINITE:
      return "ANN_NOT_FINITE";
    case ANN_STATE:
      return "ANN_STATE";
    case ANN_BUSY:
      return "ANN_BUSY";
    case ANN_NO_MEMORY:
      return "ANN_NO_MEMORY";
    case ANN_DEVICE_NO_MEMORY:
      return "ANN_DEVICE_NO_MEMORY";
    case ANN_NO_DEVICE:
      return "ANN_NO_DEVICE";
    case ANN_DEVICE_LOST:
      return "ANN_DEVICE_LOST";
    case ANN_IO:
      return "ANN_IO";
    case ANN_CORRUPT:
      return "ANN_CORRUPT";
    case ANN_VERSION:
      return "ANN_VERSION";
    case ANN_CANCELLED:
      return "ANN_CANCELLED";
    case ANN_DEADLINE:
      return "ANN_DEADLINE";
    case ANN_INTERNAL:
      return "ANN_INTERNAL";
    default:
      return "unknown status";
  }
}

}  // extern "C"

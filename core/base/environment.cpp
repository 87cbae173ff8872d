#include "base/environment.h"

#include <cstdlib>

namespace gannet {

const char* environment_simd() { return std::getenv("GANNET_SIMD"); }

const char* environment_backend() { return std::getenv("GANNET_BACKEND"); }

}  // namespace gannet

// The two environment variables that the library knows, read here and nowhere else.
#pragma once

namespace gannet {

/// GANNET_SIMD: the highest instruction-set level to use ("portable", "avx2", "avx512",
/// "avx512vnni"); null if not set.
const char* environment_simd();

/// GANNET_BACKEND: "cpu" or "cuda"; null if not set.
const char* environment_backend();

}  // namespace gannet

// DEMAND: what must hold in every execution. If it does not, the process says so and aborts, which
// the fuzzer and the replay driver both take for a finding.
#pragma once

#include <cstdio>
#include <cstdlib>

#define DEMAND(condition, ...)                                                       \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: demanded: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                             \
      std::fputc('\n', stderr);                                                      \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)

// Error: the one exception of the core.
//
// A function that cannot do its work throws an Error with the status that the C caller will get and
// a text that names parameter, value and range. The text lives in a fixed array, so that reporting
// that memory has run out takes no memory.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "ann.h"

namespace gannet {

inline constexpr uint64_t kNoPlace = UINT64_MAX;

struct Error : std::exception {
  ann_status status = ANN_INTERNAL;
  uint64_t row = kNoPlace;
  uint64_t column = kNoPlace;
  int32_t os_error = 0;
  int32_t cuda_error = 0;
  char message[256] = {};

  const char* what() const noexcept override { return message; }
};

/// Throws an Error whose text is formatted as by printf.
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(ann_status status, const char* format,
                                                                    ...) {
  Error error;
  error.status = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error.message, sizeof error.message, format, arguments);
  va_end(arguments);
  throw error;
}

/// The refusal of one value of a matrix, with its place.
[[noreturn]] inline void fail_at(ann_status status, uint64_t row, uint64_t column, const char* what) {
  Error error;
  error.status = status;
  error.row = row;
  error.column = column;
  std::snprintf(error.message, sizeof error.message, "row %llu, column %llu %s",
                static_cast<unsigned long long>(row), static_cast<unsigned long long>(column), what);
  throw error;
}

/// The refusal of the operating system, `error` its negative errno, while `step` was done.
[[noreturn]] inline void fail_system(int64_t error, const char* step, const char* path) {
  Error failure;
  failure.status = error == -ENOMEM ? ANN_NO_MEMORY : ANN_IO;
  failure.os_error = static_cast<int32_t>(-error);
  char reason[96];
  std::snprintf(failure.message, sizeof failure.message, "%s: %s (errno %d): %.120s", step,
                ::strerror_r(failure.os_error, reason, sizeof reason), failure.os_error, path);
  throw failure;
}

[[noreturn]] inline void fail_not_finite(uint64_t row, uint64_t column) {
  fail_at(ANN_NOT_FINITE, row, column, "is NaN or infinite; every value must be finite");
}

}  // namespace gannet

// The boundary between C callers and the core: handles, sized structs and the fence.
//
// Every entry point runs its body through guarded(), which turns exceptions into a status and an
// ann_error. Structs of the caller are read through Sized, which knows how much of them there is.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "ann.h"
#include "backend/devices.h"
#include "base/error.h"
#include "base/execution.h"
#include "base/files.h"
#include "dataset/dataset.h"
#include "index/index.h"

// Handles begin with a tag, so that a handle of another kind, or memory that is none, is noticed.
struct ann_context {
  static constexpr uint64_t kTag = 0x0174786574'6e6f63;
  uint64_t tag = kTag;
  gannet::Allocator memory;
  uint32_t threads_max = 0;
  gannet::Files* files = &gannet::system_files();  // tests put another in its place
};

struct ann_monitor {
  static constexpr uint64_t kTag = 0x01726f7469'6e6f6d;
  uint64_t tag = kTag;
  gannet::Monitor monitor;
};

struct ann_index {
  static constexpr uint64_t kTag = 0x0178656469'6e6e61;
  uint64_t tag = kTag;
  gannet::Index index;
  gannet::Files* files = &gannet::system_files();
};

namespace gannet {

inline void check_given(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(ANN_INVALID_ARGUMENT, "%s is null", name);
}

/// The handle, if it is one.
template <class Handle>
Handle& checked(Handle* handle, const char* name) {
  check_given(handle, name);
  if (handle->tag != std::remove_const_t<Handle>::kTag)
    fail(ANN_INVALID_ARGUMENT, "%s is not a handle of its kind, or was freed", name);
  return *handle;
}

/// A copy of a struct of the caller, zeros where it is older than the library. `needed` bytes must
/// be there. Null gives zeros if `optional`.
template <class T>
T read_struct(const T* given, const char* name, size_t needed, bool optional) {
  T known = {};
  known.struct_size = sizeof(T);
  if (given == nullptr && optional) return known;
  check_given(given, name);
  // Fields that came later may have given the struct a larger alignment than the caller's has.
  uint32_t size = 0;
  std::memcpy(&size, static_cast<const void*>(given), sizeof size);
  if (size < needed)
    fail(ANN_INVALID_ARGUMENT, "%s.struct_size is %u, at least %zu are needed (use its _INIT macro)", name,
         size, needed);
  if (size > 65536) fail(ANN_INVALID_ARGUMENT, "%s.struct_size is %u, at most 65536 are allowed", name, size);
  // Whatever the version, a struct is as long as a multiple of its alignment. Any other size cuts a
  // field, and half a pointer must not be followed. (So a struct that gets a larger alignment than it
  // had must have had a size that is a multiple of it.)
  if (size < sizeof(T) && size % alignof(T) != 0)
    fail(ANN_INVALID_ARGUMENT, "%s.struct_size is %u, which cuts a field (use its _INIT macro)", name, size);
  std::memcpy(&known, static_cast<const void*>(given), std::min<size_t>(size, sizeof(T)));
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t at = sizeof(T); at < size; ++at) {
    if (bytes[at] != 0)
      fail(ANN_INVALID_ARGUMENT, "%s has a value at byte %zu that this version (%zu bytes) does not know",
           name, at, sizeof(T));
  }
  return known;
}

/// Checks that a struct to be written to is there.
template <class T>
void check_output(const T* out, const char* name) {
  read_struct(out, name, sizeof(uint32_t) * 2, false);
}

/// Writes as much of `value` as the caller's struct holds.
template <class T>
void write_struct(const T& value, T* out) {
  const uint32_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
}

/// Makes a text one line of whole UTF-8: it may contain a path, which may be anything, cut anywhere.
inline void make_one_line(char* text) noexcept {
  unsigned char* at = reinterpret_cast<unsigned char*>(text);
  while (*at != 0) {
    // Bytes that follow the first of a character, and the least and most values of the second of them.
    const unsigned char first = *at;
    const int more = first >= 0xc2 && first <= 0xdf   ? 1
                     : (first & 0xf0) == 0xe0         ? 2
                     : first >= 0xf0 && first <= 0xf4 ? 3
                                                      : 0;
    const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    int seen = 0;
    while (seen < more && at[seen + 1] >= (seen == 0 ? least : 0x80) &&
           at[seen + 1] <= (seen == 0 ? most : 0xbf))
      ++seen;
    const bool control = first < 0x20 || first == 0x7f || (first == 0xc2 && seen == 1 && at[1] < 0xa0) ||
                         (first == 0xe2 && seen == 2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9));
    const bool whole = first < 0x80 || (more > 0 && seen == more);
    if (!whole && at[seen + 1] == 0) {  // the text was cut within its last character
      *at = 0;
      return;
    }
    if (control || !whole) {
      for (int i = 0; i <= (whole ? more : 0); ++i) at[i] = '?';
    }
    at += whole ? more + 1 : 1;
  }
}

inline void report_error(const Error& error, ann_error* out) noexcept {
  if (out == nullptr || out->struct_size < offsetof(ann_error, row)) return;
  ann_error filled = {};
  filled.struct_size = out->struct_size;
  filled.status = error.status;
  filled.row = error.row;
  filled.column = error.column;
  filled.os_error = error.os_error;
  filled.cuda_error = error.cuda_error;
  std::memcpy(filled.message, error.message, sizeof filled.message);
  make_one_line(filled.message);
  write_struct(filled, out);
}

inline ann_status report_plain(ann_status status, const char* text, ann_error* out) noexcept {
  Error error;
  error.status = status;
  std::snprintf(error.message, sizeof error.message, "%s", text);
  report_error(error, out);
  return status;
}

/// While this lives, pthread_cancel waits. It would unwind the thread from wherever it waits or reads,
/// through code that is noexcept, which ends the process. A cancellation meanwhile takes effect at the
/// caller's next point of cancellation, or here for a thread that may be cancelled anywhere.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
  ~Uncancelled() noexcept(false) { pthread_setcancelstate(state_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;

 private:
  int state_ = PTHREAD_CANCEL_ENABLE;
};

template <class Body>
ann_status run_guarded(ann_error* error, const Body& body) noexcept {
  try {
    body();
    return report_plain(ANN_OK, "", error);
  } catch (const Error& failure) {
    report_error(failure, error);
    return failure.status;
  } catch (const std::bad_alloc&) {
    return report_plain(ANN_NO_MEMORY, "memory was refused by operator new", error);
  } catch (const std::exception& failure) {
    return report_plain(ANN_INTERNAL, failure.what(), error);
  } catch (...) {
    return report_plain(ANN_INTERNAL, "an exception of unknown type", error);
  }
}

/// Runs the body of an entry point; nothing is thrown beyond it.
template <class Body>
ann_status guarded(ann_error* error, const Body& body) {
  const Uncancelled uncancelled;
  return run_guarded(error, body);
}

/// Refuses a number that names no memory space.
inline void check_space(int32_t space, const char* name) {
  if (space != 0 && space < ANN_DEVICE_CUDA)
    fail(ANN_INVALID_ARGUMENT,
         "%s.space is %d, allowed are 0 (host memory) and %d (the first CUDA "
         "device) and more",
         name, space, int{ANN_DEVICE_CUDA});
}

/// The matrix of the caller, checked but for where its memory lies. `name` is the argument's.
inline MatrixView read_matrix(const ann_matrix* given, const char* name) {
  const ann_matrix matrix =
      read_struct(given, name, offsetof(ann_matrix, row_stride) + sizeof(uint64_t), false);
  if (!is_element(matrix.element))
    fail(ANN_INVALID_ARGUMENT, "%s.element is %d, allowed are %d (f32) to %d (u8)", name, matrix.element,
         ANN_F32, ANN_U8);
  check_space(matrix.space, name);
  if (matrix.dim == 0) fail(ANN_INVALID_ARGUMENT, "%s.dim is 0, allowed are 1 to %u", name, ANN_DIM_MAX);
  if (matrix.dim > ANN_DIM_MAX)
    fail(ANN_LIMIT, "%s.dim is %u, allowed are 1 to %u", name, matrix.dim, ANN_DIM_MAX);
  if (matrix.rows > ANN_ROWS_MAX)
    fail(ANN_LIMIT, "%s.rows is %llu, at most %u are allowed", name,
         static_cast<unsigned long long>(matrix.rows), ANN_ROWS_MAX);
  if (matrix.data == nullptr && matrix.rows > 0)
    fail(ANN_INVALID_ARGUMENT, "%s.data is null, but %s.rows is %llu", name, name,
         static_cast<unsigned long long>(matrix.rows));
  const uint64_t packed = uint64_t{matrix.dim} * element_bytes(matrix.element);
  const uint64_t stride = matrix.row_stride == 0 ? packed : matrix.row_stride;
  if (stride < packed)
    fail(ANN_INVALID_ARGUMENT, "%s.row_stride is %llu, a row has %llu bytes", name,
         static_cast<unsigned long long>(stride), static_cast<unsigned long long>(packed));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(stride, matrix.rows, &bytes) || bytes > SIZE_MAX / 2)
    fail(ANN_LIMIT, "%s.row_stride is %llu, with %llu rows that is more than the address space", name,
         static_cast<unsigned long long>(stride), static_cast<unsigned long long>(matrix.rows));
  if (matrix.space != 0) check_cuda_device(matrix.space);
  return {static_cast<const uint8_t*>(matrix.data),
          matrix.rows,
          matrix.dim,
          matrix.element,
          stride,
          matrix.space};
}

/// Up to the last value of the last row: the rest of its stride belongs to no row.
inline uint64_t bytes_of(const MatrixView& matrix) {
  if (matrix.rows == 0) return 0;
  return (matrix.rows - 1) * matrix.stride + uint64_t{matrix.dim} * element_bytes(matrix.element);
}

/// The same of vectors that are read in no stream of the caller, and where their memory lies.
inline MatrixView read_vectors(const ann_matrix* given, const char* name) {
  const MatrixView view = read_matrix(given, name);
  if (!view.on_device()) return view;
  char data_name[64];
  std::snprintf(data_name, sizeof data_name, "%s.data", name);
  const CallerMemory memory = {view.data, bytes_of(view), data_name};
  check_on_device({&memory, 1}, nullptr, view.space);
  if (view.rows > 0) wait_for_default_streams(view.space);
  return view;
}

/// A matrix of the caller in host memory: itself, or a copy of one on a device.
class HostMatrix {
 public:
  HostMatrix(const MatrixView& given, const Execution& execution) : view_(given) {
    if (!given.on_device()) return;
    const uint64_t bytes = uint64_t{given.dim} * element_bytes(given.element);
    copied_ = Array<uint8_t>(execution.memory, checked_product(given.rows, bytes));
    view_.data = copied_.data();
    view_.stride = bytes;
    view_.space = 0;
    if (given.rows > 0)
      fetch_rows(given.data, given.stride, bytes, given.rows, given.space, copied_.data(), execution);
  }
  const MatrixView& view() const { return view_; }

 private:
  MatrixView view_;
  Array<uint8_t> copied_;
};

/// Checks k and recall of a search; the recall with its default filled in.
inline float check_search(uint32_t k, float recall) {
  if (k == 0) fail(ANN_INVALID_ARGUMENT, "k is 0, at least 1 is allowed");
  if (!(recall >= 0 && recall <= 1))
    fail(ANN_INVALID_ARGUMENT, "recall is %g, allowed is more than 0 and at most 1",
         static_cast<double>(recall));
  return recall == 0 ? 0.95f : recall;
}

/// The settings of a context, which may be null.
struct ContextSettings {
  Allocator memory;
  uint32_t threads_max = 0;
  Files* files = &system_files();
};

inline ContextSettings read_context(const ann_context* context) {
  if (context == nullptr) return {};
  const ann_context& given = checked(context, "context");
  return {given.memory, given.threads_max, given.files};
}

/// The snapshot of an index, which must have been built.
inline const Snapshot& snapshot_of(const Index::Call& call) {
  if (call.snapshot == nullptr) fail(ANN_STATE, "the index is not built");
  return *call.snapshot;
}

/// The same as its only segment.
inline const PlacedSegment& placed_of(const Index::Call& call) { return snapshot_of(call).single(); }
inline const Segment& segment_of(const Index::Call& call) { return placed_of(call).segment; }

/// ann_save_params with their defaults.
struct SavePlan {
  uint32_t threads;
  bool sync;
};

inline SavePlan read_save_params(const ann_save_params* given, uint32_t threads_max) {
  const ann_save_params params = read_struct(given, "params", 2 * sizeof(uint32_t), true);
  if (params.sync < ANN_SWITCH_AUTO || params.sync > ANN_OFF)
    fail(ANN_INVALID_ARGUMENT, "params.sync is %d, allowed are 0 to %d", params.sync, ANN_OFF);
  if (params.reserved != 0)
    fail(ANN_INVALID_ARGUMENT, "params.reserved is %d, it must be 0", params.reserved);
  return {thread_count(params.threads, threads_max), params.sync != ANN_OFF};
}

/// The monitor of the caller, which may be null; a new call begins on it.
inline Monitor* begin_monitor(ann_monitor* given) {
  if (given == nullptr) return nullptr;
  Monitor& monitor = checked(given, "monitor").monitor;
  monitor.start();
  return &monitor;
}

}  // namespace gannet

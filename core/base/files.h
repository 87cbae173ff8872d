// Files: every call to the operating system that a save or an open makes, in one table.
//
// The product has one set of these, the system's. Tests put another in its place: one that fails the
// N-th call, ends the process there, or keeps a log from which every state that a power failure may
// leave behind can be made again. Calls answer as the system does, but for errors, which come back as
// negative numbers instead of through errno.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace gannet {

struct FileFacts {
  uint64_t bytes = 0;
  uint32_t mode = 0;      // permission bits
  bool regular = false;
  bool link = false;
};

class Files {
 public:
  virtual ~Files() = default;

  /// A descriptor, or -errno. Never inherited by a program that the process starts.
  virtual int open_to_read(const char* path) = 0;
  /// Makes a file that was not there; follows no link.
  virtual int create(const char* path, uint32_t mode) = 0;
  virtual int open_folder(const char* path) = 0;
  virtual int close(int file) = 0;

  /// Bytes read or written, which may be fewer than asked for, or -errno.
  virtual int64_t read_at(int file, void* data, size_t bytes, uint64_t offset) = 0;
  virtual int64_t write(int file, const void* data, size_t bytes) = 0;

  /// 0 or -errno.
  /// Room for [offset, offset + bytes), which then counts as length.
  virtual int reserve(int file, uint64_t offset, uint64_t bytes) = 0;
  virtual int set_mode(int file, uint32_t mode) = 0;
  virtual int sync(int file) = 0;
  virtual int rename(const char* from, const char* to) = 0;
  virtual int unlink(const char* path) = 0;
  virtual int facts(int file, FileFacts* out) = 0;
  virtual int facts_of_path(const char* path, bool follow, FileFacts* out) = 0;
  /// The path without links, to `out` of `capacity` bytes.
  virtual int resolve(const char* path, char* out, size_t capacity) = 0;

  /// Maps `bytes` of a file to read; null and -errno where the system refuses.
  virtual const void* map(int file, uint64_t bytes, int* error) = 0;
  virtual void unmap(const void* data, uint64_t bytes) = 0;
};

/// Makes a call again while signals interrupt it. One that never gets through is given up as -EINTR,
/// so that nothing hangs; a thousand in a row do not happen where anything else still works.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  for (int again = 0; result == -EINTR && again < 1000; ++again) result = call();
  return result;
}

/// The operating system's.
Files& system_files();

}  // namespace gannet

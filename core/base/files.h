// Files: every call to the operating system that a save or an open makes, in one table.
//
// The product has one set of these, the system's. Tests put another in its place: one that fails the
// N-th call, ends the process there, or keeps a log from which every state that a power failure may
// leave behind can be made again. Calls return the system's results, except errors, which come back as
// negative numbers instead of through errno.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace gannet {

struct FileFacts {
  uint64_t bytes = 0;
  uint32_t mode = 0;  // permission bits
  uint32_t owner = 0;
  uint32_t group = 0;
  uint64_t names = 0;   // links to it
  uint64_t device = 0;  // with `number` one file and no other
  uint64_t number = 0;
  bool regular = false;
  bool link = false;
};

/// How mapped bytes will be read: at random, in sequence, or all of them soon.
enum class Reads { kScattered, kInOrder, kSoon };

class Files {
 public:
  /// In place of a folder: where the process works.
  static constexpr int kHere = -100;
  static constexpr uint32_t kUnchanged = UINT32_MAX;  // of an owner or a group

  virtual ~Files() = default;

  /// A descriptor, or -errno. Never inherited by a program that the process starts.
  virtual int open_to_read(const char* path) = 0;
  /// A folder to name files in and to sync; `path` is relative to another. Renaming it, or working
  /// elsewhere, does not change the folder of a descriptor.
  virtual int open_folder(int folder, const char* path) = 0;
  /// Makes a file that was not there; follows no link.
  virtual int create(int folder, const char* name, uint32_t mode) = 0;
  /// Makes a file that has no name until link() gives it one, and that is gone with its last descriptor
  /// otherwise. -EOPNOTSUPP where the system has no such files.
  virtual int create_unnamed(int folder, uint32_t mode) = 0;
  /// Opens a file that another save may have left, to lock(); follows no link.
  virtual int open_left(int folder, const char* name) = 0;
  /// A second descriptor of an open file; it shares the lock.
  virtual int duplicate(int file) = 0;
  virtual int close(int file) = 0;
  /// A descriptor that keeps a file from being given back, and allows nothing else; follows no link.
  virtual int hold(int folder, const char* name) = 0;
  /// Closes a file on a thread of its own, where there is one to be had, and does not wait for it: the system
  /// gives the pages of a file that nobody else has then, 200 ms of 2 GB.
  virtual void close_aside(int file) = 0;

  /// Bytes read or written, which may be fewer than requested, or -errno.
  virtual int64_t read_at(int file, void* data, size_t bytes, uint64_t offset) = 0;
  virtual int64_t write(int file, const void* data, size_t bytes) = 0;

  /// 0 or -errno.
  /// Room for [offset, offset + bytes), which then counts as length.
  virtual int reserve(int file, uint64_t offset, uint64_t bytes) = 0;
  virtual int set_owner(int file, uint32_t owner, uint32_t group) = 0;
  virtual int set_mode(int file, uint32_t mode) = 0;
  /// Begins to write [offset, offset + bytes) to the disk, or waits until that is done. Promises no more
  /// than that a later sync has less to do; an error is the file's, and may be reported only once.
  virtual int write_back(int file, uint64_t offset, uint64_t bytes, bool wait) = 0;
  virtual int sync(int file) = 0;
  /// Takes the lock of a file for as long as a descriptor of it is open; -EWOULDBLOCK where another has it.
  virtual int lock(int file) = 0;
  /// Gives a file without a name one that was free.
  virtual int link(int file, int folder, const char* name) = 0;
  virtual int rename(int folder, const char* from, const char* to) = 0;
  virtual int unlink(int folder, const char* name) = 0;
  virtual int facts(int file, FileFacts* out) = 0;
  /// Of a link its own.
  virtual int facts_in(int folder, const char* name, FileFacts* out) = 0;
  /// Where a link leads, to `out` of `capacity` bytes.
  virtual int read_link(int folder, const char* name, char* out, size_t capacity) = 0;

  /// Maps `bytes` of a file to read; null and -errno where the system refuses.
  virtual const void* map(int file, uint64_t bytes, int* error) = 0;
  virtual void unmap(const void* data, uint64_t bytes) = 0;
  /// A hint how mapped bytes will be read.
  virtual void expect(Reads, const void* /*data*/, uint64_t /*bytes*/) {}
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

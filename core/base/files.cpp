#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gannet {
namespace {

int outcome(int result) { return result < 0 ? -errno : result; }

FileFacts facts_from(const struct stat& status) {
  FileFacts facts;
  facts.bytes = static_cast<uint64_t>(status.st_size);
  facts.mode = status.st_mode & 07777;
  facts.regular = S_ISREG(status.st_mode);
  facts.link = S_ISLNK(status.st_mode);
  return facts;
}

class SystemFiles final : public Files {
 public:
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever. It changes nothing for
  // regular files, which are all that is read.
  int open_to_read(const char* path) override {
    return outcome(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  }
  int create(const char* path, uint32_t mode) override {
    return outcome(
        ::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, static_cast<mode_t>(mode)));
  }
  int open_folder(const char* path) override {
    return outcome(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  int close(int file) override { return outcome(::close(file)); }

  int64_t read_at(int file, void* data, size_t bytes, uint64_t offset) override {
    const ssize_t done = ::pread(file, data, bytes, static_cast<off_t>(offset));
    return done < 0 ? -errno : done;
  }
  int64_t write(int file, const void* data, size_t bytes) override {
    const ssize_t done = ::write(file, data, bytes);
    return done < 0 ? -errno : done;
  }

  int reserve(int file, uint64_t offset, uint64_t bytes) override {
    return outcome(::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
  }
  int set_mode(int file, uint32_t mode) override {
    return outcome(::fchmod(file, static_cast<mode_t>(mode)));
  }
  int sync(int file) override { return outcome(::fsync(file)); }
  int rename(const char* from, const char* to) override { return outcome(::rename(from, to)); }
  int unlink(const char* path) override { return outcome(::unlink(path)); }

  int facts(int file, FileFacts* out) override {
    struct stat status;
    const int result = outcome(::fstat(file, &status));
    if (result == 0) *out = facts_from(status);
    return result;
  }
  int facts_of_path(const char* path, bool follow, FileFacts* out) override {
    struct stat status;
    const int result = outcome(follow ? ::stat(path, &status) : ::lstat(path, &status));
    if (result == 0) *out = facts_from(status);
    return result;
  }
  int resolve(const char* path, char* out, size_t capacity) override {
    char* found = ::realpath(path, nullptr);
    if (found == nullptr) return -errno;
    const bool fits = static_cast<size_t>(std::snprintf(out, capacity, "%s", found)) < capacity;
    std::free(found);
    return fits ? 0 : -ENAMETOOLONG;
  }

  const void* map(int file, uint64_t bytes, int* error) override {
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    *error = data == MAP_FAILED ? -errno : 0;
    return data == MAP_FAILED ? nullptr : data;
  }
  void unmap(const void* data, uint64_t bytes) override { ::munmap(const_cast<void*>(data), bytes); }
};

}  // namespace

Files& system_files() {
  static SystemFiles files;
  return files;
}

}  // namespace gannet

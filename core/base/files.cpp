#include "base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/detached_thread.h"

namespace gannet {
namespace {

static_assert(Files::kHere == AT_FDCWD);

int outcome(int result) { return result < 0 ? -errno : result; }

FileFacts facts_from(const struct stat& status) {
  FileFacts facts;
  facts.bytes = static_cast<uint64_t>(status.st_size);
  facts.mode = status.st_mode & 07777;
  facts.owner = status.st_uid;
  facts.group = status.st_gid;
  facts.names = status.st_nlink;
  facts.device = status.st_dev;
  facts.number = status.st_ino;
  facts.regular = S_ISREG(status.st_mode);
  facts.link = S_ISLNK(status.st_mode);
  return facts;
}

/// Makes a call that may exceed the limit of the process on the size of a file. The system answers EFBIG
/// and ends the process by SIGXFSZ, unless the signal is blocked: it is blocked for this thread meanwhile, and taken
/// away where the call raised it.
template <class Call>
auto without_size_signal(const Call& call) {
  sigset_t size, old, pending;
  sigemptyset(&size);
  sigaddset(&size, SIGXFSZ);
  const bool is_blocked = ::pthread_sigmask(SIG_BLOCK, &size, &old) == 0;
  const bool known = ::sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ) == 1;
  const auto result = call();
  if (is_blocked) {
    constexpr timespec kNow = {0, 0};
    if (result == -EFBIG && !known) {
      while (::sigtimedwait(&size, nullptr, &kNow) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  return result;
}

void* close_number(void* file) {
  ::close(static_cast<int>(reinterpret_cast<intptr_t>(file)));
  return nullptr;
}

/// The name that the system has for a descriptor of this process.
struct DescriptorName {
  explicit DescriptorName(int file) { std::snprintf(text, sizeof text, "/proc/self/fd/%d", file); }
  char text[32];
};

class SystemFiles final : public Files {
 public:
  // O_NONBLOCK: opening a pipe without a writer would wait for ever. It changes nothing for
  // regular files, which are all that is read.
  int open_to_read(const char* path) override {
    return outcome(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  }
  int open_folder(int folder, const char* path) override {
    const int opened = outcome(::openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened != -EACCES) return opened;
    // Files may be named in it all the same, but it cannot be synced.
    return outcome(::openat(folder, path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  int create(int folder, const char* name, uint32_t mode) override {
    return outcome(::openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            static_cast<mode_t>(mode)));
  }
  int create_unnamed(int folder, uint32_t mode) override {
    const int file =
        outcome(::openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, static_cast<mode_t>(mode)));
    if (file == -EISDIR || file == -EINVAL || file == -ENOSYS) return -EOPNOTSUPP;
    if (file < 0) return file;
    // Only by that name a process without privileges can link it.
    if (::access(DescriptorName(file).text, F_OK) == 0) return file;
    ::close(file);
    return -EOPNOTSUPP;
  }
  // To write, since network file systems lock nothing else.
  int open_left(int folder, const char* name) override {
    return outcome(::openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
  int duplicate(int file) override { return outcome(::fcntl(file, F_DUPFD_CLOEXEC, 0)); }
  int close(int file) override { return outcome(::close(file)); }
  int hold(int folder, const char* name) override {
    return outcome(::openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  }
  void close_aside(int file) override {
    if (!run_detached(close_number, reinterpret_cast<void*>(static_cast<intptr_t>(file)))) ::close(file);
  }

  int64_t read_at(int file, void* data, size_t bytes, uint64_t offset) override {
    const ssize_t done = ::pread(file, data, bytes, static_cast<off_t>(offset));
    return done < 0 ? -errno : done;
  }
  int64_t write(int file, const void* data, size_t bytes) override {
    return without_size_signal([&]() -> int64_t {
      const ssize_t done = ::write(file, data, bytes);
      return done < 0 ? -errno : done;
    });
  }

  int reserve(int file, uint64_t offset, uint64_t bytes) override {
    return without_size_signal(
        [&] { return outcome(::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes))); });
  }
  int set_owner(int file, uint32_t owner, uint32_t group) override {
    return outcome(::fchown(file, owner, group));
  }
  int set_mode(int file, uint32_t mode) override {
    return outcome(::fchmod(file, static_cast<mode_t>(mode)));
  }
  int write_back(int file, uint64_t offset, uint64_t bytes, bool wait) override {
    constexpr unsigned kWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    return outcome(::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                                     wait ? kWait : unsigned{SYNC_FILE_RANGE_WRITE}));
  }
  int sync(int file) override { return outcome(::fsync(file)); }
  int lock(int file) override { return outcome(::flock(file, LOCK_EX | LOCK_NB)); }
  int link(int file, int folder, const char* name) override {
    return outcome(::linkat(kHere, DescriptorName(file).text, folder, name, AT_SYMLINK_FOLLOW));
  }
  int rename(int folder, const char* from, const char* to) override {
    return outcome(::renameat(folder, from, folder, to));
  }
  int unlink(int folder, const char* name) override { return outcome(::unlinkat(folder, name, 0)); }

  int facts(int file, FileFacts* out) override {
    struct stat status;
    const int result = outcome(::fstat(file, &status));
    if (result == 0) *out = facts_from(status);
    return result;
  }
  int facts_in(int folder, const char* name, FileFacts* out) override {
    struct stat status;
    const int result = outcome(::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW));
    if (result == 0) *out = facts_from(status);
    return result;
  }
  int read_link(int folder, const char* name, char* out, size_t capacity) override {
    const ssize_t bytes = ::readlinkat(folder, name, out, capacity);
    if (bytes < 0) return -errno;
    if (static_cast<size_t>(bytes) >= capacity) return -ENAMETOOLONG;
    out[bytes] = 0;
    return 0;
  }

  const void* map(int file, uint64_t bytes, int* error) override {
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    *error = data == MAP_FAILED ? -errno : 0;
    return data == MAP_FAILED ? nullptr : data;
  }
  void expect(Reads reads, const void* data, uint64_t bytes) override {
    const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const uintptr_t start = reinterpret_cast<uintptr_t>(data) / page * page;
    const uintptr_t end = reinterpret_cast<uintptr_t>(data) + bytes;
    const int advice = reads == Reads::kScattered ? MADV_RANDOM
                       : reads == Reads::kInOrder ? MADV_NORMAL
                                                  : MADV_WILLNEED;
    ::madvise(reinterpret_cast<void*>(start), end - start, advice);
  }
  void unmap(const void* data, uint64_t bytes) override { ::munmap(const_cast<void*>(data), bytes); }
};

}  // namespace

Files& system_files() {
  static SystemFiles files;
  return files;
}

}  // namespace gannet

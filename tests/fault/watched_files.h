// WatchedFiles: the system's file operations with a watcher before each.
//
// A save or an open makes every call to the system through gannet::Files. This table passes each on
// to the system's, after asking before(); what a test does there is its own: count, refuse, end the
// process, keep a log. What before() answers decides what becomes of the call.
#pragma once

#include <cerrno>
#include <string>
#include <vector>

#include "base/files.h"

namespace fault {

enum class Op {
  kOpenToRead,
  kOpenFolder,
  kCreate,
  kCreateUnnamed,
  kOpenLeft,
  kDuplicate,
  kClose,
  kHold,
  kCloseAside,
  kReadAt,
  kWrite,
  kReserve,
  kSetOwner,
  kSetMode,
  kWriteBack,
  kSync,
  kLock,
  kLink,
  kRename,
  kUnlink,
  kFacts,
  kFactsIn,
  kReadLink,
  kMap,
  kUnmap
};

inline const char* op_name(Op op) {
  static constexpr const char* kNames[] = {
      "open_to_read", "open_folder", "create",  "create_unnamed", "open_left", "duplicate", "close",
      "hold",         "close_aside", "read_at", "write",          "reserve",   "set_owner", "set_mode",
      "write_back",   "sync",        "lock",    "link",           "rename",    "unlink",    "facts",
      "facts_in",     "read_link",   "map",     "unmap"};
  return kNames[static_cast<int>(op)];
}

inline bool moves_bytes(Op op) { return op == Op::kReadAt || op == Op::kWrite; }

/// A call as the watcher sees it. What does not apply is null or 0.
struct FileCall {
  Op op;
  int file = -1;
  const char* path = nullptr;
  const char* to = nullptr;
  const void* data = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

/// What becomes of a call: 0, it is made; below 0, it answers this and is not made; above 0, it moves
/// at most so many bytes; kMovesNothing, it is not made and answers 0 bytes.
using Verdict = int64_t;
inline constexpr Verdict kMovesNothing = INT64_MAX;

class WatchedFiles : public gannet::Files {
 public:
  /// As on a system that has no files without a name; nobody is asked about those then.
  bool names_only = false;

  int open_to_read(const char* path) override {
    return pass({Op::kOpenToRead, -1, path}, [&] { return system_.open_to_read(path); });
  }
  int open_folder(int folder, const char* path) override {
    return pass({Op::kOpenFolder, folder, path}, [&] { return system_.open_folder(folder, path); });
  }
  int create(int folder, const char* name, uint32_t mode) override {
    return pass({Op::kCreate, folder, name}, [&] { return system_.create(folder, name, mode); });
  }
  int create_unnamed(int folder, uint32_t mode) override {
    if (names_only) return -EOPNOTSUPP;
    return pass({Op::kCreateUnnamed, folder}, [&] { return system_.create_unnamed(folder, mode); });
  }
  int open_left(int folder, const char* name) override {
    return pass({Op::kOpenLeft, folder, name}, [&] { return system_.open_left(folder, name); });
  }
  int duplicate(int file) override {
    return pass({Op::kDuplicate, file}, [&] { return system_.duplicate(file); });
  }
  /// A close that fails has closed all the same, as on Linux.
  int close(int file) override {
    const Verdict verdict = before({Op::kClose, file});
    const int result = system_.close(file);
    const int answer = verdict < 0 ? static_cast<int>(verdict) : result;
    after({Op::kClose, file}, answer);
    return answer;
  }

  int hold(int folder, const char* name) override {
    return pass({Op::kHold, folder, name}, [&] { return system_.hold(folder, name); });
  }
  /// Nobody is told whether it works.
  void close_aside(int file) override {
    before({Op::kCloseAside, file});
    system_.close_aside(file);
    after({Op::kCloseAside, file}, 0);
  }

  int64_t read_at(int file, void* data, size_t bytes, uint64_t offset) override {
    return move({Op::kReadAt, file, nullptr, nullptr, data, bytes, offset}, bytes,
                [&](size_t count) { return system_.read_at(file, data, count, offset); });
  }
  int64_t write(int file, const void* data, size_t bytes) override {
    return move({Op::kWrite, file, nullptr, nullptr, data, bytes}, bytes,
                [&](size_t count) { return system_.write(file, data, count); });
  }

  int reserve(int file, uint64_t offset, uint64_t bytes) override {
    return pass({Op::kReserve, file, nullptr, nullptr, nullptr, bytes, offset},
                [&] { return system_.reserve(file, offset, bytes); });
  }
  int set_owner(int file, uint32_t owner, uint32_t group) override {
    return pass({Op::kSetOwner, file}, [&] { return system_.set_owner(file, owner, group); });
  }
  int set_mode(int file, uint32_t mode) override {
    return pass({Op::kSetMode, file}, [&] { return system_.set_mode(file, mode); });
  }
  int write_back(int file, uint64_t offset, uint64_t bytes, bool wait) override {
    // A call that begins is told from one that waits by its data.
    return pass({Op::kWriteBack, file, nullptr, nullptr, wait ? this : nullptr, bytes, offset},
                [&] { return system_.write_back(file, offset, bytes, wait); });
  }
  int sync(int file) override {
    return pass({Op::kSync, file}, [&] { return system_.sync(file); });
  }
  int lock(int file) override {
    return pass({Op::kLock, file}, [&] { return system_.lock(file); });
  }
  int link(int file, int folder, const char* name) override {
    return pass({Op::kLink, file, name}, [&] { return system_.link(file, folder, name); });
  }
  int rename(int folder, const char* from, const char* to) override {
    return pass({Op::kRename, folder, from, to}, [&] { return system_.rename(folder, from, to); });
  }
  int unlink(int folder, const char* name) override {
    return pass({Op::kUnlink, folder, name}, [&] { return system_.unlink(folder, name); });
  }
  int facts(int file, gannet::FileFacts* out) override {
    return pass({Op::kFacts, file}, [&] { return system_.facts(file, out); });
  }
  int facts_in(int folder, const char* name, gannet::FileFacts* out) override {
    return pass({Op::kFactsIn, folder, name}, [&] { return system_.facts_in(folder, name, out); });
  }
  int read_link(int folder, const char* name, char* out, size_t capacity) override {
    return pass({Op::kReadLink, folder, name},
                [&] { return system_.read_link(folder, name, out, capacity); });
  }

  const void* map(int file, uint64_t bytes, int* error) override {
    const FileCall call{Op::kMap, file, nullptr, nullptr, nullptr, bytes};
    const Verdict verdict = before(call);
    if (verdict < 0) *error = static_cast<int>(verdict);
    const void* data = verdict < 0 ? nullptr : system_.map(file, bytes, error);
    after(call, *error);
    return data;
  }
  /// Cannot fail: there is nobody to tell.
  void unmap(const void* data, uint64_t bytes) override {
    const FileCall call{Op::kUnmap, -1, nullptr, nullptr, data, bytes};
    before(call);
    system_.unmap(data, bytes);
    after(call, 0);
  }

 protected:
  virtual Verdict before(const FileCall& call) = 0;
  virtual void after(const FileCall&, int64_t) {}

 private:
  template <class Call>
  int pass(const FileCall& watched, const Call& call) {
    const Verdict verdict = before(watched);
    const int answer = verdict < 0 ? static_cast<int>(verdict) : call();
    after(watched, answer);
    return answer;
  }
  template <class Call>
  int64_t move(const FileCall& watched, size_t bytes, const Call& call) {
    const Verdict verdict = before(watched);
    int64_t answer = verdict == kMovesNothing ? 0 : verdict;
    if (verdict >= 0 && verdict != kMovesNothing) {
      const size_t most = static_cast<size_t>(verdict);
      answer = call(most > 0 && most < bytes ? most : bytes);
    }
    after(watched, answer);
    return answer;
  }

  gannet::Files& system_ = gannet::system_files();
};

}  // namespace fault

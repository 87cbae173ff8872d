// Replacement: a new file that takes the place of another, whole or not at all.
//
// Target resolves a path, once: from then on folder and file are named by a descriptor, so that
// a process that changes its working folder meanwhile, or one that renames the folder, does no harm.
//
// Replacement is the file that is written. Where the system has such files it has no name until it is whole,
// so that a process that dies leaves nothing. Then, and elsewhere from the start, it is
// ".gannet-HASH-N.tmp" beside the target: HASH of the target's name, which may itself be as long as names
// can be; N the first that is free. It is locked as long as its process lives. A Replacement begins by
// removing files with such names that are not locked: processes that died have left them.
#pragma once

#include <climits>
#include <cstdint>

#include "base/error.h"
#include "base/execution.h"
#include "base/files.h"

namespace gannet {

/// The file at a path, and its folder: follows links.
class Target {
 public:
  Target(const char* path, Files& files);
  ~Target() { files_.close(folder_); }
  Target(const Target&) = delete;

  const char* path() const { return path_; }  // as given, for messages
  int folder() const { return folder_; }
  const char* name() const { return name_; }
  bool exists() const { return exists_; }
  const FileFacts& facts() const { return facts_; }  // of the old file, if there is one

  /// Makes the name durable.
  void sync() const;

 private:
  void enter(const char* path);
  void follow_links();

  Files& files_;
  const char* path_;
  int folder_ = Files::kHere;
  char name_[NAME_MAX + 1];
  bool exists_ = false;
  FileFacts facts_;
};

class Replacement {
 public:
  /// `sync`: written bytes go to the disk at once, so that sync() is short.
  Replacement(const Target& target, bool sync, Files& files);
  ~Replacement() { discard(); }
  Replacement(const Replacement&) = delete;

  /// Runs `write`, which may throw. Where a wish of the caller's ends it, a large file is given back without the
  /// call's waiting for that. An error of the system's is different: the room that a full disk lacked is there
  /// again when the call returns.
  template <class Write>
  void fill(const Write& write) {
    try {
      write();
    } catch (const Error& error) {
      ended_ = error.status == ANN_CANCELLED || error.status == ANN_DEADLINE;
      throw;
    }
  }

  void reserve(uint64_t bytes, const Execution& execution);
  void put(const void* data, uint64_t bytes);
  void read(void* out, uint64_t bytes, uint64_t offset);
  /// Waits until all bytes are on the disk.
  void sync(const Execution& execution);
  /// Puts it in the target's place. An error of closing is an error of the write: network
  /// file systems report errors there.
  void replace();

 private:
  static constexpr uint32_t kNamesMax = 10000;

  void discard();
  void remove_left();
  bool remove_if_left(const char* name);
  void create_with_name(uint32_t mode);
  void link_to_name();
  bool still_named();
  void keep_owner_and_mode();
  void write_back(uint64_t end, uint64_t behind);
  void set_name(uint32_t number);

  const Target& target_;
  Files& files_;
  bool writes_back_;
  int file_ = -1;
  int held_ = -1;       // keeps the lock between close and rename
  bool named_ = false;  // and to be removed
  bool ended_ = false;
  char name_[64];
  uint64_t reserved_ = 0;
  uint64_t written_ = 0;
  uint64_t begun_ = 0;   // bytes that are on their way to the disk
  uint64_t waited_ = 0;  // that have arrived
};

}  // namespace gannet

#include "storage/replacement.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "storage/format.h"

namespace gannet {
namespace {

constexpr uint32_t kLinksMax = 40;
constexpr uint32_t kNamesLooked = 8;  // names that are looked at whether or not those before are there
constexpr uint64_t kReservePiece = uint64_t{16} << 20;
constexpr uint64_t kWriteBackPiece = uint64_t{2} << 20;
constexpr uint64_t kWriteBackBehind = uint64_t{16} << 20;
constexpr uint64_t kLargeFile = uint64_t{64} << 20;  // its pages are given back in 6 ms

/// A path split into its folder and its name.
struct Split {
  Split(const char* path, const char* given) {
    const std::string_view whole(path);
    const size_t slash = whole.rfind('/');
    const std::string_view parent = slash == std::string_view::npos ? "." : whole.substr(0, slash);
    name = slash == std::string_view::npos ? whole : whole.substr(slash + 1);
    if (parent.size() >= sizeof folder || name.size() > NAME_MAX)
      fail_system(-ENAMETOOLONG, "looking at the target", given);
    std::memcpy(folder, parent.data(), parent.size());
    folder[parent.size()] = 0;
    if (parent.empty()) std::strcpy(folder, "/");
  }
  bool names_a_folder() const { return name.empty() || name == "." || name == ".."; }

  char folder[PATH_MAX];
  std::string_view name;
};

/// Whether a refusal of write-back only says that there is none here.
bool has_no_write_back(int result) {
  return result == -ENOSYS || result == -EINVAL || result == -ESPIPE || result == -EOPNOTSUPP;
}

}  // namespace

// --- Target ---------------------------------------------------------------------------------------

Target::Target(const char* path, Files& files) : files_(files), path_(path) {
  if (*path == 0) fail(ANN_INVALID_ARGUMENT, "path is empty");
  try {
    enter(path);
    follow_links();
  } catch (...) {
    if (folder_ >= 0) files_.close(folder_);
    throw;
  }
}

/// Opens the folder of a path, relative to the one that is open, and takes the name.
void Target::enter(const char* path) {
  const Split split(path, path_);
  const int opened = uninterrupted([&] { return files_.open_folder(folder_, split.folder); });
  if (opened < 0 && split.names_a_folder() && opened == -ENOENT)
    fail(ANN_INVALID_ARGUMENT, "path names a folder: %.150s", path_);
  if (opened < 0) fail_system(opened, "opening the folder of the target", path_);
  if (folder_ >= 0) files_.close(folder_);
  folder_ = opened;
  if (split.names_a_folder()) fail_system(-EINVAL, "the target is no regular file", path_);
  std::memcpy(name_, split.name.data(), split.name.size());
  name_[split.name.size()] = 0;
}

void Target::follow_links() {
  for (uint32_t links = 0;; ++links) {
    const int result = uninterrupted([&] { return files_.facts_in(folder_, name_, &facts_); });
    if (result == -ENOENT && links == 0) return;
    if (result < 0) fail_system(result, links == 0 ? "looking at the target" : "following the link", path_);
    if (!facts_.link) break;
    if (links == kLinksMax) fail_system(-ELOOP, "following the link", path_);
    char leads_to[PATH_MAX];
    const int read =
        uninterrupted([&] { return files_.read_link(folder_, name_, leads_to, sizeof leads_to); });
    if (read < 0) fail_system(read, "following the link", path_);
    enter(leads_to);
  }
  if (!facts_.regular) fail_system(-EINVAL, "the target is no regular file", path_);
  exists_ = true;
}

void Target::sync() const {
  const int result = files_.sync(folder_);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing to be done about it.
  if (result < 0 && result != -EINVAL)
    fail_system(result,
                "the new file is in place, but syncing its folder failed and whether it survives "
                "a power failure is unknown",
                path_);
}

// --- Replacement ----------------------------------------------------------------------------------

Replacement::Replacement(const Target& target, bool sync, Files& files)
    : target_(target), files_(files), writes_back_(sync) {
  remove_left();
  const uint32_t mode = target.exists() ? target.facts().mode : 0666;
  file_ = uninterrupted([&] { return files.create_unnamed(target.folder(), mode); });
  if (file_ < 0 && file_ != -EOPNOTSUPP) fail_system(file_, "making a file beside the target", target.path());
  try {
    if (file_ < 0)
      create_with_name(mode);
    else
      uninterrupted([&] { return files.lock(file_); });  // there are systems without locks
    if (target.exists()) keep_owner_and_mode();
  } catch (...) {
    discard();
    throw;
  }
}

void Replacement::discard() {
  // While it is locked, so that no process takes it for a left file.
  if (named_) files_.unlink(target_.folder(), name_);
  const bool aside = ended_ && std::max(reserved_, written_) >= kLargeFile;
  for (const int file : {file_, held_}) {
    if (file < 0) continue;
    if (aside)
      files_.close_aside(file);
    else
      files_.close(file);
  }
}

void Replacement::set_name(uint32_t number) {
  const uint64_t hash = format::sum(target_.name(), std::strlen(target_.name()));
  std::snprintf(name_, sizeof name_, ".gannet-%016llx-%u.tmp", static_cast<unsigned long long>(hash), number);
}

/// Removes files of saves to this target whose processes died. A failure to do so is none of the save.
void Replacement::remove_left() {
  for (uint32_t number = 0; number < kNamesMax; ++number) {
    set_name(number);
    if (!remove_if_left(name_) && number + 1 >= kNamesLooked) return;
  }
}

/// Whether there was a file of the name, removed or in use.
bool Replacement::remove_if_left(const char* name) {
  const int file = files_.open_left(target_.folder(), name);
  if (file < 0) return false;
  // The name belongs to this file as long as it is locked: a process that makes a file keeps it only if it still
  // has its name once locked, and a process that removes one has locked it.
  FileFacts opened, found;
  if (files_.lock(file) == 0 && files_.facts(file, &opened) == 0 && opened.regular &&
      files_.facts_in(target_.folder(), name, &found) == 0 && found.device == opened.device &&
      found.number == opened.number)
    files_.unlink(target_.folder(), name);
  files_.close(file);
  return true;
}

void Replacement::create_with_name(uint32_t mode) {
  for (uint32_t number = 0; number < kNamesMax; ++number) {
    set_name(number);
    file_ = uninterrupted([&] { return files_.create(target_.folder(), name_, mode); });
    if (file_ == -EEXIST) continue;  // in use by another save
    if (file_ < 0) fail_system(file_, "making a file beside the target", target_.path());
    named_ = true;
    const int locked = uninterrupted([&] { return files_.lock(file_); });
    if (locked != -EWOULDBLOCK && still_named()) return;
    // Another save has taken it for left, and removes it.
    named_ = false;
    files_.close(std::exchange(file_, -1));
  }
  fail_system(-EEXIST, "making a file beside the target", target_.path());
}

bool Replacement::still_named() {
  FileFacts facts;
  const int result = uninterrupted([&] { return files_.facts(file_, &facts); });
  if (result < 0) fail_system(result, "looking at the new file", target_.path());
  return facts.names != 0;
}

void Replacement::link_to_name() {
  for (uint32_t number = 0; number < kNamesMax; ++number) {
    set_name(number);
    const int result = uninterrupted([&] { return files_.link(held_, target_.folder(), name_); });
    named_ = result == 0;
    if (named_) return;
    if (result != -EEXIST) fail_system(result, "naming the new file", target_.path());
  }
  fail_system(-EEXIST, "naming the new file", target_.path());
}

/// As far as the process may: another's file stays another's only if root saves it.
void Replacement::keep_owner_and_mode() {
  const FileFacts& old = target_.facts();
  FileFacts mine;
  const int looked = uninterrupted([&] { return files_.facts(file_, &mine); });
  if (looked < 0) fail_system(looked, "looking at the new file", target_.path());
  if (mine.owner != old.owner || mine.group != old.group) {
    int result = uninterrupted([&] { return files_.set_owner(file_, old.owner, old.group); });
    if (result == -EPERM)
      result = uninterrupted([&] { return files_.set_owner(file_, Files::kUnchanged, old.group); });
    if (result < 0 && result != -EPERM && result != -EINVAL && result != -EOPNOTSUPP)
      fail_system(result, "keeping the owner of the old file", target_.path());
  }
  const int result = uninterrupted([&] { return files_.set_mode(file_, old.mode); });
  if (result < 0) fail_system(result, "keeping the permissions of the old file", target_.path());
}

/// In pieces, since a file system in memory makes the pages here and now.
void Replacement::reserve(uint64_t bytes, const Execution& execution) {
  for (uint64_t offset = 0; offset < bytes; offset += kReservePiece) {
    execution.check();
    const uint64_t piece = std::min(kReservePiece, bytes - offset);
    const int result = uninterrupted([&] { return files_.reserve(file_, offset, piece); });
    // A full disk shows here, before anything is written; a file system that cannot reserve shows it
    // when it is written to.
    if (result == -ENOSPC || result == -EDQUOT || result == -EFBIG || result == -EIO)
      fail_system(result, "reserving space", target_.path());
    if (result < 0) return;
    reserved_ = offset + piece;
  }
}

void Replacement::put(const void* data, uint64_t bytes) {
  const uint8_t* from = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const int64_t done = uninterrupted([&] { return files_.write(file_, from, bytes); });
    if (done <= 0) fail_system(done < 0 ? done : -EIO, "writing", target_.path());
    from += done;
    bytes -= static_cast<uint64_t>(done);
    written_ += static_cast<uint64_t>(done);
  }
  write_back(written_ - written_ % kWriteBackPiece, kWriteBackBehind);
}

/// Sends the bytes written before `end` to the disk, and waits for the oldest piece that is on its way where
/// more than `behind` bytes are. One piece at most, so that callers can check the monitor between two.
void Replacement::write_back(uint64_t end, uint64_t behind) {
  if (!writes_back_) return;
  const auto send = [&](uint64_t offset, uint64_t bytes, bool wait) {
    const int result = uninterrupted([&] { return files_.write_back(file_, offset, bytes, wait); });
    if (has_no_write_back(result)) writes_back_ = false;
    // The system reports an error of the disk once, here or at the sync.
    else if (result < 0)
      fail_system(result, "writing to the disk", target_.path());
  };
  if (begun_ < end) send(begun_, end - begun_, false);
  begun_ = std::max(begun_, end);
  if (begun_ - waited_ <= behind) return;
  const uint64_t piece = std::min(kWriteBackPiece, begun_ - waited_);
  send(waited_, piece, true);
  waited_ += piece;
}

void Replacement::sync(const Execution& execution) {
  while (writes_back_ && waited_ < written_) {
    execution.check();
    write_back(written_, 0);
  }
  execution.check();
  const int result = files_.sync(file_);
  if (result < 0) fail_system(result, "syncing", target_.path());
}

void Replacement::read(void* out, uint64_t bytes, uint64_t offset) {
  uint8_t* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const int64_t done = uninterrupted([&] { return files_.read_at(file_, to, bytes, offset); });
    if (done <= 0) fail_system(done < 0 ? done : -EIO, "reading back", target_.path());
    to += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
}

void Replacement::replace() {
  held_ = uninterrupted([&] { return files_.duplicate(file_); });
  if (held_ < 0) fail_system(held_, "closing", target_.path());
  const int closed = files_.close(std::exchange(file_, -1));
  if (closed < 0 && closed != -EINTR) fail_system(closed, "closing", target_.path());
  if (!named_) link_to_name();
  // A wish to end that comes now must not wait until the pages of the old file are given back.
  const bool large = target_.exists() && target_.facts().bytes >= kLargeFile;
  const int old = large ? files_.hold(target_.folder(), target_.name()) : -1;
  const int result = files_.rename(target_.folder(), name_, target_.name());
  if (old >= 0) files_.close_aside(old);
  if (result < 0) fail_system(result, "renaming over the target", target_.path());
  named_ = false;
}

}  // namespace gannet

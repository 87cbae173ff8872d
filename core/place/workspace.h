// Workspaces: the memory that one search needs for itself, kept with a placement between searches so that
// searches of a shape that has been met allocate nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <typeinfo>
#include <vector>

#include "base/monitor.h"

namespace gannet {

class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual uint64_t bytes() const = 0;  // of host memory, pinned or not

  /// Begins to serve a call with this monitor, or null, whose rows have `row_bytes`.
  void begin(Monitor* monitor, uint64_t row_bytes) {
    monitor_ = monitor;
    row_bytes_ = static_cast<int64_t>(row_bytes);
    left_ = kBytesBetweenQuestions;
  }
  /// Notes that a walk has compared `rows` and inserted them into a list of `list`. Now and then it checks the
  /// monitor: the walk of one query with the longest beam takes a second.
  void compared(uint32_t rows, uint32_t list) {
    left_ -= rows * row_bytes_ + list / kListShare;
    if (left_ < 0) ask();
  }

 private:
  /// Bytes of compared rows: some milliseconds.
  static constexpr int64_t kBytesBetweenQuestions = int64_t{8} << 20;
  /// A list counts as one byte for this many places: moving the entries behind a new one is faster than fetching rows.
  static constexpr uint32_t kListShare = 2;

  void ask() {
    left_ = kBytesBetweenQuestions;
    if (monitor_ != nullptr) monitor_->check();
  }

  Monitor* monitor_ = nullptr;
  int64_t row_bytes_ = 0;
  int64_t left_ = kBytesBetweenQuestions;
};

/// The idle workspaces of a placement, of every procedure. Any thread.
class WorkspacePool {
 public:
  /// An idle workspace of type T, none of which is `better(a, b)`; null if there is none.
  template <class T, class Better>
  std::unique_ptr<T> take(const Better& better) {
    const std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const Workspace& workspace = **it;
      if (typeid(workspace) != typeid(T)) continue;
      // The last of equal ones: it was used last, and its memory is in the caches.
      if (best == idle_.end() || !better(static_cast<const T&>(**best), static_cast<const T&>(workspace)))
        best = it;
    }
    if (best == idle_.end()) return nullptr;
    std::unique_ptr<T> taken(static_cast<T*>(best->release()));
    idle_.erase(best);
    return taken;
  }
  template <class T>
  std::unique_ptr<T> take() {
    return take<T>([](const T&, const T&) { return false; });
  }

  /// Keeps a workspace for the next search; without memory to remember it by, it goes.
  void give_back(std::unique_ptr<Workspace> workspace) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      idle_.push_back(std::move(workspace));
    } catch (const std::bad_alloc&) {
    }
  }

  void clear() { idle_.clear(); }

  uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const auto& workspace : idle_) bytes += workspace->bytes();
    return bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

/// A workspace for the duration of a task: an idle one, or one that `make` makes.
template <class T>
class WorkspaceLease {
 public:
  template <class Make>
  WorkspaceLease(WorkspacePool& pool, const Make& make) : pool_(pool), workspace_(pool.take<T>()) {
    if (workspace_ == nullptr) workspace_ = make();
  }
  ~WorkspaceLease() { pool_.give_back(std::move(workspace_)); }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  T& operator*() const { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<T> workspace_;
};

}  // namespace gannet

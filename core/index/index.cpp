#include "index/index.h"

namespace gannet {

Index::Call::Call(const Index& index) : index_(index) {
  const std::lock_guard lock(index.mutex_);
  snapshot = index.snapshot_;
  ++index.calls_;
}

Index::Call::~Call() {
  snapshot.reset();
  // Under the lock, so that a waiting free cannot take the index away before this is done with it.
  const std::lock_guard lock(index_.mutex_);
  if (--index_.calls_ == 0) index_.idle_.notify_all();
}

Index::BuildRight::BuildRight(Index& index) : index_(index) {
  const std::lock_guard lock(index.mutex_);
  if (index.snapshot_ != nullptr)
    fail(ANN_STATE, "the index is built already; an index is built once in its life");
  if (index.building_) fail(ANN_BUSY, "another thread is building this index");
  index.building_ = true;
  ++index.calls_;
}

Index::BuildRight::~BuildRight() {
  const std::lock_guard lock(index_.mutex_);
  index_.building_ = false;
  if (--index_.calls_ == 0) index_.idle_.notify_all();
}

void Index::BuildRight::publish(std::unique_ptr<const PlacedSegment> built) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->segments.push_back(std::move(built));
  const std::lock_guard lock(index_.mutex_);
  index_.snapshot_ = std::move(snapshot);
}

void Index::wait_for_calls() const {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return calls_ == 0; });
}

}  // namespace gannet

#include "index/index.h"

namespace gannet {

std::unique_ptr<SearchSpace> SearchSpaces::take(const Dataset& dataset, const Codes& codes,
                                                const SearchGraph& graph, const Allocator& memory) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<SearchSpace> space = std::move(idle_.back());
      idle_.pop_back();
      return space;
    }
    // Room for every space ever made, so that giving one back cannot fail.
    idle_.reserve(made_ + 1);
    ++made_;
  }
  try {
    return std::make_unique<SearchSpace>(dataset, codes, graph, memory);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --made_;
    throw;
  }
}

void SearchSpaces::give_back(std::unique_ptr<SearchSpace> space) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(space));
}

uint64_t SearchSpaces::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& space : idle_) bytes += space->bytes();
  return bytes;
}

Index::Call::Call(const Index& index) : index_(index) {
  const std::lock_guard lock(index.mutex_);
  built = index.built_;
  ++index.calls_;
}

Index::Call::~Call() {
  built.reset();
  // Under the lock, so that a waiting free cannot take the index away before this is done with it.
  const std::lock_guard lock(index_.mutex_);
  if (--index_.calls_ == 0) index_.idle_.notify_all();
}

Index::BuildRight::BuildRight(Index& index) : index_(index) {
  const std::lock_guard lock(index.mutex_);
  if (index.built_ != nullptr)
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

void Index::BuildRight::publish(std::unique_ptr<const Built> built) {
  std::shared_ptr<const Built> shared = std::move(built);
  const std::lock_guard lock(index_.mutex_);
  index_.built_ = std::move(shared);
}

void Index::wait_for_calls() const {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return calls_ == 0; });
}

}  // namespace gannet

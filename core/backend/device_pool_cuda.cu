#include <atomic>
#include <new>

#include "backend/device_pool.h"
#include "backend/launch.h"

namespace gannet::cuda {
namespace {

constexpr int32_t kDevicesMax = 64;
constexpr uint64_t kKeptShare = 8;  // of a device's memory stays with an idle pool

std::atomic<DevicePool*> pools[kDevicesMax] = {};
std::mutex making;

/// The figures that a pool keeps of itself are 64-bit, and so are its settings except the switches.
uint64_t ask(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  uint64_t value = 0;
  check(runtime().ask_pool(pool, attribute, &value), "asking for a pool's memory");
  return value;
}

}  // namespace

DevicePool& DevicePool::of(int32_t device) {
  if (device < 0 || device >= kDevicesMax)
    fail(ANN_LIMIT, "CUDA device %d was asked for; the library knows %d of them", device, kDevicesMax);
  DevicePool* pool = pools[device].load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  const std::lock_guard lock(making);
  pool = pools[device].load(std::memory_order_acquire);
  if (pool == nullptr) {
    pool = new DevicePool(device);
    pools[device].store(pool, std::memory_order_release);
  }
  return *pool;
}

DevicePool::DevicePool(int32_t device) : device_(device) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(runtime().memory_info(&free_bytes, &total_bytes), "asking for a device's memory");
  check(runtime().create_pool(&memory_, &properties), "making a pool of device memory");
  uint64_t kept = total_bytes / kKeptShare;
  int waits_allowed = 0;
  check(runtime().set_pool(memory_, cudaMemPoolAttrReleaseThreshold, &kept), "setting up a pool");
  check(runtime().set_pool(memory_, cudaMemPoolReuseAllowInternalDependencies, &waits_allowed),
        "setting up a pool");
}

void* DevicePool::take(size_t bytes, cudaStream_t stream) {
  void* memory = nullptr;
  cudaError_t error = runtime().take(&memory, bytes, memory_, stream);
  if (error == cudaErrorMemoryAllocation) {
    // The free memory of the pool may be fragmented into blocks that are too small.
    runtime().last_error();
    trim(true);
    error = runtime().take(&memory, bytes, memory_, stream);
  }
  if (error == cudaErrorMemoryAllocation) raise_no_memory(bytes);
  check(error, "taking device memory");
  return memory;
}

cudaStream_t DevicePool::take_stream() {
  const std::lock_guard lock(mutex_);
  cudaStream_t stream = nullptr;
  if (idle_.empty()) {
    // Room for every stream ever made, so that giving one back cannot fail.
    idle_.reserve(lent_ + 1);
    check(runtime().create_stream(&stream, cudaStreamNonBlocking), "creating a stream");
  } else {
    stream = idle_.back();
    idle_.pop_back();
  }
  ++lent_;
  return stream;
}

void DevicePool::give_back(cudaStream_t stream, bool clean) noexcept {
  const std::lock_guard lock(mutex_);
  --lent_;
  if (clean)
    idle_.push_back(stream);
  else
    runtime().destroy_stream(stream);
}

uint64_t DevicePool::free_bytes() const {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(runtime().memory_info(&free_bytes, &total_bytes), "asking for a device's memory");
  const uint64_t reserved = reserved_bytes();
  const uint64_t used = used_bytes();
  return free_bytes + (reserved > used ? reserved - used : 0);
}

uint64_t DevicePool::reserved_bytes() const { return ask(memory_, cudaMemPoolAttrReservedMemCurrent); }

uint64_t DevicePool::used_bytes() const { return ask(memory_, cudaMemPoolAttrUsedMemCurrent); }

uint64_t DevicePool::peak_bytes() const { return ask(memory_, cudaMemPoolAttrUsedMemHigh); }

void DevicePool::forget_peak() {
  uint64_t none = 0;
  check(runtime().set_pool(memory_, cudaMemPoolAttrUsedMemHigh, &none), "setting up a pool");
}

void DevicePool::trim(bool always) noexcept {
  if (is_abandoned()) return;
  const std::lock_guard lock(mutex_);
  if (!always && lent_ != 0) return;
  runtime().trim_pool(memory_, 0);
}

void DevicePool::trim_all(bool always) noexcept {
  for (const auto& pool : pools) {
    DevicePool* made = pool.load(std::memory_order_acquire);
    if (made != nullptr) made->trim(always);
  }
}

}  // namespace gannet::cuda

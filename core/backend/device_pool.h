// Device resources that the library keeps from one call to the next: memory in a pool of its own, and
// streams. Taking either from the driver costs up to milliseconds; from here, a microsecond.
//
// The pool is the library's: the caller's default pool, with its settings, is never used. It keeps up to
// an eighth of the device's memory when nothing of it is in use, until trim(). Memory is given back in
// the order of a stream, so that nothing waits for the host, and is taken again by another stream only
// when the first one's work is done: streams are never made to wait for each other.
//
// Pools are made when a device is first used and live as long as the process: when it ends, the driver
// may be gone before anything here could be given back.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gannet::cuda {

class DevicePool {
 public:
  /// That of a device, which is current.
  static DevicePool& of(int32_t device);

  /// Memory, in the order of a stream; runtime().give_back takes it back. Throws
  /// ANN_DEVICE_NO_MEMORY.
  void* take(size_t bytes, cudaStream_t stream);

  cudaStream_t take_stream();
  /// `clean`: all its work is done, and without an error.
  void give_back(cudaStream_t stream, bool clean) noexcept;

  /// Bytes that take() could give now: those that the device has free, and those that the pool keeps.
  uint64_t free_bytes() const;

  /// Bytes that the pool holds of the driver's, in use or not.
  uint64_t reserved_bytes() const;

  /// Bytes that are in use, and the most that have been since forget_peak().
  uint64_t used_bytes() const;
  uint64_t peak_bytes() const;
  void forget_peak();

  /// Gives memory that is not in use back to the driver; unless `always`, only where no stream is lent,
  /// which says that the library does nothing on this device and holds no index there.
  void trim(bool always) noexcept;

  /// The same on every device that has a pool. Calls nothing of CUDA where there is none.
  static void trim_all(bool always) noexcept;

 private:
  explicit DevicePool(int32_t device);

  int32_t device_;
  cudaMemPool_t memory_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<cudaStream_t> idle_;
  uint64_t lent_ = 0;  // streams
};

}  // namespace gannet::cuda

// Transfers: large copies between ordinary host memory and a device, by several threads at once.
//
// A device copies from and to pinned memory only. Left to it, the driver stages a copy of ordinary memory
// with one thread: 128 MB to one NVIDIA H200 took 14.5 ms, and 256 MB from it into memory that had never
// been touched 76 ms, most of it the system's making pages. Here each thread has two pieces of pinned
// memory, which it fills or empties while the device copies the other: 3.6 and 7.2 ms with 16 threads.
//
// The pinned memory comes from the caller's allocator, is touched by the threads that use it, and is then
// registered: 32 MB take 1 ms in huge pages, where the driver's own pinned memory took 10. So nothing has
// to be kept between calls. Threads that register at once wait for each other: sixteen took 8 ms for the 20 MB that a
// build by product of 76,000 x 64 sends first. So each has four pieces to copy at least, and such a build takes 71 ms
// instead of 76. Rejected, with the same machine: several threads that each give the driver a part (16 to 18 ms),
// registering the target (20 ms for 256 MB).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/launch.h"
#include "base/execution.h"

namespace gannet::cuda {

/// Queues the copy of rows of `bytes` bytes to the device, with strides in bytes and zeros behind each row there, left to
/// the driver in pieces, between which the monitor is asked.
void send_by_driver(void* to, uint64_t to_stride, const void* from, uint64_t from_stride, uint64_t bytes,
                    uint64_t rows, const Stream& stream, const Execution& execution);

class Transfers {
 public:
  /// Transfers of the current device, with the threads and the memory of `execution`.
  explicit Transfers(const Execution& execution);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Allocates all lanes, if copies of `bytes` go by them. That waits until nothing runs on the device, so a caller whose
  /// copies overlap its work does this beforehand; else the first large copy does.
  void prepare(uint64_t bytes);

  /// Copies to the device in the order of the stream. When it returns the host memory has been read.
  void send(void* to, const void* from, uint64_t bytes, const Stream& stream);

  /// The same of rows of `bytes` bytes, with strides in bytes; behind each row in `to` come zeros.
  void send_rows(void* to, uint64_t to_stride, const void* from, uint64_t from_stride, uint64_t bytes,
                 uint64_t rows, const Stream& stream);

  /// Copies from the device, when the stream has got there; returns when the bytes are there.
  void fetch(void* to, const void* from, uint64_t bytes, const Stream& stream);

  /// The same of rows of `bytes` bytes, with strides in bytes; behind each row in `to` come zeros.
  void fetch_rows(void* to, uint64_t to_stride, const void* from, uint64_t from_stride, uint64_t bytes,
                  uint64_t rows, const Stream& stream);

 private:
  class Lane;
  bool uses_lanes(uint64_t bytes);
  Lane& lane(uint64_t number);
  template <class Body, class End>
  void each_piece(uint64_t count, uint64_t step, const Body& body, const End& end);

  const Execution execution_;
  int32_t device_;
  bool refused_ = false;   // the system pins no memory
  Array<uint8_t> memory_;  // [threads, 2, piece] from `first_` on
  uint8_t* first_ = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes_;  // [threads], each made by the thread that first uses it
};

}  // namespace gannet::cuda

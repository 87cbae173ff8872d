// device_memory.h: memory, streams and events of a CUDA device, through the driver's own interface.
//
// The driver is opened at run time, so the program links to no part of CUDA and runs where there is none.
// Its context is the one that the CUDA runtime uses too; a stream made here is a cudaStream_t there.
// All members throw std::runtime_error that names the call and the driver's error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bench {

// `device` is ANN_DEVICE_CUDA + i everywhere.

class DeviceBuffer {
 public:
  DeviceBuffer(int32_t device, uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* at(uint64_t byte) const { return reinterpret_cast<void*>(address_ + byte); }
  void fill(const void* from, uint64_t bytes);
  void read(void* to, uint64_t bytes) const;

 private:
  int32_t device_;
  uint64_t address_ = 0;
};

// A stream, and two events to measure what is queued between them.
class DeviceStream {
 public:
  explicit DeviceStream(int32_t device);
  ~DeviceStream();
  DeviceStream(DeviceStream&& other) noexcept;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* stream() const { return stream_; }
  void wait() const;
  void note_start() const;
  void note_end() const;
  // Seconds of the device between the two notes, once wait() has returned.
  double seconds_between() const;

 private:
  int32_t device_;
  void* stream_ = nullptr;
  void* start_ = nullptr;
  void* end_ = nullptr;
};

}  // namespace bench

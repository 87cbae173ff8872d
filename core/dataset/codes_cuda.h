// Codes on a CUDA device: every phase of a build on the device reads rows by them.
//
// Bytes stand unsigned whatever the rows are: i8 rows are flipped once, as they arrive, and stay so for searches, whose
// queries are flipped likewise. The square of each row's length stands beside them: |x - y|^2 = x.x + y.y - 2 x.y holds
// in 32 bits modulo 2^32, so a distance costs one product. Wide codes are floats as on the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/launch.h"
#include "backend/transfers.h"
#include "base/execution.h"
#include "dataset/codes.h"

namespace gannet::cuda {

/// The codes as an argument of kernels.
struct CodesView {
  const uint8_t* data;      // [rows, stride] bytes, zero beyond the last column
  const uint32_t* squares;  // [rows] x.x of bytes; null for wide codes
  uint32_t rows;
  uint32_t stride;  // bytes, a multiple of kCodeAlign

  __host__ __device__ bool wide() const { return squares == nullptr; }
  __device__ const uint8_t* row(uint64_t number) const { return data + number * stride; }
};

/// Xors every byte of vectors on the device, [count, stride], with `flip`, and writes the square of each one's length
/// as unsigned bytes to `squares`, [count], unless that is null. `stride` is a multiple of four.
void flip_and_square(uint8_t* vectors, uint32_t count, uint32_t stride, uint8_t flip, uint32_t* squares,
                     const Stream& stream);

/// Codes on the current device. While they are sent from the host, the monitor is checked between pieces.
class DeviceCodes {
 public:
  /// Codes that make(data) queues on the stream, [rows, stride] and as they are on the host; `codes` gives
  /// their properties.
  template <class Make>
  DeviceCodes(const Codes& codes, const Stream& stream, const Make& make) : DeviceCodes(codes, stream) {
    make(data_->data());
    flip_and_square(stream);
  }
  DeviceCodes(const Codes& codes, const Stream& stream, const Execution& execution);
  DeviceCodes(const Codes& codes, const Stream& stream, Transfers& transfers);

  CodesView view() const { return {data_->data(), squares_.data(), rows_, stride_}; }

  /// Gives the codes away, [rows, stride] as view() has them.
  std::unique_ptr<DeviceArray<uint8_t>> release() { return std::move(data_); }

 private:
  DeviceCodes(const Codes& codes, const Stream& stream);
  void flip_and_square(const Stream& stream) const;

  uint32_t rows_;
  uint32_t stride_;
  uint8_t flip_;                                // xored with every byte
  std::unique_ptr<DeviceArray<uint8_t>> data_;  // [rows, stride]
  DeviceArray<uint32_t> squares_;               // [rows], or none
};

}  // namespace gannet::cuda

// DeviceIngest: rows in the memory of the device that works on them, the caller's or sent there ahead. Their codes are
// made there, while the host gets its copy of the codes, and of rows that it does not have, which searches on the CPU,
// files and exact distances need.
//
// Rows that are sent ahead of the build are those of its placement, which would get them at the end else. Codes are made
// of them in less time than the host's processors take and need not be sent.
//
// Codes and copy are those of rows from host memory, bit for bit.
#pragma once

#include <cstdint>
#include <memory>

#include "base/execution.h"
#include "dataset/codes.h"
#include "dataset/dataset.h"

namespace gannet {

/// Threads at most that copy beside the one that drives the device, which leave it a processor.
inline constexpr uint32_t kIngestCopiers = 8;

}  // namespace gannet

namespace gannet::cuda {

class DeviceCodes;
class Stream;
class Transfers;
template <class Item>
class DeviceArray;

class DeviceIngest {
 public:
  virtual ~DeviceIngest() = default;

  /// The rows, on the device.
  virtual const MatrixView& rows() const = 0;

  /// Makes codes on the device, and begins to fill `dataset`, which was made of the same rows, and the returned
  /// codes. Neither may be read or released before wait() or the end of the DeviceIngest.
  virtual Codes make_codes(Dataset& dataset, uint64_t seed, const Execution& execution) = 0;

  /// The codes on the device and the stream in whose order they are made and released. They must
  /// outlive the DeviceIngest, which reads them.
  virtual std::unique_ptr<DeviceCodes> take_codes() = 0;
  virtual std::unique_ptr<Stream> take_stream() = 0;

  /// The memory of rows() where they were sent; null: it is the caller's.
  virtual std::unique_ptr<DeviceArray<uint8_t>> take_rows() = 0;

  /// The transfers that copied the rows, for further copies after wait().
  virtual Transfers& transfers() = 0;

  /// Returns when the host has everything. Errors: ANN_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED,
  /// ANN_DEADLINE.
  virtual void wait() = 0;
};

/// Takes rows on a device, none of which may be NaN or infinite (ANN_NOT_FINITE).
std::unique_ptr<DeviceIngest> ingest_rows(const MatrixView& rows, int32_t metric, const Execution& execution);

/// Sends rows that the host has to a device, each Dataset::stored_stride from the next; not of inner product. Errors:
/// also ANN_DEVICE_NO_MEMORY.
std::unique_ptr<DeviceIngest> send_rows(const Dataset& dataset, int32_t device, const Execution& execution);

}  // namespace gannet::cuda

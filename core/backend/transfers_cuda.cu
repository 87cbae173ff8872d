#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/transfer_bytes.h"
#include "backend/transfers.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kPiece = kTransferPiece;
constexpr uint32_t kThreadsMin = 3;  // fewer are no faster than the driver
constexpr uint64_t kWorthBytes = 16 * kPiece;
constexpr uint64_t kPiecesPerLane = 4;  // at least: a lane that is made for less costs more than it gains
constexpr uint64_t kPage = kTransferPage;
/// Left to the driver between two looks at the monitor: 7 ms.
constexpr uint64_t kDriverBytes = uint64_t{16} << 20;

/// Rows in host memory on their way to where they belong.
struct Target {
  uint8_t* data;
  uint64_t stride;  // bytes, as the next two
  uint64_t bytes;   // of a row; behind them come zeros
  uint64_t rows;

  void clear_behind() const {
    if (stride == bytes) return;
    for (uint64_t row = 0; row < rows; ++row) std::memset(data + row * stride + bytes, 0, stride - bytes);
  }
  void take(const uint8_t* from, uint64_t from_stride) const {
    if (stride == bytes && from_stride == bytes) {
      std::memcpy(data, from, rows * bytes);
      return;
    }
    for (uint64_t row = 0; row < rows; ++row)
      std::memcpy(data + row * stride, from + row * from_stride, bytes);
    clear_behind();
  }
};

}  // namespace

void send_by_driver(void* to, uint64_t to_stride, const void* from, uint64_t from_stride, uint64_t bytes,
                    uint64_t rows, const Stream& stream, const Execution& execution) {
  uint8_t* target = static_cast<uint8_t*>(to);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  if (to_stride != bytes) fill(to, 0, rows * to_stride, stream, "clearing device memory");
  const uint64_t step = std::max<uint64_t>(1, kDriverBytes / to_stride);
  for (uint64_t first = 0; first < rows; first += step) {
    execution.check();
    copy_rows(target + first * to_stride, to_stride, source + first * from_stride, from_stride, bytes,
              std::min(step, rows - first), cudaMemcpyHostToDevice, stream, "sending rows to the device");
  }
}

/// The two pieces of one thread.
class Transfers::Lane {
 public:
  explicit Lane(uint8_t* memory) : memory_(memory) {
    for (uint64_t byte = 0; byte < 2 * kPiece; byte += kPage) memory[byte] = 0;
    check(runtime().pin(memory, 2 * kPiece, cudaHostRegisterPortable), "pinning memory");
  }
  ~Lane() {
    if (is_abandoned()) return;
    for (const Event& event : events_) event.wait_quietly();
    runtime().unpin(memory_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The piece whose turn it is, when the device is done with it.
  uint8_t* next() {
    turn_ ^= 1;
    events_[turn_].wait();
    return memory_ + turn_ * kPiece;
  }
  /// The work queued on the stream ends the use of that buffer.
  void queued(const Stream& stream) { events_[turn_].record(stream); }

  /// A piece is on its way to the host, and belongs to `target`.
  void expect(const uint8_t* piece, const Target& target) {
    piece_ = piece;
    target_ = target;
  }

  /// Empties the piece that is on its way, if there is one. `other`: it is not the last one queued.
  void deliver(bool other) {
    if (piece_ == nullptr) return;
    events_[other ? turn_ ^ 1 : turn_].wait();
    target_.take(piece_, target_.bytes);
    piece_ = nullptr;
  }

 private:
  uint8_t* memory_;
  Event events_[2] = {Event(false), Event(false)};
  uint32_t turn_ = 0;
  const uint8_t* piece_ = nullptr;
  Target target_ = {};
};

Transfers::Transfers(const Execution& execution) : execution_(execution), device_(current_device()) {}

Transfers::~Transfers() = default;

/// Whether this many bytes go by lanes. The first time this makes them.
bool Transfers::uses_lanes(uint64_t bytes) {
  if (bytes < kWorthBytes || execution_.threads < kThreadsMin || refused_) return false;
  if (!lanes_.empty()) return true;
  memory_ = Array<uint8_t>(execution_.memory, transfer_bytes(execution_.threads));
  first_ = memory_.data() + (kPage - reinterpret_cast<uintptr_t>(memory_.data()) % kPage) % kPage;
  // Where the system refuses to pin memory, the first lane throws.
  try {
    lanes_.resize(execution_.threads);
    lanes_[0] = std::make_unique<Lane>(first_);
  } catch (const Error& error) {
    if (error.status == ANN_DEVICE_LOST) throw;
    lanes_.clear();
    memory_ = Array<uint8_t>();
    refused_ = true;
  }
  return !refused_;
}

/// A lane, made at its first use.
Transfers::Lane& Transfers::lane(uint64_t number) {
  if (lanes_[number] == nullptr) lanes_[number] = std::make_unique<Lane>(first_ + number * 2 * kPiece);
  return *lanes_[number];
}

void Transfers::prepare(uint64_t bytes) {
  if (!uses_lanes(bytes)) return;
  parallel_for(execution_, lanes_.size(), 1, [&](uint64_t number, uint64_t, uint32_t) {
    const DeviceGuard guard(device_);
    lane(number);
  });
}

/// Calls body(lane, first, count) for the pieces of a copy of `count` bytes or rows, and end(lane) behind the
/// last of a lane.
template <class Body, class End>
void Transfers::each_piece(uint64_t count, uint64_t step, const Body& body, const End& end) {
  std::atomic<uint64_t> next = 0;
  const uint64_t pieces = (count + step - 1) / step;
  const uint64_t used = std::clamp<uint64_t>(pieces / kPiecesPerLane, 1, lanes_.size());
  parallel_for(execution_, used, 1, [&](uint64_t number, uint64_t, uint32_t) {
    const DeviceGuard guard(device_);
    Lane& own = lane(number);
    while (true) {
      const uint64_t first = next.fetch_add(step, std::memory_order_relaxed);
      if (first >= count) break;
      execution_.check();
      body(own, first, std::min(step, count - first));
    }
    end(own);
  });
}

void Transfers::send(void* to, const void* from, uint64_t bytes, const Stream& stream) {
  uint8_t* target = static_cast<uint8_t*>(to);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  if (!uses_lanes(bytes)) {
    for (uint64_t first = 0; first < bytes; first += kDriverBytes) {
      execution_.check();
      copy_to_device(target + first, source + first, std::min(kDriverBytes, bytes - first), stream,
                     "sending to the device");
    }
    return;
  }
  each_piece(
      bytes, kPiece,
      [&](Lane& lane, uint64_t first, uint64_t count) {
        uint8_t* piece = lane.next();
        std::memcpy(piece, source + first, count);
        copy_to_device(target + first, piece, count, stream, "sending to the device");
        lane.queued(stream);
      },
      [](Lane&) {});
}

void Transfers::send_rows(void* to, uint64_t to_stride, const void* from, uint64_t from_stride,
                          uint64_t bytes, uint64_t rows, const Stream& stream) {
  if (to_stride == bytes && from_stride == bytes) return send(to, from, rows * bytes, stream);
  if (!uses_lanes(rows * to_stride))
    return send_by_driver(to, to_stride, from, from_stride, bytes, rows, stream, execution_);
  uint8_t* target = static_cast<uint8_t*>(to);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  each_piece(
      rows, kPiece / to_stride,
      [&](Lane& lane, uint64_t first, uint64_t count) {
        uint8_t* piece = lane.next();
        Target{piece, to_stride, bytes, count}.take(source + first * from_stride, from_stride);
        copy_to_device(target + first * to_stride, piece, count * to_stride, stream,
                       "sending rows to the device");
        lane.queued(stream);
      },
      [](Lane&) {});
}

void Transfers::fetch(void* to, const void* from, uint64_t bytes, const Stream& stream) {
  uint8_t* target = static_cast<uint8_t*>(to);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  if (!uses_lanes(bytes)) {
    for (uint64_t first = 0; first < bytes; first += kDriverBytes) {
      execution_.check();
      copy_to_host(target + first, source + first, std::min(kDriverBytes, bytes - first), stream,
                   "fetching from the device");
      stream.wait();
    }
    return;
  }
  each_piece(
      bytes, kPiece,
      [&](Lane& lane, uint64_t first, uint64_t count) {
        uint8_t* piece = lane.next();
        copy_to_host(piece, source + first, count, stream, "fetching from the device");
        lane.queued(stream);
        lane.deliver(true);
        lane.expect(piece, {target + first, count, count, 1});
      },
      [](Lane& lane) { lane.deliver(false); });
}

void Transfers::fetch_rows(void* to, uint64_t to_stride, const void* from, uint64_t from_stride,
                           uint64_t bytes, uint64_t rows, const Stream& stream) {
  if (to_stride == bytes && from_stride == bytes) return fetch(to, from, rows * bytes, stream);
  uint8_t* target = static_cast<uint8_t*>(to);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  if (!uses_lanes(rows * bytes)) {
    const uint64_t step = std::max<uint64_t>(1, kDriverBytes / bytes);
    for (uint64_t first = 0; first < rows; first += step) {
      execution_.check();
      const Target part = {target + first * to_stride, to_stride, bytes, std::min(step, rows - first)};
      copy_rows(part.data, to_stride, source + first * from_stride, from_stride, bytes, part.rows,
                cudaMemcpyDeviceToHost, stream, "fetching rows from the device");
      part.clear_behind();
      stream.wait();
    }
    return;
  }
  each_piece(
      rows, kPiece / bytes,
      [&](Lane& lane, uint64_t first, uint64_t count) {
        uint8_t* piece = lane.next();
        copy_rows(piece, bytes, source + first * from_stride, from_stride, bytes, count,
                  cudaMemcpyDeviceToHost, stream, "fetching rows from the device");
        lane.queued(stream);
        lane.deliver(true);
        lane.expect(piece, {target + first * to_stride, to_stride, bytes, count});
      },
      [](Lane& lane) { lane.deliver(false); });
}

}  // namespace gannet::cuda

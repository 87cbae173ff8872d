// Pieces of pinned memory that large copies to and from a device go through (backend/transfers.h), for them and for
// estimates.
#pragma once

#include <cstdint>

namespace gannet {

inline constexpr uint64_t kTransferPiece = uint64_t{1} << 20;  // 2 MB: 3.3 and 6.1 ms, and 64 MB of memory
inline constexpr uint64_t kTransferPage = 4096;                // that pieces start on

/// Host memory of `threads` lanes, each with two staging buffers.
constexpr uint64_t transfer_bytes(uint64_t threads) { return threads * 2 * kTransferPiece + kTransferPage; }

}  // namespace gannet

// Opening bytes in every way that there is, with what must hold whatever the bytes are.
#pragma once

#include <cstdint>
#include <vector>

#include "ann.h"
#include "bounded_memory.h"

namespace gannet::fuzz {

/// A copy of bytes that begins on a page and ends where its memory does, so that a sanitizer sees a
/// read of one byte too many.
class PagedBytes {
 public:
  explicit PagedBytes(const std::vector<uint8_t>& bytes);
  ~PagedBytes();
  PagedBytes(const PagedBytes&) = delete;
  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_;
};

/// A context whose memory is bounded.
class BoundedContext {
 public:
  explicit BoundedContext(uint64_t budget);
  ~BoundedContext() { ann_context_free(context_); }
  BoundedContext(const BoundedContext&) = delete;
  BoundedMemory& memory() { return memory_; }
  const ann_context* get() const { return context_; }

 private:
  BoundedMemory memory_;
  ann_context* context_ = nullptr;
};

/// What an open may hold of a file of this size: itself, its table once more, what is counted up to
/// cache lines.
constexpr uint64_t open_budget(uint64_t file_bytes) { return 2 * file_bytes + (64 << 10); }

enum class Way { kMemory, kStream, kFile };

/// Opens; demands that a refusal is one that a damaged file may meet, says why, leaves `*out` alone
/// and gives all memory back.
ann_status open_bytes(BoundedContext& context, const PagedBytes& bytes, Way way, int32_t mode,
                      uint32_t threads, ann_index** out);

/// The verdict of a verification, and of a look at the header.
ann_status verify_bytes(const PagedBytes& bytes, uint32_t threads);
ann_status describe_bytes(const PagedBytes& bytes, ann_file_description* out);

}  // namespace gannet::fuzz

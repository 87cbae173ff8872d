#include "base/memory.h"

#include <sys/mman.h>

namespace gannet {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* take_from_system(size_t bytes) {
  if (bytes < 2 * kHugePage) return std::aligned_alloc(kAlignment, bytes);
  // A search jumps between rows far apart. With pages of 4 KB nearly every jump also misses the
  // table of address translations; with 2 MB it seldom does. The system is advised, and may refuse.
  void* memory = std::aligned_alloc(kHugePage, round_up(bytes, kHugePage));
  if (memory != nullptr) ::madvise(memory, round_up(bytes, kHugePage), MADV_HUGEPAGE);
  return memory;
}

}  // namespace gannet

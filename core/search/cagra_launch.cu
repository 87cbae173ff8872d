// How CAGRA's searches are started: grid, shared memory and device memory of a plan.
//
// Both kernels run as many blocks as the device holds at once and let them take query after query. So the
// tables in device memory are as many as blocks (single-CTA, standard) or groups of blocks (multi-CTA) run,
// not as many as queries, and where memory is short, fewer run.

#include <algorithm>

#include "search/cagra_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kAlign = 256;
constexpr uint32_t kParentsAtOnce = 4;  // of a CTA of several, which has threads for each
// Beside the memory that the kernels declare. The first is always allowed, the second is the most that a plan needs.
constexpr size_t kSharedUsual = 40 << 10;
constexpr size_t kSharedMax = 80 << 10;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

uint32_t list_size_of(uint32_t list) {
  uint32_t size = 32;
  while (size < list) size *= 2;
  return size;
}

/// Blocks that the device holds at once.
uint32_t blocks_of(int32_t device, const CagraLaunch& choice) {
  // Always the most, so that searches on other threads do not take it away again.
  if (choice.shared_bytes > kSharedUsual) allow_shared(choice.function, kSharedMax);
  return blocks_at_once(device, choice.function, choice.threads, choice.shared_bytes);
}

/// Device memory of a launch that answers so many queries at a time.
void size_scratch(const CagraPlan& plan, uint32_t together, CagraLaunch* choice) {
  if (!plan.multi_cta) {
    choice->blocks = together;
    if (plan.reset == 0) choice->table_bytes = aligned(uint64_t{choice->blocks} * 4 << plan.hash_bits);
    return;
  }
  choice->groups = together;
  choice->blocks = together * plan.lists;
  choice->table_bytes = aligned(uint64_t{choice->groups} * 8 << plan.hash_bits);
  choice->found_bytes = aligned(uint64_t{choice->blocks} * list_size_of(plan.list) * 8);
  choice->progress_bytes = aligned(uint64_t{choice->blocks} * sizeof(uint32_t));
}

}  // namespace

CagraLaunch choose_cagra(int32_t device, RowKind kind, const CagraPlan& plan, uint32_t degree,
                         uint32_t count) {
  CagraLaunch choice;
  if (plan.multi_cta) {
    choice.function = multi_cta_kernel(kind);
    choice.threads = multi_cta_threads() * std::min(plan.width, kParentsAtOnce);
    choice.shared_bytes = multi_cta_shared_bytes(plan, degree);
    const uint32_t together = blocks_of(device, choice);
    if (together < plan.lists)
      fail(ANN_LIMIT, "params.ctas_per_query is %u, device %d runs %u at a time", plan.lists, device,
           together);
    size_scratch(plan, std::min(count, together / plan.lists), &choice);
  } else {
    choice.function = single_cta_kernel(kind);
    choice.threads = single_cta_threads(plan, degree);
    choice.shared_bytes = single_cta_shared_bytes(plan, degree);
    size_scratch(plan, std::min(count, blocks_of(device, choice)), &choice);
  }
  return choice;
}

DeviceArray<uint8_t> take_scratch(const CagraPlan& plan, CagraLaunch* choice, const Stream& stream) {
  for (;;) {
    const uint32_t together = plan.multi_cta ? choice->groups : choice->blocks;
    try {
      return DeviceArray<uint8_t>(choice->scratch_bytes(), stream);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY || together <= 1) throw;
    }
    size_scratch(plan, together / 2, choice);
  }
}

void start_cagra(const CagraLaunch& choice, const CagraPlan& plan, CagraArgs args, uint8_t* scratch,
                 const Stream& stream) {
  args.lists = plan.lists;
  args.list = plan.list;
  args.list_size = list_size_of(plan.list);
  args.width = plan.width;
  args.iterations_max = plan.iterations_max;
  args.hash_bits = plan.hash_bits;
  args.reset = plan.reset;
  args.team = plan.team;
  args.stored = plan.stored ? 1 : 0;
  args.groups = choice.groups;
  if (!plan.multi_cta) {
    if (choice.table_bytes != 0) args.tables = reinterpret_cast<uint32_t*>(scratch);
    return launch("single_cta", choice.function, choice.blocks, choice.threads, stream, args,
                  choice.shared_bytes);
  }
  args.claims = reinterpret_cast<uint64_t*>(scratch);
  args.found = reinterpret_cast<uint64_t*>(scratch + choice.table_bytes);
  args.progress = reinterpret_cast<uint32_t*>(scratch + choice.table_bytes + choice.found_bytes);
  const bool wait = plan.lists > 1;  // for each other, so that they must run at once
  if (wait) fill(args.progress, 0, choice.progress_bytes, stream, "clearing device memory");
  launch("multi_cta", choice.function, choice.blocks, choice.threads, stream, args, choice.shared_bytes,
         wait);
}

}  // namespace gannet::cuda

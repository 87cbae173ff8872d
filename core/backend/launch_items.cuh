// Kernels of items that know nothing of each other: a thread for each item, or a warp.
//
// A step is a plain struct over its arguments:
//
//   struct Step {
//     static constexpr uint32_t kLanes = 1;  // threads of an item; 32: a warp, whose lane is threadIdx.x % 32
//     const Args& args;
//     __device__ void run(uint64_t item) const;
//   };
#pragma once

#include "backend/launch.h"

namespace gannet::cuda {

inline constexpr uint32_t kItemThreads = 256;

template <class Args>
struct ItemArgs {
  Args args;
  uint64_t items;
};

template <class Step, class Args>
__global__ void __launch_bounds__(kItemThreads) item_kernel(const __grid_constant__ ItemArgs<Args> launched) {
  const uint64_t item = (uint64_t{blockIdx.x} * kItemThreads + threadIdx.x) / Step::kLanes;
  if (item < launched.items) Step{launched.args}.run(item);
}

template <class Step, class Args>
void launch_items(const char* name, uint64_t items, const Args& args, const Stream& stream) {
  const uint64_t blocks = (items * Step::kLanes + kItemThreads - 1) / kItemThreads;
  launch(name, item_kernel<Step, Args>, static_cast<uint32_t>(blocks), kItemThreads, stream,
         ItemArgs<Args>{args, items});
}

}  // namespace gannet::cuda

// Kernels of items that know nothing of each other: a thread for each item, or a warp.
//
// A step is a plain struct over its arguments:
//
//   struct Step {
//     static constexpr uint32_t kLanes = 1;  // threads of an item; 32: a warp, whose lane is threadIdx.x % 32
//     const Args& args;
//     __device__ void run(uint64_t item) const;
//   };
//
// Steps of few registers over the same arguments share one kernel, which gets the number of the step: all threads take
// one branch. The arguments list them: `using Steps = StepList<One, Another>;`.
#pragma once

#include <type_traits>

#include "backend/launch.h"

namespace gannet::cuda {

inline constexpr uint32_t kItemThreads = 256;
inline constexpr uint32_t kStepBlocks =
    8;  // of a multiprocessor: all threads that it holds, 32 registers each

template <class... Steps>
struct StepList {
  template <class Step>
  static constexpr bool holds = (std::is_same_v<Step, Steps> || ...);

  template <class Step>
  static constexpr uint32_t number_of() {
    static_assert(holds<Step>);
    uint32_t number = 0;
    bool found = false;
    ((found = found || std::is_same_v<Step, Steps>, number += found ? 0 : 1), ...);
    return number;
  }

  /// Calls body.operator()<Step>() for the step of a number.
  template <class Body>
  static __device__ void visit(uint32_t number, const Body& body) {
    uint32_t at = 0;
    ((at++ == number ? body.template operator()<Steps>() : void()), ...);
  }
};

template <class Args>
struct ItemArgs {
  Args args;
  uint64_t items;
  uint32_t step;  // its number, where steps share a kernel
};

template <class Step, class Args>
__device__ void run_item(const ItemArgs<Args>& launched) {
  const uint64_t item = (uint64_t{blockIdx.x} * kItemThreads + threadIdx.x) / Step::kLanes;
  if (item < launched.items) Step{launched.args}.run(item);
}

template <class Step, class Args>
__global__ void __launch_bounds__(kItemThreads) item_kernel(const __grid_constant__ ItemArgs<Args> launched) {
  run_item<Step>(launched);
}

template <class Args>
__global__ void __launch_bounds__(kItemThreads, kStepBlocks)
    steps_kernel(const __grid_constant__ ItemArgs<Args> launched) {
  Args::Steps::visit(launched.step, [&]<class Step>() { run_item<Step>(launched); });
}

/// The kernel of a step, and the step's number in it.
template <class Args>
struct ItemKernel {
  void (*function)(ItemArgs<Args>);
  uint32_t step;
};

template <class Step, class Args>
ItemKernel<Args> item_kernel_of() {
  if constexpr (requires { typename Args::Steps; }) {
    if constexpr (Args::Steps::template holds<Step>)
      return {steps_kernel<Args>, Args::Steps::template number_of<Step>()};
    else
      return {item_kernel<Step, Args>, 0};
  } else {
    return {item_kernel<Step, Args>, 0};
  }
}

template <class Step, class Args>
void launch_items(const char* name, uint64_t items, const Args& args, const Stream& stream) {
  const uint64_t blocks = (items * Step::kLanes + kItemThreads - 1) / kItemThreads;
  const ItemKernel<Args> kernel = item_kernel_of<Step, Args>();
  launch(name, kernel.function, static_cast<uint32_t>(blocks), kItemThreads, stream,
         ItemArgs<Args>{args, items, kernel.step});
}

}  // namespace gannet::cuda

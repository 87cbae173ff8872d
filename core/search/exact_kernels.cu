// Exact search on the GPU: its kernels, compiled, and which of them serves.

#include "search/exact_filter.cuh"

namespace gannet::cuda {
namespace exact_search {
namespace {

// Of few queries, which would leave a tall tile empty, one warp compares 8 with 4 rows of floats.
constexpr ExactTile kFewIntegers{.threads = 128, .queries = 32, .rows = 128};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ typename Step::Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

template <class Step>
ExactKernel floats() {
  return {kernel<Step>, Step::kTile, Step::kLanes, uint64_t{1} << 35};
}
template <class Step>
ExactKernel tensor_tiles(uint64_t launch_work) {
  return {kernel<Step>, Step::kTile, Step::kPanelColumns, launch_work};
}
template <class Step>
ExactKernel integers() {
  return tensor_tiles<Step>(uint64_t{1} << 39);
}

}  // namespace
}  // namespace exact_search

using namespace exact_search;

ExactKernel choose_exact_kernel(int32_t element, int32_t metric, bool few) {
  if (is_float_element(element)) {
    // Where nearly all pairs may be near, it takes as long as the sums of all: 16 times a launch's usual time.
    if (!few) return tensor_tiles<FilteredSearch<kExactFloats>>(uint64_t{1} << 37);
    return metric == ANN_METRIC_L2 ? floats<FloatSearch<false, kExactFewFloats>>()
                                   : floats<FloatSearch<true, kExactFewFloats>>();
  }
  if (element == ANN_I8)
    return few ? integers<IntegerSearch<true, kFewIntegers>>()
               : integers<IntegerSearch<true, kExactIntegers>>();
  return few ? integers<IntegerSearch<false, kFewIntegers>>()
             : integers<IntegerSearch<false, kExactIntegers>>();
}

void merge_exact_lists(const ExactArgs& args, const Stream& stream) {
  launch("merge_lists", kernel<MergeLists>, args.query_count, MergeLists::kThreads, stream, args);
}

void find_exact_centre(const MeasureArgs& args, const Stream& stream) {
  launch_items<Centre>("centre", args.centre_columns, MeasureSteps{args}, stream);
}

void find_exact_squares(const MeasureArgs& args, const Stream& stream) {
  launch_items<Squares>("squares", args.count, MeasureSteps{args}, stream);
}

}  // namespace gannet::cuda

// Exact search on the GPU: its kernels, compiled, and which of them serves.

#include "search/exact_near.cuh"

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
__global__ void __launch_bounds__(Step::kThreads, 1)
    filter_kernel(const __grid_constant__ typename Step::Args args) {
  extern __shared__ uint4 memory[];
  Step{args, *reinterpret_cast<typename Step::Shared*>(memory)}.run();
}

template <FilterTile kTile>
FilterKernel filter(uint64_t multiprocessors) {
  using Step = NearFilter<kTile>;
  allow_shared(filter_kernel<Step>, sizeof(typename Step::Shared));
  return {filter_kernel<Step>, kTile.rows, sizeof(typename Step::Shared), multiprocessors};
}

template <class Step>
ExactKernel floats() {
  return {kernel<Step>, Step::kTile, Step::kLanes, uint64_t{1} << 35};
}
template <class Step>
ExactKernel integers() {
  return {kernel<Step>, Step::kTile, Step::kPanelColumns, uint64_t{1} << 39};
}

}  // namespace
}  // namespace exact_search

using namespace exact_search;

ExactKernel choose_exact_kernel(int32_t element, int32_t metric, bool few) {
  if (is_float_element(element))
    return metric == ANN_METRIC_L2 ? floats<FloatSearch<false, kExactFewFloats>>()
                                   : floats<FloatSearch<true, kExactFewFloats>>();
  if (element == ANN_I8)
    return few ? integers<IntegerSearch<true, kFewIntegers>>()
               : integers<IntegerSearch<true, kExactIntegers>>();
  return few ? integers<IntegerSearch<false, kFewIntegers>>()
             : integers<IntegerSearch<false, kExactIntegers>>();
}

FilterKernel choose_filter_kernel(int32_t device) {
  int most = 0;
  check(runtime().attribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for shared memory of a block");
  int count = 0;
  check(runtime().attribute(&count, cudaDevAttrMultiProcessorCount, device), "asking for multiprocessors");
  const auto multiprocessors = static_cast<uint64_t>(count);
  using Wide = NearFilter<kWideFilter>;
  return static_cast<size_t>(most) >= sizeof(Wide::Shared) ? filter<kWideFilter>(multiprocessors)
                                                           : filter<kNarrowFilter>(multiprocessors);
}

void sum_marked_pairs(const ExactArgs& args, const Stream& stream) {
  launch("sum_marked_pairs", kernel<NearSums>, args.query_count, NearSums::kThreads, stream, args);
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

void find_exact_halves(const MeasureArgs& args, const Stream& stream) {
  launch_items<Halves>("halves", args.count, MeasureSteps{args}, stream);
}

}  // namespace gannet::cuda

// Exact search on the GPU: its kernels, compiled, and which of them serves.

#include "search/exact_near.cuh"
#include "search/exact_stream.cuh"

namespace gannet::cuda {
namespace exact_search {
namespace {

/// `kBlocks` of a multiprocessor at least; 0: as many as there is room for.
template <class Step, uint32_t kBlocks = 0>
__global__ void __launch_bounds__(Step::kThreads, kBlocks)
    kernel(const __grid_constant__ typename Step::Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, 1)
    filter_kernel(const __grid_constant__ typename Step::Args args) {
  extern __shared__ uint4 memory[];
  Step{args, *reinterpret_cast<typename Step::Shared*>(memory)}.run();
}

template <FilterTile kTile, class Products>
FilterKernel filter(uint64_t multiprocessors) {
  using Step = NearFilter<kTile, Products>;
  allow_shared(filter_kernel<Step>, sizeof(typename Step::Shared));
  return {filter_kernel<Step>, kTile.rows, sizeof(typename Step::Shared), multiprocessors};
}

template <FilterTile kTile>
FilterKernel filter_of(int32_t element, uint64_t multiprocessors) {
  if (element == ANN_U8) return filter<kTile, ByteProducts<false>>(multiprocessors);
  if (element == ANN_I8) return filter<kTile, ByteProducts<true>>(multiprocessors);
  return filter<kTile, HalfProducts>(multiprocessors);
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

ExactKernel choose_exact_kernel(int32_t element, int32_t metric, uint32_t queries) {
  if (queries <= kExactStreamed) {
    constexpr uint32_t kPanelColumns = 1;  // of no account
    constexpr uint32_t kBlocks = 2;        // whose reads hide each other's sorts
    const auto function =
        is_float_element(element) ? kernel<StreamSums<false>, kBlocks> : kernel<StreamSums<true>, kBlocks>;
    return {function, kExactStream, kPanelColumns, uint64_t{1} << 35};
  }
  if (element == ANN_U8) return integers<IntegerSearch<false, kExactFewIntegers>>();
  if (element == ANN_I8) return integers<IntegerSearch<true, kExactFewIntegers>>();
  return metric == ANN_METRIC_L2 ? floats<FloatSearch<false, kExactFewFloats>>()
                                 : floats<FloatSearch<true, kExactFewFloats>>();
}

FilterKernel choose_filter_kernel(int32_t device, int32_t element) {
  int most = 0;
  check(runtime().attribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for shared memory of a block");
  int count = 0;
  check(runtime().attribute(&count, cudaDevAttrMultiProcessorCount, device), "asking for multiprocessors");
  const auto multiprocessors = static_cast<uint64_t>(count);
  using Wide = NearFilter<kWideFilter, HalfProducts>;  // others take as much
  static_assert(sizeof(Wide::Shared) == sizeof(NearFilter<kWideFilter, ByteProducts<true>>::Shared));
  const bool is_wide = static_cast<size_t>(most) >= sizeof(Wide::Shared);
  return is_wide ? filter_of<kWideFilter>(element, multiprocessors)
                 : filter_of<kNarrowFilter>(element, multiprocessors);
}

void sum_marked_pairs(const ExactArgs& args, const Stream& stream) {
  const auto sums = is_float_element(args.element) ? kernel<NearSums<false>> : kernel<NearSums<true>>;
  launch("sum_marked_pairs", sums, args.query_count, kMergeThreads, stream, args);
}

void merge_exact_lists(const ExactArgs& args, const Stream& stream) {
  const bool many = args.slices > kFewSlices;
  const auto merge = many ? kernel<MergeLists<kManySlicesThreads>> : kernel<MergeLists<kMergeThreads>>;
  launch("merge_lists", merge, args.query_count, many ? kManySlicesThreads : kMergeThreads, stream, args);
}

void find_exact_centre(const MeasureArgs& args, const Stream& stream) {
  launch_items<Centre>("centre", args.centre_columns, MeasureSteps{args}, stream);
}

void find_exact_squares(const MeasureArgs& args, const Stream& stream) {
  launch_items<Squares>("squares", args.count, MeasureSteps{args}, stream);
}

void find_exact_byte_terms(const MeasureArgs& args, const Stream& stream) {
  launch_items<ByteTerms>("byte_terms", args.count, MeasureSteps{args}, stream);
}

void find_exact_halves(const MeasureArgs& args, const Stream& stream) {
  launch_items<Halves>("halves", args.count, MeasureSteps{args}, stream);
}

}  // namespace gannet::cuda

// Coding of the queries of a batch on the GPU (encode_steps.cuh says how).
//
// A block takes a query, a thread every 128th column. On the CPU this took 400 ns a query of 128 columns
// and core, ten times as long as the walk takes on the device.
//
// Bytes a query of 128 f32 columns: 512 in, 128 out, the centres stay in cache. Operations: some 12 a
// column. 10,000 queries are 6.4 MB: 3 us of memory time.

#include "search/encode_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <int32_t kElement, bool kWide>
__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ EncodeArgs args) {
  Encode<kElement, kWide>{args, args.queries + uint64_t{blockIdx.x} * args.query_stride,
                          args.codes + uint64_t{blockIdx.x} * args.code_stride}
      .run(threadIdx.x, kThreads);
}

// --- Host ----------------------------------------------------------------------------------------

template <int32_t kElement>
void start(const EncodeArgs& args, bool wide, const Stream& stream) {
  const auto kernel = wide ? encode<kElement, true> : encode<kElement, false>;
  launch("encode", kernel, args.count, kThreads, stream, args);
}

}  // namespace

void start_encode(const EncodeArgs& args, int32_t element, bool wide, const Stream& stream) {
  if (is_float_element(element)) return start<ANN_F32>(args, wide, stream);
  if (element == ANN_I8) return start<ANN_I8>(args, wide, stream);
  start<ANN_U8>(args, wide, stream);
}

}  // namespace gannet::cuda

// Coding of the queries of a batch for codes with a scale for each row (encode_scaled_steps.cuh says how). A
// block takes a query.
//
// Bytes a query of 128 f32 columns and one cell: 512 in, 512 out. With 256 cells the centres, 128 KB, are
// read from the second cache, 32 K products for a query: 10,000 queries are 330 M products, some 20 us of the
// device.

#include "search/encode_scaled_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <int32_t kElement>
__global__ void __launch_bounds__(kThreads) encode_scaled(const __grid_constant__ EncodeScaledArgs args) {
  __shared__ EncodeScaledShared shared;
  EncodeScaled<kElement>{args, shared, args.queries + uint64_t{blockIdx.x} * args.query_stride,
                         args.codes + uint64_t{blockIdx.x} * args.code_bytes}
      .run();
}

}  // namespace

void start_encode_scaled(const EncodeScaledArgs& args, int32_t element, const Stream& stream) {
  const auto kernel = is_float_element(element) ? encode_scaled<ANN_F32>
                      : element == ANN_I8       ? encode_scaled<ANN_I8>
                                                : encode_scaled<ANN_U8>;
  launch("encode scaled", kernel, args.count, kThreads, stream, args);
}

}  // namespace gannet::cuda

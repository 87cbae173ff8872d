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

struct Args {
  EncodeScaledArgs given;
  int32_t element;  // of the rows
};

__global__ void __launch_bounds__(kThreads) encode_scaled(const __grid_constant__ Args args) {
  __shared__ EncodeScaledShared shared;
  encode_scaled_query(args.given, args.element,
                      args.given.queries + uint64_t{blockIdx.x} * args.given.query_stride,
                      args.given.codes + uint64_t{blockIdx.x} * args.given.code_bytes, shared);
}

}  // namespace

void start_encode_scaled(const EncodeScaledArgs& args, int32_t element, const Stream& stream) {
  launch("encode scaled", encode_scaled, args.count, kThreads, stream, Args{args, element});
}

}  // namespace gannet::cuda

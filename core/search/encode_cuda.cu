// Coding of the queries of a batch on the GPU (encode_steps.cuh says how).
//
// A block takes a query, a thread every 128th column. On the CPU this took 400 ns a query of 128 columns
// and core, ten times as long as the walk takes on the device.
//
// Bytes a query of 128 f32 columns: 512 in, 128 out, the centres stay in cache. Operations: some 12 a
// column. 10,000 queries are 6.4 MB: 3 us of memory time, so that the element is chosen as the kernel runs.

#include "search/encode_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;

struct Args {
  EncodeArgs given;
  int32_t element;  // of the rows
  bool wide;        // codes are floats
};

__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ Args args) {
  const uint8_t* query = args.given.queries + uint64_t{blockIdx.x} * args.given.query_stride;
  uint8_t* code = args.given.codes + uint64_t{blockIdx.x} * args.given.code_stride;
  if (args.wide)
    encode_query<true>(args.given, args.element, query, code);
  else
    encode_query<false>(args.given, args.element, query, code);
}

}  // namespace

void start_encode(const EncodeArgs& args, int32_t element, bool wide, const Stream& stream) {
  launch("encode", encode, args.count, kThreads, stream, Args{args, element, wide});
}

}  // namespace gannet::cuda

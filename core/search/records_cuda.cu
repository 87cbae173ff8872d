// Queries on the GPU made records: checked, converted, and for cosine scaled and measured (record_steps.cuh says
// how). A warp takes a query.
//
// Bytes a query of 128 f32 columns: 512 in, 512 out. 10,000 queries are 10 MB: 3 us of memory time.
// Operations: some 10 a column. The length of a cosine's query is summed column by column, because its
// bits must be the CPU's; a lane squares a column of 32, and every lane adds all of them, 2 instructions a column and warp.
// Rows of i8 and u8 have sums that are exact in any order.

#include "search/record_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) make_records(const __grid_constant__ RecordArgs args) {
  __shared__ Squares squares[kWarps];
  const uint64_t number = uint64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (number >= args.count) return;
  uint8_t* record = args.records == nullptr ? nullptr : args.records + number * args.record_stride;
  const bool usable = make_record<WarpOfRecord>(args, args.queries + number * args.query_stride, record,
                                                args.norms == nullptr ? nullptr : args.norms + number,
                                                {squares[threadIdx.x / 32]});
  if (threadIdx.x % 32 == 0) args.usable[number] = usable ? 1 : 0;
}

}  // namespace

void start_records(const RecordArgs& args, const Stream& stream) {
  const uint32_t blocks = (args.count - 1) / kWarps + 1;
  launch("make_records", make_records, blocks, kThreads, stream, args);
}

}  // namespace gannet::cuda

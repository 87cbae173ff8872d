// Codes sent to a CUDA device.
//
//   here   words   a row's bytes, four at a time
//
// Bytes of device memory: each row is read and, if it is flipped, written once behind the transfer:
// 128 MB of rows cost some 0.1 ms where their way from the host costs 4.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>

#include "dataset/codes_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 256;

struct Args {
  uint32_t* words;    // [rows, words_per_row]
  uint32_t* squares;  // [rows], or null
  uint32_t rows;
  uint32_t words_per_row;
  uint32_t flip;  // xored with every word
};

/// Flips the bytes of a row and sums their squares, a warp for each row.
struct FlipAndSquare {
  const Args& args;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t row = uint64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
    if (row >= args.rows) return;
    uint32_t* words = args.words + row * args.words_per_row;
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < args.words_per_row; i += 32) {
      const uint32_t word = words[i] ^ args.flip;
      if (args.flip != 0) words[i] = word;
      sum = __dp4a(word, word, sum);
    }
    sum = cg::reduce(warp, sum, cg::plus<uint32_t>());
    if (warp.thread_rank() == 0 && args.squares != nullptr) args.squares[row] = sum;
  }
};

__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Args args) {
  FlipAndSquare{args}.run();
}

}  // namespace

void flip_and_square(uint8_t* vectors, uint32_t count, uint32_t stride, uint8_t flip, uint32_t* squares,
                     const Stream& stream) {
  if (count == 0) return;
  const Args args = {reinterpret_cast<uint32_t*>(vectors), squares, count, stride / 4, flip * 0x01010101u};
  launch("flip_and_square", kernel, (count - 1) / (kThreads / 32) + 1, kThreads, stream, args);
}

DeviceCodes::DeviceCodes(const Codes& codes, const Stream& stream)
    : rows_(codes.rows()),
      stride_(static_cast<uint32_t>(codes.stride())),
      flip_(codes.flip()),
      data_(std::make_unique<DeviceArray<uint8_t>>(uint64_t{rows_} * stride_, stream)),
      squares_(codes.wide() ? 0 : codes.rows(), stream) {}

DeviceCodes::DeviceCodes(const Codes& codes, const Stream& stream, Transfers& transfers)
    : DeviceCodes(codes, stream) {
  transfers.send(data_->data(), codes.data(), uint64_t{rows_} * stride_, stream);
  flip_and_square(stream);
}

DeviceCodes::DeviceCodes(const Codes& codes, const Stream& stream, const Execution& execution)
    : DeviceCodes(codes, stream, *std::make_unique<Transfers>(execution)) {}

void DeviceCodes::flip_and_square(const Stream& stream) const {
  if (squares_.data() == nullptr) return;  // wide
  cuda::flip_and_square(data_->data(), rows_, stride_, flip_, squares_.data(), stream);
}

}  // namespace gannet::cuda

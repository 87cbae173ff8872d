// Coding of queries on the GPU: dataset/codes.h says what a code is, Codes::encode_query makes the same
// on the CPU, byte for byte.
//
//   value      of a column: the query's, at length one for cosine, 0 in the extra columns
//   code       round((value - centre) / step) + 128 in a byte, or (value - centre) / largest as a float
//
// A block takes a query, a thread every 128th column. On the CPU this took 400 ns a query of 128 columns
// and core, ten times as long as the walk takes on the device.
//
// Bytes a query of 128 f32 columns: 512 in, 128 out, the centres stay in cache. Operations: some 12 a
// column. 10,000 queries are 6.4 MB: 3 us of memory time.

#include "dataset/coding_cuda.h"
#include "dataset/dataset.h"
#include "search/encode_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <int32_t kElement, bool kWide>
struct Encode {
  const EncodeArgs& args;
  const uint8_t* query = args.queries + uint64_t{blockIdx.x} * args.query_stride;
  uint8_t* code = args.codes + uint64_t{blockIdx.x} * args.code_stride;

  __device__ void run() const {
    const double scale = find_scale();
    constexpr uint32_t kColumnBytes = kWide ? sizeof(float) : 1;
    for (uint32_t column = threadIdx.x; column < args.code_stride / kColumnBytes; column += kThreads)
      write(column, column < args.columns ? scaled(column, scale) : 0, column < args.columns);
  }

  __device__ double find_scale() const {
    if (args.metric != ANN_METRIC_COSINE) return 1;
    const double norm = *reinterpret_cast<const double*>(query + args.value_bytes);
    return norm > 0 ? __ddiv_rn(1, norm) : 1;
  }

  __device__ float value(uint32_t column) const {
    if constexpr (kElement == ANN_F32) return reinterpret_cast<const float*>(query)[column];
    if constexpr (kElement == ANN_I8)
      return static_cast<float>(static_cast<int8_t>(query[column]));
    return static_cast<float>(query[column]);
  }

  __device__ float scaled(uint32_t column, double scale) const {
    const float given =
        column < args.dim ? static_cast<float>(__dmul_rn(value(column), scale)) : 0.0f;
    return in_steps(given, args.centre[column], args.inverse_step);
  }

  /// Zeros fill the row up.
  __device__ void write(uint32_t column, float number, bool exists) const {
    if constexpr (kWide)
      reinterpret_cast<float*>(code)[column] = exists ? wide_code(number) : 0.0f;
    else
      code[column] = exists ? byte_code(number) : uint8_t{0};
  }
};

template <int32_t kElement, bool kWide>
__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ EncodeArgs args) {
  Encode<kElement, kWide>{args}.run();
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

// Queries on the GPU made records: checked, converted, and for cosine scaled and measured.
//
//   query      the caller's vector: any element, stride and alignment
//   record     its values as the kernels take them: f32 for float rows, else the element, zeros behind
//
// A warp takes a query and goes through it twice: to look for NaN and infinity and for the largest
// value, and to write. The second time it comes from the cache.
//
// Bytes a query of 128 f32 columns: 512 in, 512 out. 10,000 queries are 10 MB: 3 us of memory time.
// Operations: some 10 a column. The length of a cosine's query is summed column by column, because its
// bits must be the CPU's; every lane adds the same numbers, 3 instructions a column and warp: 10,000
// queries of 128 columns are 10 us. Rows of i8 and u8 have sums that are exact in any order.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "distance/metric_cuda.cuh"
#include "search/records_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;

template <int32_t kElement, bool kAsFloats>
struct MakeRecord {
  using Value = std::conditional_t<kAsFloats, float, uint8_t>;

  const RecordArgs& args;
  uint64_t number = uint64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  const uint8_t* query = args.queries + number * args.query_stride;
  float half = 1;  // the scale, in two factors: the inverse of the smallest floats is none
  float rest = 1;

  __device__ void run() {
    if (number >= args.count) return;
    const bool usable = look();
    if (warp.thread_rank() == 0) args.usable[number] = usable ? 1 : 0;
    if (args.records == nullptr) return;
    const double norm = write(usable);
    if (warp.thread_rank() != 0) return;
    uint8_t* record = args.records + number * args.record_stride;
    // Blocks read records 16 bytes at a time.
    if (args.scaled && args.record_stride > args.value_bytes)
      *reinterpret_cast<double2*>(record + args.value_bytes) = {norm, 0};
    if (args.norms != nullptr) args.norms[number] = norm;
  }

  /// False where a value is not finite; chooses the scale.
  __device__ bool look() {
    if constexpr (!is_float_element(kElement) && !kAsFloats) return true;
    bool finite = true;
    float largest = 0;
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 32) {
      const float value = float_of(column);
      finite = finite && isfinite(value);
      largest = fmaxf(largest, fabsf(value));
    }
    if (!warp.all(finite)) return false;
    largest = cg::reduce(warp, largest, cg::greater<float>());
    if (args.scaled && largest > 0) {
      const int exponent = -ilogbf(largest);
      half = ldexpf(1, exponent / 2);
      rest = ldexpf(1, exponent - exponent / 2);
    }
    return true;
  }

  /// Writes the values, and returns their length where it counts.
  __device__ double write(bool usable) const {
    Value* values = reinterpret_cast<Value*>(args.records + number * args.record_stride);
    const uint32_t places = args.value_bytes / sizeof(Value);
    double sum = 0;
    for (uint32_t first = 0; first < places; first += 32) {
      const uint32_t column = first + warp.thread_rank();
      const Value value = usable && column < args.dim ? value_of(column) : nothing();
      if (column < places) values[column] = value;
      if (args.scaled && first < args.dim) sum = add_squares(sum, value);
    }
    return __dsqrt_rn(sum);
  }

  __device__ Value value_of(uint32_t column) const {
    if constexpr (kAsFloats)
      return __fmul_rn(__fmul_rn(float_of(column), half), rest);
    else
      return query[column] ^ args.flip;
  }

  /// The value behind the columns.
  __device__ Value nothing() const { return kAsFloats ? Value{0} : static_cast<Value>(args.flip); }

  /// Squares of floats are exact as doubles; their sum is rounded at every column.
  __device__ double add_squares(double sum, Value value) const {
    double number = static_cast<double>(value);
    if constexpr (kElement == ANN_I8 && !kAsFloats) number = static_cast<int8_t>(value);
    const double square = number * number;
    for (uint32_t lane = 0; lane < 32; ++lane) sum = __dadd_rn(sum, warp.shfl(square, lane));
    return sum;
  }

  __device__ float float_of(uint32_t column) const {
    return column_of<kElement>(query, column, args.aligned);
  }
};

struct Args {
  RecordArgs given;
  int32_t element;  // of the queries
  bool as_floats;   // records hold floats, else the elements
};

template <int32_t kElement>
__device__ void make_of_integers(const Args& args) {
  if (args.as_floats)
    MakeRecord<kElement, true>{args.given}.run();
  else
    MakeRecord<kElement, false>{args.given}.run();
}

/// One branch a query, which all threads take together: loops over columns are of one element.
__global__ void __launch_bounds__(kThreads) make_records(const __grid_constant__ Args args) {
  switch (args.element) {
    case ANN_F32:
      return MakeRecord<ANN_F32, true>{args.given}.run();
    case ANN_F16:
      return MakeRecord<ANN_F16, true>{args.given}.run();
    case ANN_BF16:
      return MakeRecord<ANN_BF16, true>{args.given}.run();
    case ANN_I8:
      return make_of_integers<ANN_I8>(args);
    default:
      return make_of_integers<ANN_U8>(args);
  }
}

}  // namespace

void start_records(const RecordArgs& args, int32_t element, bool as_floats, const Stream& stream) {
  const uint32_t blocks = (args.count - 1) / kWarps + 1;
  launch("make_records", make_records, blocks, kThreads, stream, Args{args, element, as_floats});
}

}  // namespace gannet::cuda

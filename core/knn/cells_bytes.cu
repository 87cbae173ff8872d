// Cells of wide codes: the bytes that stand in for floats where the map and the products read rows.
//
//   here      clip     the size that 0.2 % of sampled values exceed; it becomes 127 steps from the middle
//
// Wide codes are those that bytes cannot tell apart as neighbours (dataset/codes.h). They tell enough for
// cells and candidates: the rounds that follow compare rows as floats. Where too many rows have the same
// bytes the sample's recall shows that.
//
// Bytes: each row is read once and written as a byte a column.

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/launch_items.cuh"
#include "base/execution.h"
#include "knn/cells_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kSampledValues = 1 << 16;
constexpr double kKept = 0.998;

struct EncodeRow;
struct SortRow;

struct Args {
  using Steps = StepList<EncodeRow, SortRow>;

  CodesView from;
  uint8_t* codes;     // [rows, stride]
  uint32_t* squares;  // [rows]
  uint32_t stride;
  float inverse_step;
  const uint32_t* members;  // [rows]
  uint8_t* sorted;          // [rows, from.stride]
};

struct EncodeRow {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t row) const {
    const float* values = reinterpret_cast<const float*>(args.from.row(row));
    uint8_t* code = args.codes + row * args.stride;
    uint32_t square = 0;
    for (uint32_t column = threadIdx.x % 32; column < args.stride; column += 32) {
      const bool there = column < args.from.stride / sizeof(float);
      const float scaled = there ? values[column] * args.inverse_step + 128.5f : 0.0f;
      const uint32_t byte = static_cast<uint32_t>(fminf(255.0f, fmaxf(0.0f, scaled)));
      code[column] = static_cast<uint8_t>(byte);
      square += byte * byte;
    }
    square = __reduce_add_sync(~0u, square);
    if (threadIdx.x % 32 == 0) args.squares[row] = square;
  }
};

/// A thread for 16 bytes of a row.
struct SortRow {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const uint32_t pieces = args.from.stride / 16;
    const uint32_t row = args.members[item / pieces];
    reinterpret_cast<uint4*>(args.sorted)[item] =
        reinterpret_cast<const uint4*>(args.from.row(row))[item % pieces];
  }
};

/// The clip, from rows at equal steps.
float find_clip(const CodesView& codes, const Stream& stream) {
  const size_t columns = codes.stride / sizeof(float);
  const size_t rows = std::clamp<size_t>(kSampledValues / columns, 1, codes.rows);
  std::vector<float> values(rows * columns);
  copy_rows(values.data(), codes.stride, codes.data, codes.rows / rows * codes.stride, codes.stride, rows,
            cudaMemcpyDeviceToHost, stream, "fetching sampled codes");
  stream.wait();
  std::erase(values, 0.0f);  // columns that only fill rows up
  if (values.empty()) return 1;
  for (float& value : values) value = std::fabs(value);
  const auto kept = values.begin() + static_cast<ptrdiff_t>(kKept * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), kept, values.end());
  return *kept;
}

constexpr uint32_t byte_stride(const CodesView& wide) {
  return static_cast<uint32_t>(round_up(wide.stride / sizeof(float), kCodeAlign));
}

}  // namespace

WideAsBytes::WideAsBytes(const CodesView& wide, const Stream& stream)
    : rows_(wide.rows),
      stride_(byte_stride(wide)),
      codes_(uint64_t{rows_} * stride_, stream),
      squares_(rows_, stream) {
  Args args = {};
  args.from = wide;
  args.codes = codes_.data();
  args.squares = squares_.data();
  args.stride = stride_;
  args.inverse_step = 127 / find_clip(wide, stream);
  launch_items<EncodeRow>("encode_row", rows_, args, stream);
}

void sort_by_place(const CodesView& codes, const uint32_t* members, uint8_t* sorted, const Stream& stream) {
  Args args = {};
  args.from = codes;
  args.members = members;
  args.sorted = sorted;
  launch_items<SortRow>("sort_row", uint64_t{codes.rows} * (codes.stride / 16), args, stream);
}

}  // namespace gannet::cuda

// Rows of a caller on the device: looked at, coded, and on their way to the host.
//
//   row        the caller's: any element, stride and alignment
//   length     of a row, for cosine and inner product: a sum of doubles in the order of columns, as on
//              the CPU
//   sample     4,096 rows, which the host gets first, because it fits the codes to them; of rows that it sends it has
//              them, and neither surveys nor gathers any here
//
//   Survey     a warp a row: the first NaN or infinity of all, and the largest length
//   Gather     the sampled rows side by side
//   Encode     a warp a row: its code, as Codes makes it
//
// Bytes a row of 128 f32 columns: 512 read by Survey, 512 read and 128 written by Encode; rows of bytes
// are copied as they are. 1M rows are 1.2 GB, some 0.5 ms on one NVIDIA H200. Operations: some 10 a column,
// with a branch by the element that all threads take, and 3 instructions a column and warp for a length. Then
// 640 MB go to the host while lists are found.
//
// Milliseconds of 1M rows of 128 columns, one NVIDIA H200 with 16 processor cores: f32 codes are there after
// 5, of which the host takes most to fit them; rows and codes are on the host about when the graph is found;
// the whole build takes 62, and 57 of u8 rows. The memory that copies go through is pinned
// first, in 2: left to the first copy it waited for all work that was queued on the device, and builds took 137
// and 94. Rejected: copying rows while codes are fitted, by 15 threads, 77 and 66, since they fight for
// processors; 15 threads after that, 73 and 65, since they take 4 to pin their memory.

#include <cooperative_groups.h>

#include <exception>
#include <future>
#include <latch>
#include <system_error>
#include <thread>

#include "backend/transfers.h"
#include "base/detached_thread.h"
#include "dataset/ingest.h"
#include "dataset/codes_cuda.h"
#include "dataset/coding_cuda.h"
#include "distance/element_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;

struct Found {
  unsigned long long first_bad;     // row * dim + column of the first value that is not finite, or all ones
  unsigned long long longest_bits;  // of the largest length; those of doubles >= 0 keep their order
};

struct Args {
  const uint8_t* rows;     // [count] rows
  uint64_t row_stride;     // bytes
  Found* found;            // the result of Survey
  const uint32_t* sample;  // [sample_count] rows that Gather brings together,
  uint8_t* gathered;       // [sample_count, row_bytes] here
  const float* centre;     // [columns]
  uint8_t* codes;          // [count, code_stride] that Encode writes
  double norm_max;
  uint32_t row_bytes;
  uint32_t code_stride;  // bytes
  uint32_t count;
  uint32_t dim;
  uint32_t columns;  // of a code: dim, and for inner product the extra ones
  int32_t metric;
  int32_t element;
  float inverse_step;
  bool wide;     // codes are floats
  bool aligned;  // rows start on multiples of the element's size
};

/// A row and the warp that has it.
struct RowWarp {
  const Args& args;
  uint64_t number = uint64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  const uint8_t* row = args.rows + number * args.row_stride;

  __device__ float value(uint32_t column) const {
    return column < args.dim ? column_of(args.element, row, column, args.aligned) : 0.0f;
  }

  /// Squares of floats are exact as doubles; their sum is rounded at every column.
  __device__ double length() const {
    double sum = 0;
    for (uint32_t first = 0; first < args.dim; first += 32) {
      const double mine = value(first + warp.thread_rank());
      const double square = mine * mine;
      for (uint32_t lane = 0; lane < 32; ++lane) sum = __dadd_rn(sum, warp.shfl(square, lane));
    }
    return __dsqrt_rn(sum);
  }
};

struct Survey : RowWarp {
  __device__ void run() const {
    if (number >= args.count) return;
    if (is_float_element(args.element)) {
      for (uint32_t first = 0; first < args.dim; first += 32) {
        const uint32_t bad = warp.ballot(!isfinite(value(first + warp.thread_rank())));
        if (bad == 0) continue;
        if (warp.thread_rank() == 0)
          atomicMin(&args.found->first_bad, number * args.dim + first + __ffs(bad) - 1);
        return;
      }
    }
    if (args.metric != ANN_METRIC_INNER_PRODUCT) return;
    const unsigned long long bits = __double_as_longlong(length());
    const volatile unsigned long long* longest = &args.found->longest_bits;
    if (warp.thread_rank() == 0 && bits > *longest) atomicMax(&args.found->longest_bits, bits);
  }
};

struct Gather {
  const Args& args;

  __device__ void run() const {
    const uint8_t* row = args.rows + args.sample[blockIdx.x] * args.row_stride;
    uint8_t* to = args.gathered + uint64_t{blockIdx.x} * args.row_bytes;
    for (uint32_t byte = threadIdx.x; byte < args.row_bytes; byte += kThreads) to[byte] = row[byte];
  }
};

struct Encode : RowWarp {
  __device__ void run() const {
    if (number >= args.count) return;
    const double norm = args.metric == ANN_METRIC_L2 ? 0 : length();
    const double scale = args.metric == ANN_METRIC_COSINE && norm > 0 ? __ddiv_rn(1, norm) : 1;
    const float extra = args.metric == ANN_METRIC_INNER_PRODUCT ? extra_value(norm) : 0;
    const uint32_t places = args.wide ? args.code_stride / sizeof(float) : args.code_stride;
    for (uint32_t column = warp.thread_rank(); column < places; column += 32) {
      float given = value(column);
      if (args.metric == ANN_METRIC_COSINE) given = static_cast<float>(__dmul_rn(given, scale));
      write(column, column < args.dim ? given : extra);
    }
  }

  /// The value of each of the extra columns of inner product.
  __device__ float extra_value(double norm) const {
    const double rest = __dsub_rn(__dmul_rn(args.norm_max, args.norm_max), __dmul_rn(norm, norm));
    return static_cast<float>(__dsqrt_rn(__ddiv_rn(rest > 0 ? rest : 0, Codes::kSplit)));
  }

  /// Zeros fill the row up.
  __device__ void write(uint32_t column, float value) const {
    uint8_t* code = args.codes + number * args.code_stride;
    const bool exists = column < args.columns;
    const float steps = exists ? in_steps(value, args.centre[column], args.inverse_step) : 0;
    if (args.wide)
      reinterpret_cast<float*>(code)[column] = exists ? wide_code(steps) : 0.0f;
    else
      code[column] = exists ? byte_code(steps) : uint8_t{0};
  }
};

__global__ void __launch_bounds__(kThreads) survey(const __grid_constant__ Args args) { Survey{args}.run(); }

__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ Args args) { Gather{args}.run(); }

__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ Args args) { Encode{args}.run(); }

// --- Host ----------------------------------------------------------------------------------------

class RowsIngest final : public DeviceIngest {
 public:
  /// Rows of the caller.
  RowsIngest(const MatrixView& rows, int32_t metric, const Execution& execution)
      : device_(rows.space - ANN_DEVICE_CUDA), execution_(execution) {
    const DeviceGuard guard(device_);
    begin();
    describe(rows, metric);
    survey_rows();
  }

  /// Rows that are sent, when codes are made.
  RowsIngest(const Dataset& dataset, int32_t device, const Execution& execution)
      : device_(device - ANN_DEVICE_CUDA), execution_(execution) {
    const DeviceGuard guard(device_);
    is_alone_ = execution.threads == 1;
    begin();
    const RowsView& here = dataset.view();
    const uint64_t stride = Dataset::stored_stride(here.dim, dataset.metric(), here.element);
    sent_ = std::make_unique<DeviceArray<uint8_t>>(dataset.rows() * stride, *stream_);
    describe({sent_->data(), dataset.rows(), here.dim, here.element, stride, device}, dataset.metric());
  }

  ~RowsIngest() override {
    if (thread_.joinable()) thread_.join();
    const LastDeviceGuard guard(device_);
    transfers_.reset();
    codes_.reset();
    sent_.reset();
    stream_.reset();
  }

  const MatrixView& rows() const override { return rows_; }

  Codes make_codes(Dataset& dataset, uint64_t seed, const Execution& execution) override {
    const DeviceGuard guard(device_);
    Codes codes;
    try {
      start(dataset);
      codes = fit(dataset, seed, execution);
      prepared_.wait();
      if (unprepared_ != nullptr) std::rethrow_exception(unprepared_);
      make_on_device(codes);
    } catch (...) {
      codes_made_.set_value({});
      throw;
    }
    codes_made_.set_value({codes.host_buffer(), codes_->view().data, uint64_t{args_.count} * codes.stride()});
    if (!thread_.joinable()) fill_host_copy(dataset);
    return codes;
  }

  std::unique_ptr<DeviceCodes> take_codes() override { return std::move(codes_); }
  std::unique_ptr<Stream> take_stream() override { return std::move(stream_); }
  std::unique_ptr<DeviceArray<uint8_t>> take_rows() override { return std::move(sent_); }

  Transfers& transfers() override { return *transfers_; }

  void wait() override {
    if (thread_.joinable()) thread_.join();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void begin() {
    execution_.threads = std::clamp(execution_.threads - 1, 1u, kIngestCopiers);
    stream_ = std::make_unique<Stream>();
    transfers_ = std::make_unique<Transfers>(execution_);
  }

  void describe(const MatrixView& rows, int32_t metric) {
    rows_ = rows;
    host_has_rows_ = sent_ != nullptr;
    args_.rows = rows.data;
    args_.row_stride = rows.stride;
    args_.row_bytes = rows.dim * element_bytes(rows.element);
    args_.count = static_cast<uint32_t>(rows.rows);
    args_.dim = rows.dim;
    args_.columns = Codes::code_columns(rows.dim, metric);
    args_.metric = metric;
    args_.element = rows.element;
    args_.aligned = rows.stride % element_bytes(rows.element) == 0 &&
                    reinterpret_cast<uintptr_t>(rows.data) % element_bytes(rows.element) == 0;
  }

  uint32_t blocks() const { return (args_.count - 1) / kWarps + 1; }

  void survey_rows() {
    if (!is_float_element(rows_.element) && args_.metric != ANN_METRIC_INNER_PRODUCT) return;
    Found found = {~0ull, 0};
    const DeviceArray<Found> there(1, *stream_);
    copy_to_device(there.data(), &found, sizeof found, *stream_, "sending what is known of rows");
    args_.found = there.data();
    launch("survey", survey, blocks(), kThreads, *stream_, args_);
    copy_to_host(&found, there.data(), sizeof found, *stream_, "fetching what is known of rows");
    stream_->wait();
    if (found.first_bad != ~0ull) fail_not_finite(found.first_bad / rows_.dim, found.first_bad % rows_.dim);
    args_.norm_max = std::bit_cast<double>(found.longest_bits);
  }

  /// The host fits the codes, to a sample of the rows.
  Codes fit(const Dataset& dataset, uint64_t seed, const Execution& execution) {
    if (host_has_rows_) return Codes::to_be_made(dataset, seed, execution);
    if (Codes::rows_serve(args_.metric, rows_.element, false))
      return Codes(dataset, RowsView(), 0, execution);
    const Array<uint32_t> sample = Codes::sample_of(args_.count, seed, execution.memory);
    Array<uint8_t> here(execution.memory, checked_product(sample.size(), args_.row_bytes));
    const DeviceArray<uint32_t> numbers(sample.size(), *stream_);
    const DeviceArray<uint8_t> gathered(here.size(), *stream_);
    copy_to_device(numbers.data(), sample.data(), sample.size() * sizeof(uint32_t), *stream_,
                   "sending numbers of rows");
    args_.sample = numbers.data();
    args_.gathered = gathered.data();
    launch("gather", gather, static_cast<uint32_t>(sample.size()), kThreads, *stream_, args_);
    copy_to_host(here.data(), gathered.data(), here.size(), *stream_, "fetching a sample of rows");
    stream_->wait();
    return Codes(dataset, {here.data(), args_.row_bytes, rows_.dim, rows_.element}, args_.norm_max,
                 execution);
  }

  void copy_as_codes(const Codes& codes, uint8_t* to) const {
    if (codes.stride() != args_.row_bytes)
      fill(to, 0, uint64_t{args_.count} * codes.stride(), *stream_, "clearing codes");
    copy_rows(to, codes.stride(), rows_.data, rows_.stride, args_.row_bytes, args_.count,
              cudaMemcpyDeviceToDevice, *stream_, "copying rows");
  }

  void make_on_device(const Codes& codes) {
    const DeviceArray<float> centre(codes.centre().size(), *stream_);
    copy_to_device(centre.data(), codes.centre().data(), codes.centre().size() * sizeof(float), *stream_,
                   "sending the centre of codes");
    codes_ = std::make_unique<DeviceCodes>(codes, *stream_, [&](uint8_t* to) {
      if (codes.lossless()) return copy_as_codes(codes, to);
      encode_rows(codes, centre.data(), to);
    });
    stream_->wait();
  }

  void encode_rows(const Codes& codes, const float* centre, uint8_t* to) {
    args_.centre = centre;
    args_.codes = to;
    args_.code_stride = static_cast<uint32_t>(codes.stride());
    args_.inverse_step = codes.inverse_step();
    args_.wide = codes.wide();
    launch("encode", encode, blocks(), kThreads, *stream_, args_);
  }

  /// Starts the thread that sends rows and fills the host's copy. Where there is none to be had, or rows of the host come
  /// with one thread, make_codes does its work.
  void start(Dataset& dataset) {
    if (is_alone_) return prepare(dataset);
    try {
      const SignalsBlocked blocked;
      thread_ = std::thread([this, &dataset] {
        prepare(dataset);
        fill_host_copy(dataset);
      });
    } catch (const std::system_error&) {
      prepare(dataset);
    }
  }

  /// Pins the memory that copies go through, and sends the rows that are to be sent.
  void prepare(const Dataset& dataset) noexcept {
    try {
      const DeviceGuard guard(device_);
      if (host_has_rows_)
        transfers_->send_rows(sent_->data(), args_.row_stride, dataset.view().data, dataset.view().stride,
                              args_.row_bytes, args_.count, *stream_);
      else
        transfers_->prepare(uint64_t{args_.count} * args_.row_bytes);
    } catch (...) {
      unprepared_ = std::current_exception();
    }
    prepared_.count_down();
  }

  /// Brings rows and codes when those have been made.
  void fill_host_copy(Dataset& dataset) noexcept {
    try {
      const DeviceGuard guard(device_);
      const Stream stream;
      const Made made = codes_made_.get_future().get();
      if (!host_has_rows_) fetch_rows(dataset, stream);
      if (made.to != nullptr) transfers_->fetch(made.to, made.from, made.bytes, stream);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void fetch_rows(Dataset& dataset, const Stream& stream) {
    transfers_->fetch_rows(dataset.host_buffer(), dataset.view().stride, rows_.data, rows_.stride,
                           args_.row_bytes, args_.count, stream);
    dataset.complete(execution_);
  }

  /// Codes beside the rows, if there are any. On the device they are then as the host has them.
  struct Made {
    uint8_t* to = nullptr;
    const uint8_t* from = nullptr;
    uint64_t bytes = 0;
  };

  MatrixView rows_;
  bool host_has_rows_ = false;
  bool is_alone_ = false;  // the caller's thread
  int32_t device_;
  Execution execution_;
  Args args_ = {};
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceArray<uint8_t>> sent_;  // [rows, stride], until it is taken; null: rows of the caller
  std::unique_ptr<DeviceCodes> codes_;
  std::unique_ptr<Transfers> transfers_;
  std::thread thread_;
  std::latch prepared_{1};
  std::promise<Made> codes_made_;
  std::exception_ptr unprepared_;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<DeviceIngest> ingest_rows(const MatrixView& rows, int32_t metric,
                                          const Execution& execution) {
  return std::make_unique<RowsIngest>(rows, metric, execution);
}

std::unique_ptr<DeviceIngest> send_rows(const Dataset& dataset, int32_t device, const Execution& execution) {
  return std::make_unique<RowsIngest>(dataset, device, execution);
}

}  // namespace gannet::cuda

// Claims about faults: a kernel that fails takes CUDA away from the process, with ANN_DEVICE_LOST at
// once and ever after, and the CPU goes on. Ends with 77 where there is no CUDA device.

#include <cstdio>

#include "backend/devices.h"
#include "backend/launch.h"
#include "dataset/dataset.h"
#include "search/exact_cuda.h"

namespace {

using namespace gannet;

struct Nothing {};
__global__ void fault(const __grid_constant__ Nothing) { __trap(); }

int failures = 0;

void expect(bool holds, const char* what) {
  std::printf("%s  %s\n", holds ? "holds" : "FAILS", what);
  failures += !holds;
}

template <class Work>
ann_status status_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    std::printf("       %d, CUDA %d: %s\n", error.status, error.cuda_error, error.message);
    return error.status;
  }
  return ANN_OK;
}

}  // namespace

int main() {
  const char* reason = "";
  if (cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  const uint8_t values[4] = {0, 2, 4, 6};
  const Dataset dataset({values, 4, 1, ANN_U8, 1}, nullptr, ANN_METRIC_L2, ANN_U8, false, {});
  uint32_t rows[2];
  float distances[2];
  cuda::ExactRequest request;
  request.rows = dataset.view();
  request.row_count = 4;
  request.metric = ANN_METRIC_L2;
  request.queries = values + 3;
  request.query_count = 1;
  request.k = 2;
  request.out_rows = rows;
  request.out_distances = distances;
  const auto search = [&] { cuda::search_exact(request, Execution()); };

  expect(status_of(search) == ANN_OK && rows[0] == 3 && rows[1] == 2, "a search before the fault");
  {
    int before = 0;
    int after = 1;
    cudaGetDevice(&before);
    status_of(search);
    cudaGetDevice(&after);
    expect(before == after, "the caller's device stays current");
  }
  {
    cudaSetDevice(9999);  // an error that a caller left behind
    expect(status_of(search) == ANN_OK, "a stale error of the caller does no harm");
  }
  expect(status_of([&] {
           const cuda::DeviceGuard guard(0);
           const cuda::Stream stream;
           const cuda::DeviceArray<uint8_t> too_much(uint64_t{1} << 46, stream);
         }) == ANN_DEVICE_NO_MEMORY,
         "more memory than the device has is refused");
  expect(status_of(search) == ANN_OK, "a search after that");
  expect(status_of([&] {
           const cuda::DeviceGuard guard(0);
           const cuda::Stream stream;
           cuda::launch("fault", fault, 1, 1, stream, Nothing());
           stream.wait();
         }) == ANN_DEVICE_LOST,
         "the fault is ANN_DEVICE_LOST");
  expect(status_of(search) == ANN_DEVICE_LOST, "so is every later search");
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  expect(status_of([&] { describe_device(ANN_DEVICE_CUDA, &info); }) == ANN_DEVICE_LOST,
         "and a description of the device");
  expect(status_of([&] { describe_device(ANN_DEVICE_CPU, &info); }) == ANN_OK && info.name[0] != 0,
         "the CPU can be described");
  PreparedQuery query;
  query.values = values + 3;
  float distance = 0;
  dataset.distances(query, nullptr, 0, 1, &distance);
  expect(distance == 36, "and the CPU computes");
  return failures == 0 ? 0 : 1;
}

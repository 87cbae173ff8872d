#include "backend/devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "base/environment.h"
#include "base/error.h"

namespace gannet {
namespace {

/// The text behind "model name" in /proc/cpuinfo, or "CPU" where there is no such line.
void write_cpu_name(char* name, size_t capacity) {
  std::snprintf(name, capacity, "CPU");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/cpuinfo", "re"), &std::fclose);
  if (file == nullptr) return;
  char line[512];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, "model name", 10) != 0) continue;
    const char* text = std::strchr(line, ':');
    if (text == nullptr) return;
    text += 1 + std::strspn(text + 1, " \t");
    const size_t length = std::strcspn(text, "\n");
    if (length != 0) std::snprintf(name, capacity, "%.*s", static_cast<int>(length), text);
    return;
  }
}

uint64_t memory_bytes(int pages_name) {
  const long pages = sysconf(pages_name);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
}

void describe_cpu(ann_device_info* out) {
  out->device = ANN_DEVICE_CPU;
  out->memory_total = memory_bytes(_SC_PHYS_PAGES);
  out->memory_free = memory_bytes(_SC_AVPHYS_PAGES);
  out->compute_units = thread_count(0, 0);
  out->capability = 0;
  write_cpu_name(out->name, sizeof out->name);
}

}  // namespace

uint32_t cuda_device_count(const char** reason) {
  const char* text = "";
  uint32_t count = 0;
  const char* backend = environment_backend();
  if (backend != nullptr && std::strcmp(backend, "cpu") == 0) {
    text = "CUDA devices are hidden by GANNET_BACKEND=cpu";
  } else {
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
    const cuda::Probe& found = cuda::probe();
    const bool closed = found.count > 0 && cuda::is_child();
    count = closed ? 0 : found.count;
    text = closed ? cuda::kForked : found.reason;
#else
    text = "this library was built without CUDA";
#endif
  }
  if (reason != nullptr) *reason = text;
  return count;
}

void check_cuda_device(int32_t device) {
  if (device < ANN_DEVICE_CUDA)
    fail(ANN_NO_DEVICE, "device is %d; %d is the CPU, %d the first CUDA device", device, int{ANN_DEVICE_CPU},
         int{ANN_DEVICE_CUDA});
  const char* reason = "";
  const uint32_t count = cuda_device_count(&reason);
  if (count == 0) fail(ANN_NO_DEVICE, "device is %d, but %s", device, reason);
  if (static_cast<uint32_t>(device - ANN_DEVICE_CUDA) >= count)
    fail(ANN_NO_DEVICE, "device is %d; CUDA devices are %d to %d", device, int{ANN_DEVICE_CUDA},
         static_cast<int>(ANN_DEVICE_CUDA + count - 1));
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::require_live();
#endif
}

int32_t choose_device(int32_t device) {
  if (device != ANN_DEVICE_AUTO) return device;
  const char* backend = environment_backend();
  return backend != nullptr && std::strcmp(backend, "cuda") == 0 ? int32_t{ANN_DEVICE_CUDA}
                                                                 : int32_t{ANN_DEVICE_CPU};
}

void check_on_device(std::span<const CallerMemory> parts, void* stream, int32_t device) {
  check_cuda_device(device);
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::check_on_device(parts, stream, device - ANN_DEVICE_CUDA);
#else
  (void)parts, (void)stream;
#endif
}

void wait_for_default_streams(int32_t device) {
  check_cuda_device(device);
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::wait_for_default_streams(device - ANN_DEVICE_CUDA);
#endif
}

void fetch_rows(const void* from, uint64_t stride, uint64_t bytes, uint64_t rows, int32_t device, void* to,
                const Execution& execution) {
  check_cuda_device(device);
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::fetch_rows(from, stride, bytes, rows, device - ANN_DEVICE_CUDA, to, execution);
#else
  (void)from, (void)stride, (void)bytes, (void)rows, (void)to, (void)execution;
#endif
}

void trim_device_memory([[maybe_unused]] bool always) noexcept {
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::trim_memory(always);
#endif
}

void describe_device(int32_t device, ann_device_info* out) {
  if (device == ANN_DEVICE_CPU) return describe_cpu(out);
  check_cuda_device(device);
#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
  cuda::describe(device - ANN_DEVICE_CUDA, out);
  out->device = device;
#endif
}

}  // namespace gannet

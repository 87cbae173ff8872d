#include "device_memory.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "ann.h"

namespace bench {

namespace {

using Result = int;  // CUresult; 0 is success
using Address = unsigned long long;

// What is used of the driver, by the names of its current interface.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*device_get)(int* device, int ordinal);
  Result (*context_retain)(void** context, int device);
  Result (*context_set)(void* context);
  Result (*error_name)(Result result, const char** name);
  Result (*allocate)(Address* address, size_t bytes);
  Result (*release)(Address address);
  Result (*copy_in)(Address to, const void* from, size_t bytes);
  Result (*copy_out)(void* to, Address from, size_t bytes);
  Result (*stream_create)(void** stream, unsigned flags);
  Result (*stream_destroy)(void* stream);
  Result (*stream_wait)(void* stream);
  Result (*event_create)(void** event, unsigned flags);
  Result (*event_destroy)(void* event);
  Result (*event_record)(void* event, void* stream);
  Result (*event_elapsed)(float* milliseconds, void* start, void* end);
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
}

const Driver& driver() {
  static const Driver found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(std::string("no CUDA driver: ") + dlerror());
    Driver out;
    find(library, "cuInit", out.init);
    find(library, "cuDeviceGet", out.device_get);
    find(library, "cuDevicePrimaryCtxRetain", out.context_retain);
    find(library, "cuCtxSetCurrent", out.context_set);
    find(library, "cuGetErrorName", out.error_name);
    find(library, "cuMemAlloc_v2", out.allocate);
    find(library, "cuMemFree_v2", out.release);
    find(library, "cuMemcpyHtoD_v2", out.copy_in);
    find(library, "cuMemcpyDtoH_v2", out.copy_out);
    find(library, "cuStreamCreate", out.stream_create);
    find(library, "cuStreamDestroy_v2", out.stream_destroy);
    find(library, "cuStreamSynchronize", out.stream_wait);
    find(library, "cuEventCreate", out.event_create);
    find(library, "cuEventDestroy_v2", out.event_destroy);
    find(library, "cuEventRecord", out.event_record);
    find(library, "cuEventElapsedTime", out.event_elapsed);
    return out;
  }();
  return found;
}

void check_driver(Result result, const char* what) {
  if (result == 0) return;
  const char* name = nullptr;
  driver().error_name(result, &name);
  throw std::runtime_error(std::string(what) + ": " + (name == nullptr ? "unknown error" : name));
}

// Makes the device's context that of the calling thread.
void use(int32_t device) {
  static std::mutex mutex;
  static std::map<int32_t, void*> contexts;  // kept for the life of the program
  const std::lock_guard lock(mutex);
  void*& context = contexts[device];
  if (context == nullptr) {
    check_driver(driver().init(0), "starting the CUDA driver");
    int handle = 0;
    check_driver(driver().device_get(&handle, device - ANN_DEVICE_CUDA), "finding the device");
    check_driver(driver().context_retain(&context, handle), "taking the device's context");
  }
  check_driver(driver().context_set(context), "entering the device's context");
}

constexpr unsigned kNotWithTheDefaultStream = 1;

}  // namespace

DeviceBuffer::DeviceBuffer(int32_t device, uint64_t bytes) : device_(device) {
  use(device);
  Address address = 0;
  check_driver(driver().allocate(&address, bytes), "taking device memory");
  address_ = address;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_), address_(std::exchange(other.address_, 0)) {}

DeviceBuffer::~DeviceBuffer() {
  if (address_ != 0) driver().release(address_);
}

void DeviceBuffer::fill(const void* from, uint64_t bytes) {
  use(device_);
  check_driver(driver().copy_in(address_, from, bytes), "copying to the device");
}

void DeviceBuffer::read(void* to, uint64_t bytes) const {
  use(device_);
  check_driver(driver().copy_out(to, address_, bytes), "copying from the device");
}

DeviceStream::DeviceStream(int32_t device) : device_(device) {
  use(device);
  check_driver(driver().stream_create(&stream_, kNotWithTheDefaultStream), "making a stream");
  check_driver(driver().event_create(&start_, 0), "making an event");
  check_driver(driver().event_create(&end_, 0), "making an event");
}

DeviceStream::DeviceStream(DeviceStream&& other) noexcept
    : device_(other.device_),
      stream_(std::exchange(other.stream_, nullptr)),
      start_(std::exchange(other.start_, nullptr)),
      end_(std::exchange(other.end_, nullptr)) {}

DeviceStream::~DeviceStream() {
  if (start_ != nullptr) driver().event_destroy(start_);
  if (end_ != nullptr) driver().event_destroy(end_);
  if (stream_ != nullptr) driver().stream_destroy(stream_);
}

void DeviceStream::wait() const {
  use(device_);
  check_driver(driver().stream_wait(stream_), "waiting for a stream");
}

void DeviceStream::note_start() const {
  use(device_);
  check_driver(driver().event_record(start_, stream_), "recording an event");
}

void DeviceStream::note_end() const {
  use(device_);
  check_driver(driver().event_record(end_, stream_), "recording an event");
}

double DeviceStream::seconds_between() const {
  float milliseconds = 0;
  check_driver(driver().event_elapsed(&milliseconds, start_, end_), "comparing events");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace bench

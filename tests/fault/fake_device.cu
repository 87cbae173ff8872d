#include "fake_device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace gannet::fault {
namespace {

struct Block {
  uint64_t bytes;
  int device;
  cudaMemoryType type;
};

FakeMachine* machine = nullptr;
std::recursive_mutex mutex;
std::map<uintptr_t, Block>& blocks() {
  static auto* all = new std::map<uintptr_t, Block>;
  return *all;
}
int pool_devices[64];  // a pool is the address of one of these
struct FakeStream {
  int device;
};

enum class Kind { kOrdinary, kTakes, kGives };

/// What the call answers: the error that is due, if it is.
cudaError_t enter(Kind kind = Kind::kOrdinary) {
  ++machine->calls;
  if (machine->failed && machine->sticky) return machine->error;
  if (kind == Kind::kGives || (machine->memory_only && kind != Kind::kTakes)) return cudaSuccess;
  ++machine->counted;
  const bool due = machine->failing != 0 && (machine->for_ever ? machine->counted >= machine->failing
                                                               : machine->counted == machine->failing);
  if (!due) return cudaSuccess;
  machine->failed = true;
  machine->left_behind = machine->error;
  return machine->error;
}

void* take_block(uint64_t bytes, int device, cudaMemoryType type) {
  void* memory = std::calloc(1, bytes);
  blocks()[reinterpret_cast<uintptr_t>(memory)] = {bytes, device, type};
  return memory;
}

/// The bytes of a block that goes.
uint64_t drop_block(void* memory) {
  const auto found = blocks().find(reinterpret_cast<uintptr_t>(memory));
  if (found == blocks().end()) std::abort();  // given back twice, or never taken
  const uint64_t bytes = found->second.bytes;
  blocks().erase(found);
  std::free(memory);
  return bytes;
}

using Lock = std::lock_guard<std::recursive_mutex>;

// A body runs under the lock after the error that is due.
#define FAKE(kind, body)                     \
  const Lock lock(mutex);                    \
  const cudaError_t due = enter(Kind::kind); \
  if (due != cudaSuccess) return due;        \
  body;                                      \
  return cudaSuccess

const cuda::Runtime kFake = {
    .count_devices =
        [](int* count) {
          FAKE(kOrdinary, if (machine->probe_error != cudaSuccess) return machine->probe_error;
               *count = machine->devices);
        },
    .driver_version = [](int* version) { FAKE(kOrdinary, *version = machine->driver); },
    .current_device = [](int* device) { FAKE(kOrdinary, *device = machine->current); },
    .choose_device =
        [](int device) {
          // Its effect is the thread's own, so that even a lost device can be left.
          const Lock lock(mutex);
          machine->current = device;
          return enter();
        },
    .properties =
        [](cudaDeviceProp* properties, int) {
          FAKE(kOrdinary, *properties = cudaDeviceProp{}; std::strcpy(properties->name, "fake");
               properties->major = 9);
        },
    .attribute =
        [](int* value, cudaDeviceAttr attribute, int) {
          FAKE(kOrdinary, *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232'448 : 4);
        },
    .memory_info =
        [](size_t* free, size_t* total) {
          FAKE(kOrdinary, *total = machine->memory_bytes;
               *free = machine->memory_bytes - machine->memory_held);
        },
    .last_error =
        [] {
          const Lock lock(mutex);
          ++machine->calls;
          const cudaError_t told = machine->left_behind;
          machine->left_behind = cudaSuccess;
          return told;
        },
    .exchange_capture_mode = [](cudaStreamCaptureMode*) { FAKE(kGives, ); },
    .create_pool =
        [](cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
          FAKE(kTakes, pool_devices[properties->location.id] = properties->location.id;
               *pool = reinterpret_cast<cudaMemPool_t>(&pool_devices[properties->location.id]));
        },
    .set_pool = [](cudaMemPool_t, cudaMemPoolAttr, void*) { FAKE(kOrdinary, ); },
    .ask_pool = [](cudaMemPool_t, cudaMemPoolAttr,
                   void* value) { FAKE(kOrdinary, *static_cast<uint64_t*>(value) = machine->memory_held); },
    .trim_pool = [](cudaMemPool_t, size_t) { FAKE(kGives, ); },
    .take =
        [](void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t) {
          FAKE(
              kTakes,
              if (machine->memory_held + bytes > machine->memory_bytes) {
                machine->left_behind = cudaErrorMemoryAllocation;
                return cudaErrorMemoryAllocation;
              } machine->memory_held += bytes;
              *memory = take_block(bytes, *reinterpret_cast<int*>(pool), cudaMemoryTypeDevice));
        },
    .give_back = [](void* memory, cudaStream_t) { FAKE(kGives, machine->memory_held -= drop_block(memory)); },
    .take_pinned =
        [](void** memory, size_t bytes, unsigned) {
          FAKE(kTakes, machine->pinned_held += bytes; *memory = take_block(bytes, 0, cudaMemoryTypeHost));
        },
    .give_back_pinned = [](void* memory) { FAKE(kGives, machine->pinned_held -= drop_block(memory)); },
    .pin = [](void*, size_t bytes, unsigned) { FAKE(kTakes, machine->registered_held += bytes); },
    .unpin = [](void*) { FAKE(kGives, machine->registered_held = 0); },
    .copy = [](void* to, const void* from, size_t bytes, cudaMemcpyKind,
               cudaStream_t) { FAKE(kOrdinary, std::memcpy(to, from, bytes)); },
    .copy_rows =
        [](void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes, size_t rows,
           cudaMemcpyKind, cudaStream_t) {
          FAKE(kOrdinary, for (size_t row = 0; row < rows; ++row)
                              std::memcpy(static_cast<char*>(to) + row * to_stride,
                                          static_cast<const char*>(from) + row * from_stride, bytes));
        },
    .fill = [](void* memory, int byte, size_t bytes,
               cudaStream_t) { FAKE(kOrdinary, std::memset(memory, byte, bytes)); },
    .describe_pointer =
        [](cudaPointerAttributes* attributes, const void* pointer) {
          FAKE(kOrdinary, *attributes = cudaPointerAttributes{};
               const auto address = reinterpret_cast<uintptr_t>(pointer);
               auto found = blocks().upper_bound(address); if (found == blocks().begin()) return cudaSuccess;
               --found; if (address >= found->first + found->second.bytes) return cudaSuccess;
               attributes->type = found->second.type; attributes->device = found->second.device);
        },
    .create_stream =
        [](cudaStream_t* stream, unsigned) {
          FAKE(kTakes, ++machine->streams;
               *stream = reinterpret_cast<cudaStream_t>(new FakeStream{machine->current}));
        },
    .destroy_stream =
        [](cudaStream_t stream) {
          FAKE(kGives, --machine->streams; delete reinterpret_cast<FakeStream*>(stream));
        },
    .wait_for_stream = [](cudaStream_t) { FAKE(kOrdinary, ); },
    .stream_id = [](cudaStream_t stream,
                    unsigned long long* id) { FAKE(kOrdinary, *id = reinterpret_cast<uintptr_t>(stream)); },
    .stream_capture =
        [](cudaStream_t, cudaStreamCaptureStatus* status) {
          FAKE(kOrdinary, *status = cudaStreamCaptureStatusNone);
        },
    .stream_is_here =
        [](cudaStream_t stream, bool* here) {
          FAKE(kOrdinary, *here = reinterpret_cast<FakeStream*>(stream)->device == machine->current);
        },
    .create_event =
        [](cudaEvent_t* event, unsigned) {
          FAKE(kTakes, ++machine->events; *event = reinterpret_cast<cudaEvent_t>(new int));
        },
    .destroy_event =
        [](cudaEvent_t event) { FAKE(kGives, --machine->events; delete reinterpret_cast<int*>(event)); },
    .record_event = [](cudaEvent_t, cudaStream_t) { FAKE(kOrdinary, ); },
    .wait_for_event = [](cudaEvent_t) { FAKE(kOrdinary, ); },
    .ask_event = [](cudaEvent_t) { FAKE(kOrdinary, ); },
    .milliseconds = [](float* milliseconds, cudaEvent_t, cudaEvent_t) { FAKE(kOrdinary, *milliseconds = 1); },
    .launch =
        [](const void*, dim3, dim3, void**, size_t, cudaStream_t) {
          FAKE(kOrdinary, if (machine->kernel_error != cudaSuccess) return machine->kernel_error;
               ++machine->launches);
        },
    .launch_together =
        [](const void*, dim3, dim3, void**, size_t, cudaStream_t) {
          FAKE(kOrdinary, if (machine->kernel_error != cudaSuccess) return machine->kernel_error;
               ++machine->launches);
        },
    .set_kernel = [](const void*, cudaFuncAttribute, int) { FAKE(kOrdinary, ); },
    .blocks_at_once =
        [](int* blocks, const void*, int, size_t) {
          FAKE(kOrdinary, if (machine->kernel_error != cudaSuccess) return machine->kernel_error;
               *blocks = 1);
        },
};

#undef FAKE

}  // namespace

void install(FakeMachine* given) {
  machine = given;
  cuda::replace_runtime(&kFake);
}

void* fake_memory(int device, uint64_t bytes) {
  const Lock lock(mutex);
  return take_block(bytes, device, cudaMemoryTypeDevice);
}

cudaStream_t fake_stream(int device) { return reinterpret_cast<cudaStream_t>(new FakeStream{device}); }

}  // namespace gannet::fault

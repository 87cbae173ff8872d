#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static struct {
  int (*init)(unsigned);
  int (*text)(int, const char **);
  int (*device)(int *, int);
  int (*retain)(void **, int);
  int (*push)(void *);
  int (*pop)(void **);
  int (*take)(uint64_t *, size_t);
  int (*free)(uint64_t);
  int (*clear)(uint64_t, unsigned char, size_t, void *);
  int (*to_device)(uint64_t, const void *, size_t, void *);
  int (*to_host)(void *, uint64_t, size_t, void *);
  int (*stream_make)(void **, unsigned);
  int (*stream_wait)(void *);
  int (*stream_end)(void *);
} driver;
static int opened = GN_NO_DRIVER;

static void open_driver(void) {
  static const struct {
    const char *name;
    void *place;
  } entries[] = {
      {"cuInit", &driver.init},
      {"cuGetErrorString", &driver.text},
      {"cuDeviceGet", &driver.device},
      {"cuDevicePrimaryCtxRetain", &driver.retain},
      {"cuCtxPushCurrent_v2", &driver.push},
      {"cuCtxPopCurrent_v2", &driver.pop},
      {"cuMemAlloc_v2", &driver.take},
      {"cuMemFree_v2", &driver.free},
      {"cuMemsetD8Async", &driver.clear},
      {"cuMemcpyHtoDAsync_v2", &driver.to_device},
      {"cuMemcpyDtoHAsync_v2", &driver.to_host},
      {"cuStreamCreate", &driver.stream_make},
      {"cuStreamSynchronize", &driver.stream_wait},
      {"cuStreamDestroy_v2", &driver.stream_end},
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return;
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    void *entry = dlsym(library, entries[i].name);
    if (entry == NULL) return;
    *(void **)entries[i].place = entry; /* as POSIX wants functions of dlsym stored */
  }
  opened = driver.init(0);
}

static int ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_driver);
  return opened;
}

/* The stream of the calling thread in the driver's per-thread model, for what is waited for. */
#define OWN_STREAM ((void *)2)

/* Evaluates `call` with the context current on this thread. */
#define WITHIN(context, call)                             \
  do {                                                    \
    void *popped;                                         \
    int code = ready();                                   \
    if (code == 0) code = driver.push((void *)(context)); \
    if (code != 0) return code;                           \
    code = (call);                                        \
    driver.pop(&popped);                                  \
    return code;                                          \
  } while (0)

static int then_wait(int code) { return code != 0 ? code : driver.stream_wait(OWN_STREAM); }

int gn_cuda_context(int ordinal, uintptr_t *context) {
  int device = 0;
  int code = ready();
  void *primary = NULL;
  if (code == 0) code = driver.device(&device, ordinal);
  if (code == 0) code = driver.retain(&primary, device);
  *context = (uintptr_t)primary;
  return code;
}

int gn_cuda_take(uintptr_t context, uint64_t bytes, uint64_t *address) {
  /* The driver gives no memory of 0 bytes. */
  WITHIN(context, driver.take(address, bytes > 0 ? bytes : 1));
}

int gn_cuda_free(uintptr_t context, uint64_t address) { WITHIN(context, driver.free(address)); }

int gn_cuda_clear(uintptr_t context, uint64_t address, uint64_t bytes) {
  WITHIN(context, then_wait(driver.clear(address, 0, bytes, OWN_STREAM)));
}

int gn_cuda_to_device(uintptr_t context, uint64_t address, const uint8_t *data, uint64_t bytes) {
  WITHIN(context, then_wait(driver.to_device(address, data, bytes, OWN_STREAM)));
}

int gn_cuda_to_host(uintptr_t context, uint8_t *data, uint64_t address, uint64_t bytes) {
  WITHIN(context, then_wait(driver.to_host(data, address, bytes, OWN_STREAM)));
}

int gn_cuda_stream_make(uintptr_t context, uintptr_t *stream) {
  const unsigned non_blocking = 1;
  WITHIN(context, driver.stream_make((void **)stream, non_blocking));
}

int gn_cuda_stream_wait(uintptr_t context, uintptr_t stream) {
  WITHIN(context, driver.stream_wait((void *)stream));
}

int gn_cuda_stream_end(uintptr_t context, uintptr_t stream) {
  WITHIN(context, driver.stream_end((void *)stream));
}

const char *gn_cuda_text(int code) {
  const char *text = NULL;
  if (code == GN_NO_DRIVER) return "there is no CUDA driver (libcuda.so.1)";
  if (driver.text != NULL) driver.text(code, &text);
  return text != NULL ? text : "a CUDA error without a text";
}

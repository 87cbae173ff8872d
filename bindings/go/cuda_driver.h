/* cuda_driver.h: memory and streams of CUDA devices for Go, by the CUDA driver, which is opened when one
 * of them is first asked for. Each function answers a CUresult, 0 for success, or GN_NO_DRIVER; all may
 * be called from any thread.
 */
#ifndef GANNET_GO_CUDA_DRIVER_H
#define GANNET_GO_CUDA_DRIVER_H

#include <stdint.h>

enum { GN_NO_DRIVER = -1 };

/* The context of device `ordinal` that the CUDA runtime, and so Gannet, uses too. It is kept until the
 * process ends, as the runtime does. */
int gn_cuda_context(int ordinal, uintptr_t *context);

int gn_cuda_take(uintptr_t context, uint64_t bytes, uint64_t *address);
int gn_cuda_free(uintptr_t context, uint64_t address);

/* These three return when they are done. */
int gn_cuda_clear(uintptr_t context, uint64_t address, uint64_t bytes);
int gn_cuda_to_device(uintptr_t context, uint64_t address, const uint8_t *data, uint64_t bytes);
int gn_cuda_to_host(uintptr_t context, uint8_t *data, uint64_t address, uint64_t bytes);

int gn_cuda_stream_make(uintptr_t context, uintptr_t *stream);
int gn_cuda_stream_wait(uintptr_t context, uintptr_t stream);
int gn_cuda_stream_end(uintptr_t context, uintptr_t stream);

/* Why it failed; lives as long as the process. */
const char *gn_cuda_text(int code);

#endif /* GANNET_GO_CUDA_DRIVER_H */

// ann.h, section 7: devices.

#include "backend/devices.h"
#include "boundary.h"

using namespace gannet;

extern "C" {

ann_status ann_device_count(uint32_t* count, const char** reason, ann_error* error) {
  return guarded(error, [&] {
    check_given(count, "count");
    const char* why = "";
    *count = 1 + cuda_device_count(&why);
    if (reason != nullptr) *reason = why;
  });
}

ann_status ann_device_get_info(int32_t device, ann_device_info* out, ann_error* error) {
  return guarded(error, [&] {
    check_output(out, "out");
    if (device < ANN_DEVICE_CPU)
      fail(ANN_INVALID_ARGUMENT, "device is %d, allowed are %d (CPU) and more", device, ANN_DEVICE_CPU);
    ann_device_info info = ANN_DEVICE_INFO_INIT;
    describe_device(device, &info);
    write_struct(info, out);
  });
}

}  // extern "C"

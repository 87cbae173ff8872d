#include "names.h"

#include <stdexcept>

int32_t device_of(const std::string& text) {
  if (text == "auto") return ANN_DEVICE_AUTO;
  if (text == "cpu") return ANN_DEVICE_CPU;
  if (text == "cuda") return ANN_DEVICE_CUDA;
  if (text.starts_with("cuda:") && text.size() > 5 && text.size() < 9 &&
      text.find_first_not_of("0123456789", 5) == std::string::npos) {
    return ANN_DEVICE_CUDA + std::stoi(text.substr(5));
  }
  throw std::invalid_argument("the device is \"" + text + "\"; expected auto, cpu, cuda or cuda:N");
}

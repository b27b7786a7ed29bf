// What `with torch.autocast(...)` is in Python.
#pragma once

#include <c10/core/Device.h>

#include "trainer/config/amp.h"

namespace oarlock {

// While one lives, this thread's operations on the device run in amp.dtype where that is safe. The lower-precision
// copies of the weights that were made meanwhile are dropped at its end. Does nothing where amp is not enabled.
class Autocast {
 public:
  Autocast(const AmpConfig& config, c10::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  c10::DeviceType device_;
  bool enabled_before_ = false;
  c10::ScalarType type_before_ = c10::ScalarType::Undefined;
};

}  // namespace oarlock

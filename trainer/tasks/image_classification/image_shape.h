// The size of the images of a data set.
#pragma once

#include <cstdint>

namespace oarlock {

struct ImageShape {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
};

}  // namespace oarlock

#include "common/random.h"

#include <unistd.h>

#include <stdexcept>

namespace oarlock {

void fill_random(std::span<unsigned char> bytes) {
  if (::getentropy(bytes.data(), bytes.size()) != 0) throw std::runtime_error("the kernel has no random numbers");
}

}  // namespace oarlock

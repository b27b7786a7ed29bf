// Random numbers of the kernel, for keys and identifiers.
#pragma once

#include <span>

namespace oarlock {

// Fills up to 256 bytes with random numbers that are suitable for keys. Throws std::runtime_error if the kernel has
// none, which no supported kernel does. (std::random_device of a static libstdc++ needs glibc 2.36, which the programs
// of a release archive must not require.)
void fill_random(std::span<unsigned char> bytes);

}  // namespace oarlock

// Random numbers of the kernel, for keys, identifiers and seeds. All programs take them from here: std::random_device
// of a static libstdc++ needs glibc 2.36, which the programs of a release archive must not require. The functions throw
// std::runtime_error if the kernel has none, which no supported kernel does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace oarlock {

// Fills up to 256 bytes with random numbers that are suitable for keys.
void fill_random(std::span<unsigned char> bytes);

uint64_t random_number();

// Returns `bytes` random bytes, at most 256, as lowercase hexadecimal digits.
std::string random_hex(size_t bytes);

// Returns a random UUID (version 4), such as 1b4e28ba-2fa1-41d2-883f-0016d3cca427.
std::string random_uuid();

}  // namespace oarlock

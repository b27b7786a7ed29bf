#include "common/random.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <stdexcept>
#include <vector>

#include "common/text.h"

namespace oarlock {

void fill_random(std::span<unsigned char> bytes) {
  if (::getentropy(bytes.data(), bytes.size()) != 0) throw std::runtime_error("the kernel has no random numbers");
}

uint64_t random_number() {
  std::array<unsigned char, sizeof(uint64_t)> bytes{};
  fill_random(bytes);
  return std::bit_cast<uint64_t>(bytes);
}

std::string random_hex(size_t bytes) {
  std::vector<unsigned char> filled(bytes);
  fill_random(filled);
  return to_hex(filled);
}

std::string random_uuid() {
  std::array<unsigned char, 16> bytes{};
  fill_random(bytes);
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0F) | 0x40);  // version 4
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3F) | 0x80);  // variant of RFC 9562
  std::string uuid = to_hex(bytes);
  for (const size_t at : {8U, 13U, 18U, 23U}) uuid.insert(at, 1, '-');
  return uuid;
}

}  // namespace oarlock

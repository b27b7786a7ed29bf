// Little-endian numbers of fixed size, as files of TensorBoard, W&B and the journals have them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace oarlock {

static_assert(std::endian::native == std::endian::little, "the bytes of a number are copied");

// Appends the sizeof(Number) bytes of an integer.
template <typename Number>
void append_little_endian(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Returns the integer at an offset. REQUIRES: bytes.size() >= offset + sizeof(Number)
template <typename Number>
Number read_little_endian(std::string_view bytes, size_t offset) {
  Number out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

}  // namespace oarlock

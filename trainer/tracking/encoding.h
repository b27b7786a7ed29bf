// Encodings of values in the files of TensorBoard and W&B and in journals: little-endian numbers of fixed size, times,
// strings of protocol buffers, and images.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/text.h"

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

// Returns the time that is the closest to a number of microseconds since the epoch, which SystemTime may not represent.
inline SystemTime time_from_microseconds(int64_t microseconds) {
  using std::chrono::ceil, std::chrono::floor;
  const int64_t first = ceil<std::chrono::microseconds>(SystemTime::min().time_since_epoch()).count();
  const int64_t last = floor<std::chrono::microseconds>(SystemTime::max().time_since_epoch()).count();
  return SystemTime(std::chrono::microseconds(std::clamp(microseconds, first, last)));
}

// Adds a field of the type `string` to a message, a protozero::pbf_writer. Bytes that are not well-formed UTF-8, such
// as those of a metric's name, are replaced, because one invalid field makes a whole message unreadable.
template <typename Message>
void add_utf8(Message& message, uint32_t field, std::string_view text) {
  std::string replaced;
  const std::string_view valid = to_valid_utf8(text, replaced);
  message.add_string(field, valid.data(), valid.size());
}

// Returns the bytes of a PNG file. `pixels` holds 8-bit samples in rows from the top, with 1 (gray) or 3 (RGB) channels
// per pixel: width * height * channels bytes. Sizes are at least 1. zlib compresses the rows and computes the
// checksums.
std::string encode_png(std::span<const uint8_t> pixels, int64_t width, int64_t height, int channels);

}  // namespace oarlock

#include "trainer/tracking/encoding.h"

#include <zlib.h>

#include <cassert>
#include <stdexcept>
#include <string_view>

namespace oarlock {
namespace {

void append_big_endian(std::string& out, uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 0xff);
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const std::string typed = std::string(type).append(data);
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(typed.data()), typed.size());
  out += typed;
  append_big_endian(out, static_cast<uint32_t>(crc));
}

std::string compressed(const std::string& rows) {
  uLongf size = compressBound(rows.size());
  std::string out(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size()) !=
      Z_OK)
    throw std::runtime_error("zlib could not compress a picture");
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(std::span<const uint8_t> pixels, int64_t width, int64_t height, int channels) {
  const auto row_size = static_cast<size_t>(width * channels);
  assert(width > 0 && height > 0 && (channels == 1 || channels == 3));
  assert(pixels.size() == row_size * static_cast<size_t>(height));
  constexpr char kGray = 0;
  constexpr char kRgb = 2;
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  header += {8, channels == 1 ? kGray : kRgb, 0, 0, 0};  // bits, color type, compression, filters, not interlaced
  std::string rows;
  rows.reserve((row_size + 1) * static_cast<size_t>(height));
  for (; !pixels.empty(); pixels = pixels.subspan(row_size)) {
    rows += '\0';  // the row is not filtered
    rows.append(reinterpret_cast<const char*>(pixels.data()), row_size);
  }
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", compressed(rows));
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace oarlock

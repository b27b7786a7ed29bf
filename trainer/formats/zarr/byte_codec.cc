#include "trainer/formats/zarr/byte_codec.h"

#include <blosc.h>
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace oarlock::zarr {
namespace {

using Bytes = std::vector<uint8_t>;

tl::unexpected<Error> damaged(std::string what) { return fail(ExitCode::kDataErr, std::move(what)); }

tl::unexpected<Error> too_long(size_t limit) {
  return damaged(fmt::format("is damaged: it decompresses to more than {} bytes", limit));
}

Result<Bytes> decode_blosc(std::span<const uint8_t> bytes, size_t limit) {
  if (bytes.size() < BLOSC_MIN_HEADER_LENGTH) return damaged(fmt::format("is truncated: {} bytes", bytes.size()));
  size_t decoded = 0;
  size_t encoded = 0;
  size_t block = 0;
  blosc_cbuffer_sizes(bytes.data(), &decoded, &encoded, &block);
  if (encoded > bytes.size())
    return damaged(fmt::format("is truncated: expected {} bytes, found {}", encoded, bytes.size()));
  if (blosc_cbuffer_validate(bytes.data(), bytes.size(), &decoded) < 0)
    return damaged("is damaged: not a valid Blosc buffer");
  if (decoded > limit) return too_long(limit);
  Bytes out(decoded);
  const int got = blosc_decompress_ctx(bytes.data(), out.data(), out.size(), 1);
  if (got < 0 || static_cast<size_t>(got) != decoded) return damaged("is damaged: Blosc cannot decompress it");
  return out;
}

Result<Bytes> decode_zstd(std::span<const uint8_t> bytes, size_t limit) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  Bytes out(limit);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  ZSTD_outBuffer target{out.data(), out.size(), 0};
  size_t left = 1;  // 0 after a complete frame
  while (in.pos < in.size || left != 0) {
    const size_t before = in.pos + target.pos;
    left = ZSTD_decompressStream(context.get(), &target, &in);
    if (ZSTD_isError(left) != 0) return damaged(fmt::format("is damaged: zstd: {}", ZSTD_getErrorName(left)));
    if (in.pos + target.pos > before) continue;
    if (left == 0) break;
    return target.pos == limit ? too_long(limit) : damaged(fmt::format("is truncated: {} bytes", bytes.size()));
  }
  out.resize(target.pos);
  return out;
}

Result<Bytes> decode_zlib(std::span<const uint8_t> bytes, size_t limit) {
  constexpr int kAnyHeader = 32 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, kAnyHeader) != Z_OK) return fail(ExitCode::kOsErr, "not enough memory for zlib");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  Bytes out(limit);
  stream.next_in = const_cast<Bytef*>(bytes.data());  // zlib does not write to its input
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&stream, Z_FINISH);
  if (status == Z_BUF_ERROR && stream.avail_in > 0) return too_long(limit);
  if (status == Z_BUF_ERROR) return damaged(fmt::format("is truncated: {} bytes", bytes.size()));
  if (status != Z_STREAM_END)
    return damaged(fmt::format("is damaged: zlib: {}", stream.msg != nullptr ? stream.msg : "invalid stream"));
  out.resize(stream.total_out);
  return out;
}

Result<Bytes> decode_crc32c(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(uint32_t)) return damaged(fmt::format("is truncated: {} bytes", bytes.size()));
  const std::span<const uint8_t> data = bytes.first(bytes.size() - sizeof(uint32_t));
  uint32_t expected = 0;
  std::memcpy(&expected, bytes.data() + data.size(), sizeof(expected));
  if (const uint32_t found = crc32c(data); found != expected)
    return damaged(fmt::format("is damaged: its checksum is {:08x}, expected {:08x}", found, expected));
  return Bytes(data.begin(), data.end());
}

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kReversedPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xff];
  return ~crc;
}

std::optional<ByteCodec> byte_codec_of(std::string_view name) {
  if (name == "blosc") return ByteCodec::kBlosc;
  if (name == "zstd") return ByteCodec::kZstd;
  if (name == "zlib" || name == "gzip") return ByteCodec::kZlib;
  if (name == "crc32c") return ByteCodec::kCrc32c;
  return std::nullopt;
}

Result<Bytes> decode(ByteCodec codec, std::span<const uint8_t> bytes, size_t limit) {
  switch (codec) {
    case ByteCodec::kBlosc:
      return decode_blosc(bytes, limit);
    case ByteCodec::kZstd:
      return decode_zstd(bytes, limit);
    case ByteCodec::kZlib:
      return decode_zlib(bytes, limit);
    case ByteCodec::kCrc32c:
      return decode_crc32c(bytes);
  }
  return fail(ExitCode::kSoftware, "unhandled zarr codec");
}

}  // namespace oarlock::zarr

// The codecs of zarr that turn bytes into bytes: compressors and a checksum.
// https://zarr-specs.readthedocs.io/en/latest/v3/codecs, https://numcodecs.readthedocs.io
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock::zarr {

enum class ByteCodec {
  kBlosc,  // its header says which compressor and which shuffle
  kZstd,
  kZlib,    // gzip as well: the header tells
  kCrc32c,  // four bytes behind the data
};

// By the names of zarr v3 and of numcodecs: blosc, zstd, zlib, gzip, crc32c.
std::optional<ByteCodec> byte_codec_of(std::string_view name);

// What was encoded. More than `limit` bytes are a failure, so that a damaged header cannot ask for any memory.
// kDataErr: truncated, damaged; the message says what, but not where.
Result<std::vector<uint8_t>> decode(ByteCodec codec, std::span<const uint8_t> bytes, size_t limit);

// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::span<const uint8_t> bytes);

}  // namespace oarlock::zarr

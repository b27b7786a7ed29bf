// The codecs of zarr that transform bytes: compressors and a checksum.
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
  kBlosc,  // its header names the compressor and the shuffle mode
  kZstd,
  kZlib,    // also gzip, which its header identifies
  kCrc32c,  // a 4-byte checksum after the data
};

// Returns the codec with a name of zarr v3 or numcodecs (blosc, zstd, zlib, gzip, crc32c), or nothing if the name is
// unknown.
std::optional<ByteCodec> byte_codec_of(std::string_view name);

// Decodes `bytes`. A result of more than `limit` bytes is an error, so that a corrupt header cannot cause a huge
// allocation. Returns kDataErr if the data is truncated or damaged; the message is a predicate ("is truncated: ..."),
// to which the caller adds the file.
Result<std::vector<uint8_t>> decode(ByteCodec codec, std::span<const uint8_t> bytes, size_t limit);

// Computes CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::span<const uint8_t> bytes);

}  // namespace oarlock::zarr

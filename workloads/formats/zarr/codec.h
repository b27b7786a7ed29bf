// The elements of zarr arrays and their encoding: the numeric types and their values in memory, and the codecs that
// transform bytes, which are compressors and a checksum.
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

// ---- Elements --------------------------------------------------------------------------------------------------

enum class ElementKind { kBool, kInt, kUint, kFloat };

struct ElementType {
  ElementKind kind = ElementKind::kFloat;
  size_t size = 8;  // bytes: 1, 2, 4 or 8; at least 2 for kFloat

  bool operator==(const ElementType&) const = default;
};

// Parses a data type of zarr v3 ("float32", "uint8", "bool"). Returns nothing if it is not a numeric type.
std::optional<ElementType> type_of_name(std::string_view name);

// Parses a NumPy typestr of zarr v2 ("<f4", "|b1"). Returns nothing if it is not a numeric type.
struct TypeAndOrder {
  ElementType type;
  bool big_endian = false;
};
std::optional<TypeAndOrder> type_of_typestr(std::string_view typestr);

// Converts little-endian elements to numbers. `bytes` must contain values.size() elements. Integers beyond 2^53 are
// rounded.
void to_doubles(std::span<const uint8_t> bytes, ElementType type, std::span<double> values);

// Converts a number to a little-endian element of type.size bytes in `out`. Returns false if the value is outside the
// range of an integer type, or is NaN and the type is an integer type.
bool to_element(double value, ElementType type, std::span<uint8_t> out);
bool to_element(int64_t value, ElementType type, std::span<uint8_t> out);
bool to_element(uint64_t value, ElementType type, std::span<uint8_t> out);

// ---- Bytes -----------------------------------------------------------------------------------------------------

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

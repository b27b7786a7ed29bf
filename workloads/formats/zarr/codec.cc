#include "workloads/formats/zarr/codec.h"

#include <blosc.h>
#include <c10/util/Half.h>
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

namespace oarlock::zarr {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void convert(std::span<const uint8_t> bytes, std::span<double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(element);
  }
}

// Calls `use` with a value of the corresponding C++ type.
template <typename Use>
void with_type(ElementType type, const Use& use) {
  switch (type.kind) {
    case ElementKind::kBool:
      return use(uint8_t{});
    case ElementKind::kInt:
      if (type.size == 1) return use(int8_t{});
      if (type.size == 2) return use(int16_t{});
      return type.size == 4 ? use(int32_t{}) : use(int64_t{});
    case ElementKind::kUint:
      if (type.size == 1) return use(uint8_t{});
      if (type.size == 2) return use(uint16_t{});
      return type.size == 4 ? use(uint32_t{}) : use(uint64_t{});
    case ElementKind::kFloat:
      if (type.size == 2) return use(c10::Half{});
      return type.size == 4 ? use(float{}) : use(double{});
  }
}

// Returns whether the conversion to T is defined.
template <typename T, typename Number>
bool is_in_range(Number value) {
  if constexpr (!std::is_integral_v<T>) {
    return true;
  } else if constexpr (std::is_integral_v<Number>) {
    return std::in_range<T>(value);
  } else {
    using Limits = std::numeric_limits<T>;
    return std::trunc(value) >= static_cast<double>(Limits::min()) && value < std::ldexp(1.0, Limits::digits);
  }
}

template <typename Number>
bool store(Number value, ElementType type, std::span<uint8_t> out) {
  bool fits = false;
  with_type(type, [&]<typename T>(T) {
    fits = is_in_range<T>(value);
    if (!fits) return;
    const T element = std::is_integral_v<T> ? static_cast<T>(value) : static_cast<T>(static_cast<double>(value));
    std::memcpy(out.data(), &element, sizeof(T));
  });
  return fits;
}

bool is_valid_size(ElementKind kind, size_t size) {
  if (kind == ElementKind::kBool) return size == 1;
  if (size == 1) return kind != ElementKind::kFloat;
  return size == 2 || size == 4 || size == 8;
}

}  // namespace

std::optional<ElementType> type_of_name(std::string_view name) {
  if (name == "bool") return ElementType{ElementKind::kBool, 1};
  static constexpr struct {
    std::string_view prefix;
    ElementKind kind;
  } kKinds[] = {{"int", ElementKind::kInt}, {"uint", ElementKind::kUint}, {"float", ElementKind::kFloat}};
  for (const auto& [prefix, kind] : kKinds) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view bits = name.substr(prefix.size());
    for (const size_t size : {1UL, 2UL, 4UL, 8UL}) {
      static constexpr std::string_view kBits[] = {"8", "16", "32", "64"};
      if (bits == kBits[std::countr_zero(size)] && is_valid_size(kind, size)) return ElementType{kind, size};
    }
  }
  return std::nullopt;
}

std::optional<TypeAndOrder> type_of_typestr(std::string_view typestr) {
  if (typestr.size() != 3 || typestr[2] < '1' || typestr[2] > '8') return std::nullopt;
  const auto size = static_cast<size_t>(typestr[2] - '0');
  const char order = typestr[0];
  if (order != '<' && order != '>' && (order != '|' || size != 1)) return std::nullopt;
  static constexpr std::string_view kLetters = "biuf";  // in the order of ElementKind
  const size_t letter = kLetters.find(typestr[1]);
  if (letter == std::string_view::npos) return std::nullopt;
  const auto kind = static_cast<ElementKind>(letter);
  if (!is_valid_size(kind, size)) return std::nullopt;
  return TypeAndOrder{{kind, size}, order == '>'};
}

void to_doubles(std::span<const uint8_t> bytes, ElementType type, std::span<double> values) {
  with_type(type, [&]<typename T>(T) { convert<T>(bytes, values); });
}

bool to_element(double value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }
bool to_element(int64_t value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }
bool to_element(uint64_t value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }

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
  stream.avail_in = static_cast<uInt>(std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max()));
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

Result<Bytes> decode_crc32c(std::span<const uint8_t> bytes, size_t limit) {
  if (bytes.size() < sizeof(uint32_t)) return damaged(fmt::format("is truncated: {} bytes", bytes.size()));
  const std::span<const uint8_t> data = bytes.first(bytes.size() - sizeof(uint32_t));
  if (data.size() > limit)
    return damaged(fmt::format("is damaged: expected at most {} bytes, found {}", limit, data.size()));
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
      return decode_crc32c(bytes, limit);
  }
  return fail(ExitCode::kSoftware, "unhandled zarr codec");
}

}  // namespace oarlock::zarr

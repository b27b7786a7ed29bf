#include "workloads/formats/zarr/metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::zarr {
namespace {

using Json = nlohmann::json;

constexpr char kCodecRemedy[] =
    "; the supported codecs are blosc, zstd, zlib, gzip and crc32c: write the array again with one of them";

tl::unexpected<Error> invalid(std::string reason) { return fail(ExitCode::kDataErr, std::move(reason)); }

// Returns a value for a message. Its size is that of the file, at most.
std::string shown(const Json& value) { return shortened(value.dump()); }

const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

// ---- members that both versions have -------------------------------------------------------------------------------

// Parses sizes along the axes. Each must be at least `least`, and their product must be a plausible number of elements.
Result<Shape> parse_sizes(const Json& json, const char* name, int64_t least) {
  constexpr double kMaxElements = 1e15;
  constexpr size_t kMaxAxes = 32;
  if (!json.is_array() || json.size() > kMaxAxes) return invalid(fmt::format("{} is not a list of sizes", name));
  Shape sizes;
  double elements = 1;
  for (const Json& size : json) {
    if (!size.is_number_integer() || size.get<int64_t>() < least)
      return invalid(fmt::format("{} {}: {} is not a valid size", name, shown(json), shown(size)));
    sizes.push_back(size.get<int64_t>());
    elements *= static_cast<double>(std::max<int64_t>(sizes.back(), 1));  // [0, 1e18, 1e18] would overflow
  }
  if (elements > kMaxElements) return invalid(fmt::format("{} {} has too many elements", name, shown(json)));
  return sizes;
}

// Parses a number, a boolean, "NaN", "Infinity" or "-Infinity". null means that there is none.
Result<std::vector<uint8_t>> parse_fill_value(const Json& json, ElementType type) {
  if (json.is_null()) return std::vector<uint8_t>();
  std::vector<uint8_t> fill(type.size);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  bool fits = true;
  if (json.is_boolean()) {
    fits = to_element(uint64_t{json.get<bool>() ? 1U : 0U}, type, fill);
  } else if (json.is_number_unsigned()) {
    fits = to_element(json.get<uint64_t>(), type, fill);
  } else if (json.is_number_integer()) {
    fits = to_element(json.get<int64_t>(), type, fill);
  } else if (json.is_number()) {
    fits = to_element(json.get<double>(), type, fill);
  } else if (json == "NaN") {
    fits = to_element(std::numeric_limits<double>::quiet_NaN(), type, fill);
  } else if (json == "Infinity" || json == "-Infinity") {
    fits = to_element(json == "Infinity" ? kInfinity : -kInfinity, type, fill);
  } else {
    return invalid(fmt::format("fill_value {} is not a number", shown(json)));
  }
  if (!fits) return invalid(fmt::format("fill_value {} does not fit into an element", shown(json)));
  return fill;
}

Result<void> check_axes(const ArrayMetadata& metadata) {
  if (metadata.shape.size() == metadata.chunk.size()) return {};
  return invalid(
      fmt::format("the array has {} axes, its chunks have {}", metadata.shape.size(), metadata.chunk.size()));
}

// A chunk is decoded as a whole, and the codecs are limited to 2 GiB.
Result<void> check_chunk_size(const ArrayMetadata& metadata) {
  constexpr double kMaxChunkBytes = 2147483648.0;
  double bytes = static_cast<double>(metadata.type.size);
  for (const int64_t size : metadata.chunk) bytes *= static_cast<double>(size);
  if (bytes <= kMaxChunkBytes) return {};
  return invalid(
      fmt::format("a chunk of {} bytes exceeds the limit of 2 GiB: write the array again with smaller chunks", bytes));
}

// ---- version 2 -----------------------------------------------------------------------------------------------------

Result<void> parse_encoding_v2(const Json& zarray, ArrayMetadata& out) {
  const Json& filters = member(zarray, "filters");
  if (!filters.is_null() && !filters.empty())
    return invalid(fmt::format("filters {} are not supported: write the array without filters", shown(filters)));
  const Json& order = member(zarray, "order");
  if (order == "F") {
    out.encoding.transpose.resize(out.shape.size());
    std::iota(out.encoding.transpose.rbegin(), out.encoding.transpose.rend(), 0);
  } else if (order != "C") {
    return invalid(fmt::format("order {} is neither C nor F", shown(order)));
  }
  const Json& compressor = member(zarray, "compressor");
  if (compressor.is_null()) return {};
  const Json& id = member(compressor, "id");
  const auto codec = byte_codec_of(id.is_string() ? id.get<std::string>() : "");
  if (!codec) return invalid(fmt::format("unknown codec {}{}", shown(id), kCodecRemedy));
  out.encoding.codecs.push_back(*codec);
  return {};
}

// ---- version 3 -----------------------------------------------------------------------------------------------------

std::string name_of(const Json& codec) {
  const Json& name = codec.is_string() ? codec : member(codec, "name");
  return name.is_string() ? name.get<std::string>() : "";
}

Result<void> parse_bytes_codec(const Json& configuration, ElementType type, Encoding& out) {
  const Json& endian = member(configuration, "endian");
  if (endian == "big") {
    out.big_endian = true;
  } else if (endian != "little" && type.size > 1) {
    return invalid(fmt::format("the codec bytes has an invalid endian {}", shown(endian)));
  }
  return {};
}

// Combines the transposition with those before it.
Result<void> parse_transpose_codec(const Json& configuration, size_t axes, Encoding& out) {
  const Json& order = member(configuration, "order");
  std::vector<size_t> next;
  for (size_t i = 0; order.is_array() && i < order.size(); ++i) {
    const size_t axis = order[i].is_number_unsigned() ? order[i].get<size_t>() : axes;
    if (axis >= axes || std::find(next.begin(), next.end(), axis) != next.end()) break;
    next.push_back(axis);
  }
  if (next.size() != axes) return invalid(fmt::format("the codec transpose has an invalid order {}", shown(order)));
  if (!out.transpose.empty()) {
    for (size_t& axis : next) axis = out.transpose[axis];
  }
  out.transpose = std::move(next);
  return {};
}

Result<void> parse_byte_codecs(const Json& list, size_t first, std::vector<ByteCodec>& out) {
  for (size_t i = first; i < list.size(); ++i) {
    const std::string name = name_of(list[i]);
    const auto codec = byte_codec_of(name);
    if (!codec) return invalid(fmt::format("unknown codec '{}'{}", shortened(name), kCodecRemedy));
    out.push_back(*codec);
  }
  return {};
}

// Parses transpose codecs, one bytes codec and byte codecs.
Result<void> parse_encoding_v3(const Json& list, size_t axes, ElementType type, Encoding& out) {
  constexpr size_t kMaxCodecs = 16;  // each copies the whole chunk
  if (!list.is_array()) return invalid("codecs, or the codecs of a shard, are not a list");
  if (list.size() > kMaxCodecs)
    return invalid(fmt::format("{} codecs of a chunk; the maximum is {}", list.size(), kMaxCodecs));
  size_t next = 0;
  for (; next < list.size() && name_of(list[next]) == "transpose"; ++next)
    RETURN_IF_ERROR(parse_transpose_codec(member(list[next], "configuration"), axes, out));
  if (next == list.size()) return invalid("codecs: 'bytes' is missing");
  if (const std::string name = name_of(list[next]); name != "bytes")
    return invalid(fmt::format("expected the codec 'bytes', found '{}'{}", shortened(name), kCodecRemedy));
  const Json configuration = list[next].is_object() ? member(list[next], "configuration") : Json();
  RETURN_IF_ERROR(parse_bytes_codec(configuration, type, out));
  return parse_byte_codecs(list, next + 1, out.codecs);
}

Result<void> parse_sharding(const Json& configuration, ArrayMetadata& out) {
  Sharding sharding;
  ASSIGN_OR_RETURN(Shape chunk, parse_sizes(member(configuration, "chunk_shape"), "chunk_shape of the shards", 1));
  sharding.shape = std::exchange(out.chunk, std::move(chunk));
  if (sharding.shape.size() != out.chunk.size())
    return invalid("the chunks of a shard have a different number of axes than the shard");
  for (size_t axis = 0; axis < out.chunk.size(); ++axis) {
    if (sharding.shape[axis] % out.chunk[axis] != 0)
      return invalid("the shape of a shard is not a multiple of the shape of its chunks");
  }
  sharding.index_at_end = member(configuration, "index_location") != "start";
  Encoding index;
  constexpr ElementType kOffset{ElementKind::kUint, 8};
  RETURN_IF_ERROR(parse_encoding_v3(member(configuration, "index_codecs"), out.chunk.size() + 1, kOffset, index));
  const auto changes_size = [](ByteCodec codec) { return codec != ByteCodec::kCrc32c; };
  if (index.big_endian || !index.transpose.empty() ||
      std::any_of(index.codecs.begin(), index.codecs.end(), changes_size))
    return invalid("index_codecs other than little-endian bytes and crc32c are not supported");
  sharding.index_codecs = std::move(index.codecs);
  out.sharding.push_back(std::move(sharding));
  return parse_encoding_v3(member(configuration, "codecs"), out.chunk.size(), out.type, out.encoding);
}

Result<void> parse_codecs(const Json& list, ArrayMetadata& out) {
  if (!list.is_array() || list.empty()) return invalid("codecs is not a list");
  if (name_of(list[0]) != "sharding_indexed") return parse_encoding_v3(list, out.shape.size(), out.type, out.encoding);
  if (list.size() > 1) return invalid("codecs after sharding_indexed are not supported");
  return parse_sharding(member(list[0], "configuration"), out);
}

Result<void> parse_key_encoding(const Json& encoding, ArrayMetadata& out) {
  const std::string name = name_of(encoding);
  const bool is_default = name == "default";
  if (!is_default && name != "v2") return invalid(fmt::format("unknown chunk_key_encoding '{}'", shortened(name)));
  const Json& separator = member(member(encoding, "configuration"), "separator");
  out.key_separator = is_default ? '/' : '.';
  if (separator == "/" || separator == ".") out.key_separator = separator.get<std::string>()[0];
  if (is_default) out.key_prefix = fmt::format("c{}", out.key_separator);
  return {};
}

// In addition to parse_fill_value(), version 3 allows the bits of an element in hexadecimal.
Result<std::vector<uint8_t>> parse_fill_value_v3(const Json& json, ElementType type) {
  if (!json.is_string() || !json.get_ref<const std::string&>().starts_with("0x")) return parse_fill_value(json, type);
  const std::string& text = json.get_ref<const std::string&>();
  const std::optional<uint64_t> bits = parse_integer<uint64_t>(std::string_view(text).substr(2), 16);
  if (!bits || text.size() != 2 + 2 * type.size)
    return invalid(fmt::format("fill_value {} is not a number", shown(json)));
  std::vector<uint8_t> fill;
  fill.reserve(type.size);
  for (size_t i = 0; i < type.size; ++i) fill.push_back(static_cast<uint8_t>(*bits >> (8 * i)));
  return fill;
}

}  // namespace

std::string ArrayMetadata::key(std::span<const int64_t> numbers) const {
  if (numbers.empty()) return key_prefix.empty() ? "0" : "c";
  return key_prefix + fmt::format("{}", fmt::join(numbers, std::string_view(&key_separator, 1)));
}

Result<ArrayMetadata> parse_v2(const Json& zarray) {
  if (!zarray.is_object() || member(zarray, "zarr_format") != 2) return invalid("zarr_format is not 2");
  ArrayMetadata out;
  ASSIGN_OR_RETURN(out.shape, parse_sizes(member(zarray, "shape"), "shape", 0));
  ASSIGN_OR_RETURN(out.chunk, parse_sizes(member(zarray, "chunks"), "chunks", 1));
  const Json& dtype = member(zarray, "dtype");
  const auto type = type_of_typestr(dtype.is_string() ? dtype.get<std::string>() : "");
  if (!type) return invalid(fmt::format("dtype {} is not a numeric type", shown(dtype)));
  out.type = type->type;
  out.encoding.big_endian = type->big_endian;
  ASSIGN_OR_RETURN(out.fill, parse_fill_value(member(zarray, "fill_value"), out.type));
  const Json& separator = member(zarray, "dimension_separator");
  if (separator == "/") {
    out.key_separator = '/';
  } else if (!separator.is_null() && separator != ".") {
    return invalid(fmt::format("dimension_separator {} is neither . nor /", shown(separator)));
  }
  RETURN_IF_ERROR(check_axes(out));
  RETURN_IF_ERROR(check_chunk_size(out));
  RETURN_IF_ERROR(parse_encoding_v2(zarray, out));
  return out;
}

Result<ArrayMetadata> parse_v3(const Json& zarr_json) {
  if (!zarr_json.is_object() || member(zarr_json, "zarr_format") != 3) return invalid("zarr_format is not 3");
  if (member(zarr_json, "node_type") != "array") return invalid("node_type is not array");
  ArrayMetadata out;
  ASSIGN_OR_RETURN(out.shape, parse_sizes(member(zarr_json, "shape"), "shape", 0));
  const Json& grid = member(zarr_json, "chunk_grid");
  if (name_of(grid) != "regular")
    return invalid(fmt::format("chunk_grid '{}' is not regular", shortened(name_of(grid))));
  ASSIGN_OR_RETURN(out.chunk, parse_sizes(member(member(grid, "configuration"), "chunk_shape"), "chunk_shape", 1));
  const Json& data_type = member(zarr_json, "data_type");
  const auto type = type_of_name(data_type.is_string() ? data_type.get<std::string>() : "");
  if (!type) return invalid(fmt::format("data_type {} is not a numeric type", shown(data_type)));
  out.type = *type;
  ASSIGN_OR_RETURN(out.fill, parse_fill_value_v3(member(zarr_json, "fill_value"), out.type));
  RETURN_IF_ERROR(check_axes(out));
  RETURN_IF_ERROR(parse_key_encoding(member(zarr_json, "chunk_key_encoding"), out));
  RETURN_IF_ERROR(parse_codecs(member(zarr_json, "codecs"), out));
  RETURN_IF_ERROR(check_chunk_size(out));
  return out;
}

}  // namespace oarlock::zarr

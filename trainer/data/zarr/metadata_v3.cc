#include <algorithm>
#include <charconv>

#include "trainer/data/zarr/metadata_members.h"

namespace oarlock::zarr {
namespace {

using Json = nlohmann::json;

std::string name_of(const Json& codec) {
  const Json& name = codec.is_string() ? codec : member(codec, "name");
  return name.is_string() ? name.get<std::string>() : "";
}

Result<void> read_bytes_codec(const Json& configuration, ElementType type, Encoding& out) {
  const Json& endian = member(configuration, "endian");
  if (endian == "big") {
    out.big_endian = true;
  } else if (endian != "little" && type.size > 1) {
    return wrong(fmt::format("the codec bytes has the endian {}", endian.dump()));
  }
  return {};
}

// The order of axes that results from one more transposition.
Result<void> read_transpose(const Json& configuration, size_t axes, Encoding& out) {
  const Json& order = member(configuration, "order");
  std::vector<size_t> next;
  for (size_t i = 0; order.is_array() && i < order.size(); ++i) {
    const size_t axis = order[i].is_number_unsigned() ? order[i].get<size_t>() : axes;
    if (axis >= axes || std::find(next.begin(), next.end(), axis) != next.end()) break;
    next.push_back(axis);
  }
  if (next.size() != axes) return wrong(fmt::format("the codec transpose has the order {}", order.dump()));
  if (!out.transpose.empty()) {
    for (size_t& axis : next) axis = out.transpose[axis];
  }
  out.transpose = std::move(next);
  return {};
}

Result<void> read_byte_codecs(const Json& list, size_t first, std::vector<ByteCodec>& out) {
  for (size_t i = first; i < list.size(); ++i) {
    const std::string name = name_of(list[i]);
    const auto codec = byte_codec_of(name);
    if (!codec) return wrong(fmt::format("the codec '{}' is unknown{}", name, kCodecRemedy));
    out.push_back(*codec);
  }
  return {};
}

// transpose*, bytes, byte codecs*
Result<void> read_encoding(const Json& list, size_t axes, ElementType type, Encoding& out) {
  if (!list.is_array()) return wrong("codecs, or those of a shard, are not a list");
  size_t next = 0;
  for (; next < list.size() && name_of(list[next]) == "transpose"; ++next) {
    if (auto read = read_transpose(member(list[next], "configuration"), axes, out); !read) return read;
  }
  if (next == list.size()) return wrong("codecs: 'bytes' is missing");
  if (const std::string name = name_of(list[next]); name != "bytes")
    return wrong(fmt::format("the codec '{}' stands where 'bytes' is expected{}", name, kCodecRemedy));
  const Json configuration = list[next].is_object() ? member(list[next], "configuration") : Json();
  if (auto read = read_bytes_codec(configuration, type, out); !read) return read;
  return read_byte_codecs(list, next + 1, out.codecs);
}

Result<void> read_sharding(const Json& configuration, ArrayMetadata& out) {
  Sharding sharding;
  Result<Shape> chunk = sizes_of(member(configuration, "chunk_shape"), "chunk_shape of the shards", 1);
  if (!chunk) return tl::make_unexpected(chunk.error());
  sharding.shape = std::exchange(out.chunk, std::move(*chunk));
  if (sharding.shape.size() != out.chunk.size()) return wrong("the chunks of a shard have other axes than the shard");
  for (size_t axis = 0; axis < out.chunk.size(); ++axis) {
    if (sharding.shape[axis] % out.chunk[axis] != 0) return wrong("a shard is not made of whole chunks");
  }
  const Json& location = member(configuration, "index_location");
  sharding.index_at_end = location != "start";
  Encoding index;
  const Json& index_codecs = member(configuration, "index_codecs");
  constexpr ElementType kOffset{ElementKind::kUint, 8};
  if (auto read = read_encoding(index_codecs, out.chunk.size() + 1, kOffset, index); !read) return read;
  const auto resizes = [](ByteCodec codec) { return codec != ByteCodec::kCrc32c; };
  if (index.big_endian || !index.transpose.empty() || std::any_of(index.codecs.begin(), index.codecs.end(), resizes))
    return wrong("index_codecs other than little-endian bytes and crc32c are not supported");
  sharding.index_codecs = std::move(index.codecs);
  out.sharding.push_back(std::move(sharding));
  return read_encoding(member(configuration, "codecs"), out.chunk.size(), out.type, out.encoding);
}

Result<void> read_codecs(const Json& list, ArrayMetadata& out) {
  if (!list.is_array() || list.empty()) return wrong("codecs is not a list");
  if (name_of(list[0]) != "sharding_indexed") return read_encoding(list, out.shape.size(), out.type, out.encoding);
  if (list.size() > 1) return wrong("codecs behind sharding_indexed are not supported");
  return read_sharding(member(list[0], "configuration"), out);
}

Result<void> read_keys(const Json& encoding, ArrayMetadata& out) {
  const std::string name = name_of(encoding);
  const bool is_default = name == "default";
  if (!is_default && name != "v2") return wrong(fmt::format("chunk_key_encoding '{}' is unknown", name));
  const Json& separator = member(member(encoding, "configuration"), "separator");
  out.key_separator = is_default ? '/' : '.';
  if (separator == "/" || separator == ".") out.key_separator = separator.get<std::string>()[0];
  if (is_default) out.key_prefix = fmt::format("c{}", out.key_separator);
  return {};
}

// Besides numbers and their names, version 3 has the bits of a float in hexadecimal.
Result<std::vector<uint8_t>> fill_with_bits(const Json& json, ElementType type) {
  if (!json.is_string() || !json.get_ref<const std::string&>().starts_with("0x")) return fill_of(json, type);
  const std::string& text = json.get_ref<const std::string&>();
  uint64_t bits = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data() + 2, end, bits, 16);
  if (error != std::errc() || parsed != end || text.size() != 2 + 2 * type.size)
    return wrong(fmt::format("fill_value {} is not a number", json.dump()));
  std::vector<uint8_t> fill;
  fill.reserve(type.size);
  for (size_t i = 0; i < type.size; ++i) fill.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  return fill;
}

}  // namespace

Result<ArrayMetadata> parse_v3(const Json& zarr_json) {
  if (!zarr_json.is_object() || member(zarr_json, "zarr_format") != 3) return wrong("zarr_format is not 3");
  if (member(zarr_json, "node_type") != "array") return wrong("node_type is not array");
  ArrayMetadata out;
  Result<Shape> shape = sizes_of(member(zarr_json, "shape"), "shape", 0);
  if (!shape) return tl::make_unexpected(shape.error());
  out.shape = std::move(*shape);
  const Json& grid = member(zarr_json, "chunk_grid");
  if (name_of(grid) != "regular") return wrong(fmt::format("chunk_grid '{}' is not regular", name_of(grid)));
  Result<Shape> chunk = sizes_of(member(member(grid, "configuration"), "chunk_shape"), "chunk_shape", 1);
  if (!chunk) return tl::make_unexpected(chunk.error());
  out.chunk = std::move(*chunk);
  const Json& data_type = member(zarr_json, "data_type");
  const auto type = type_of_name(data_type.is_string() ? data_type.get<std::string>() : "");
  if (!type) return wrong(fmt::format("data_type {} is not a number's", data_type.dump()));
  out.type = *type;
  Result<std::vector<uint8_t>> fill = fill_with_bits(member(zarr_json, "fill_value"), out.type);
  if (!fill) return tl::make_unexpected(fill.error());
  out.fill = std::move(*fill);
  return check_axes(out)
      .and_then([&] { return read_keys(member(zarr_json, "chunk_key_encoding"), out); })
      .and_then([&] { return read_codecs(member(zarr_json, "codecs"), out); })
      .and_then([&] { return check_chunk_size(out); })
      .map([&] { return std::move(out); });
}

}  // namespace oarlock::zarr

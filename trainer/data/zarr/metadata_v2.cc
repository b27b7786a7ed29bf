#include <numeric>

#include "trainer/data/zarr/metadata_members.h"

namespace oarlock::zarr {
namespace {

using Json = nlohmann::json;

Result<void> read_encoding(const Json& zarray, ArrayMetadata& out) {
  const Json& filters = member(zarray, "filters");
  if (!filters.is_null() && !filters.empty())
    return wrong(fmt::format("filters {} are not supported: write the array without", filters.dump()));
  const Json& order = member(zarray, "order");
  if (order == "F") {
    out.encoding.transpose.resize(out.shape.size());
    std::iota(out.encoding.transpose.rbegin(), out.encoding.transpose.rend(), 0);
  } else if (order != "C") {
    return wrong(fmt::format("order {} is neither C nor F", order.dump()));
  }
  const Json& compressor = member(zarray, "compressor");
  if (compressor.is_null()) return {};
  const Json& id = member(compressor, "id");
  const auto codec = byte_codec_of(id.is_string() ? id.get<std::string>() : "");
  if (!codec) return wrong(fmt::format("the codec {} is unknown{}", id.dump(), kCodecRemedy));
  out.encoding.codecs.push_back(*codec);
  return {};
}

}  // namespace

Result<ArrayMetadata> parse_v2(const Json& zarray) {
  if (!zarray.is_object() || member(zarray, "zarr_format") != 2) return wrong("zarr_format is not 2");
  ArrayMetadata out;
  Result<Shape> shape = sizes_of(member(zarray, "shape"), "shape", 0);
  if (!shape) return tl::make_unexpected(shape.error());
  Result<Shape> chunk = sizes_of(member(zarray, "chunks"), "chunks", 1);
  if (!chunk) return tl::make_unexpected(chunk.error());
  out.shape = std::move(*shape);
  out.chunk = std::move(*chunk);
  const Json& dtype = member(zarray, "dtype");
  const auto type = type_of_typestr(dtype.is_string() ? dtype.get<std::string>() : "");
  if (!type) return wrong(fmt::format("dtype {} is not a number's", dtype.dump()));
  out.type = type->type;
  out.encoding.big_endian = type->big_endian;
  Result<std::vector<uint8_t>> fill = fill_of(member(zarray, "fill_value"), out.type);
  if (!fill) return tl::make_unexpected(fill.error());
  out.fill = std::move(*fill);
  const Json& separator = member(zarray, "dimension_separator");
  if (separator == "/") {
    out.key_separator = '/';
  } else if (!separator.is_null() && separator != ".") {
    return wrong(fmt::format("dimension_separator {} is neither . nor /", separator.dump()));
  }
  return check_axes(out)
      .and_then([&] { return check_chunk_size(out); })
      .and_then([&] { return read_encoding(zarray, out); })
      .map([&] { return std::move(out); });
}

}  // namespace oarlock::zarr

// What both versions of zarr's metadata have in common; for the files of this folder only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/data/zarr/metadata.h"

namespace oarlock::zarr {

inline tl::unexpected<Error> wrong(std::string what) { return fail(ExitCode::kDataErr, std::move(what)); }

constexpr char kCodecRemedy[] =
    "; blosc, zstd, zlib, gzip and crc32c can be read: write the array again with one of them";

inline const nlohmann::json& member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

// Sizes along the axes, each from `least`, whose product is a number of elements that memory could hold.
inline Result<Shape> sizes_of(const nlohmann::json& json, const char* name, int64_t least) {
  constexpr double kMaxElements = 1e15;
  constexpr size_t kMaxAxes = 32;
  if (!json.is_array() || json.size() > kMaxAxes) return wrong(fmt::format("{} is not a list of sizes", name));
  Shape sizes;
  double elements = 1;
  for (const nlohmann::json& size : json) {
    if (!size.is_number_integer() || size.get<int64_t>() < least)
      return wrong(fmt::format("{} {}: {} is no size", name, json.dump(), size.dump()));
    sizes.push_back(size.get<int64_t>());
    elements *= static_cast<double>(std::max<int64_t>(sizes.back(), 1));  // [0, 1e18, 1e18] would overflow
  }
  if (elements > kMaxElements) return wrong(fmt::format("{} {} makes no sense", name, json.dump()));
  return sizes;
}

// A number, a truth value, "NaN", "Infinity" or "-Infinity"; null means 0.
inline Result<std::vector<uint8_t>> fill_of(const nlohmann::json& json, ElementType type) {
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
  } else if (!json.is_null()) {
    return wrong(fmt::format("fill_value {} is not a number", json.dump()));
  }
  if (!fits) return wrong(fmt::format("fill_value {} does not fit into an element", json.dump()));
  return fill;
}

inline Result<void> check_axes(const ArrayMetadata& metadata) {
  if (metadata.shape.size() == metadata.chunk.size()) return {};
  return wrong(fmt::format("{} axes, but chunks of {}", metadata.shape.size(), metadata.chunk.size()));
}

// A chunk is decoded as a whole. The codecs cannot hold more than 2 GiB either.
inline Result<void> check_chunk_size(const ArrayMetadata& metadata) {
  constexpr double kMaxChunkBytes = 2147483648.0;
  double bytes = static_cast<double>(metadata.type.size);
  for (const int64_t size : metadata.chunk) bytes *= static_cast<double>(size);
  if (bytes <= kMaxChunkBytes) return {};
  return wrong(
      fmt::format("a chunk of {} bytes; at most 2 GiB can be read: write the array again with smaller chunks", bytes));
}

}  // namespace oarlock::zarr

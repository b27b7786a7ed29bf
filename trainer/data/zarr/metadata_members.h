// What both versions of zarr's metadata have in common; for the files of this folder only.
#pragma once

#include <fmt/format.h>

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
    elements *= static_cast<double>(sizes.back());
  }
  if (elements > kMaxElements) return wrong(fmt::format("{} {} makes no sense", name, json.dump()));
  return sizes;
}

// A number, a truth value, "NaN", "Infinity" or "-Infinity"; null means 0.
inline Result<std::vector<uint8_t>> fill_of(const nlohmann::json& json, ElementType type) {
  std::vector<uint8_t> fill(type.size);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.is_boolean()) {
    fill[0] = json.get<bool>() ? 1 : 0;
  } else if (json.is_number()) {
    to_element(json.get<double>(), type, fill);
  } else if (json == "NaN") {
    to_element(std::numeric_limits<double>::quiet_NaN(), type, fill);
  } else if (json == "Infinity" || json == "-Infinity") {
    to_element(json == "Infinity" ? kInfinity : -kInfinity, type, fill);
  } else if (!json.is_null()) {
    return wrong(fmt::format("fill_value {} is not a number", json.dump()));
  }
  return fill;
}

inline Result<void> check_axes(const ArrayMetadata& metadata) {
  if (metadata.shape.size() == metadata.chunk.size()) return {};
  return wrong(fmt::format("{} axes, but chunks of {}", metadata.shape.size(), metadata.chunk.size()));
}

}  // namespace oarlock::zarr

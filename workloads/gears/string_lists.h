// JSON files that map names to lists of texts: the terms of genes, and splits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "common/error.h"

namespace oarlock::gears {

// Returns the object of a file such as {"NAME": ["text", ...], ...}; its values may have other types. Fails with
// kDataErr if the file is longer than `max_bytes`, is not JSON, is not an object, or is nested more deeply, and with
// kOsErr if the object may not fit into memory. Messages name the file, and for JSON that is not valid the line.
Result<nlohmann::json> read_string_lists(const std::filesystem::path& path, size_t max_bytes);

}  // namespace oarlock::gears

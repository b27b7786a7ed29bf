// Writes PNG files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace oarlock {

// Returns the bytes of a PNG file. `pixels` holds 8-bit samples in rows from the top, with 1 (gray) or 3 (RGB) channels
// per pixel: width * height * channels bytes. Sizes are at least 1. zlib compresses the rows and computes the
// checksums.
std::string encode_png(std::span<const uint8_t> pixels, int64_t width, int64_t height, int channels);

}  // namespace oarlock

// Values of W&B's history that are not numbers, and the files that belong to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/tracking/event.h"

namespace oarlock {

// A histogram: {"_type":"histogram","bins":[...],"values":[...]} with at most `max_bins` bins.
std::string wandb_histogram(const Histogram& histogram, size_t max_bins = 512);

// A page that shows a text as it is.
std::string wandb_html(const std::string& text);

// The path of a media file in the folder "files" of a run, from the name of its value, of which only slashes and
// harmless characters remain.
std::string wandb_media_path(const char* folder, const std::string& name, int64_t step, const std::string& hash,
                             const char* extension);

// The SHA-256 of a media file in hexadecimal digits.
std::string hex_sha256(std::string_view content);

}  // namespace oarlock

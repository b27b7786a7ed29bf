#include "trainer/tracking/wandb_values.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "trainer/tracking/wandb_file.h"

namespace oarlock {

std::string wandb_histogram(const Histogram& histogram, size_t max_bins) {
  // Empty buckets at both ends are not part of the range.
  size_t first = 0, last = std::min(histogram.limits.size(), histogram.counts.size());
  while (first < last && histogram.counts[first] == 0) ++first;
  while (last > first && histogram.counts[last - 1] == 0) --last;
  const size_t width = std::max<size_t>(1, (last - first + max_bins - 1) / max_bins);  // buckets per bin
  std::string bins = wandb_json(histogram.min);
  std::string values;
  for (size_t begin = first; begin < last; begin += width) {
    const size_t end = std::min(begin + width, last);
    double count = 0;
    for (size_t i = begin; i < end; ++i) count += histogram.counts[i];
    bins += "," + wandb_json(std::min(histogram.limits[end - 1], histogram.max));
    values += (values.empty() ? "" : ",") + wandb_json(count);
  }
  if (values.empty()) {
    bins += "," + wandb_json(histogram.max);
    values = "0";
  }
  return fmt::format(R"({{"_type":"histogram","bins":[{}],"values":[{}]}})", bins, values);
}

std::string hex_sha256(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(content.data(), content.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) return "";
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string wandb_media_path(const char* folder, const std::string& name, int64_t step, const std::string& hash,
                             const char* extension) {
  std::string safe;
  for (const char c : name) {
    const bool is_plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '_' || c == '-' || c == '/';
    safe += is_plain ? c : '_';
  }
  while (safe.starts_with('/')) safe.erase(0, 1);
  return fmt::format("media/{}/{}_{}_{}.{}", folder, safe, step, hash.substr(0, 20), extension);
}

std::string wandb_html(const std::string& text) {
  std::string out = "<!DOCTYPE html><meta charset=\"utf-8\"><pre style=\"white-space: pre-wrap\">";
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out + "</pre>\n";
}

}  // namespace oarlock

#include "operator/core/rank_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace oarlock::control {
namespace {

std::optional<size_t> to_rank(std::string_view text) {
  size_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return rank;
}

}  // namespace

std::string format_rank_set(const std::vector<bool>& ranks) {
  std::string out;
  for (size_t first = 0; first < ranks.size(); ++first) {
    if (!ranks[first]) continue;
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1]) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first);
    if (last > first) out += fmt::format("-{}", last);
    first = last;
  }
  return out;
}

std::vector<bool> parse_rank_set(std::string_view text, size_t size) {
  std::vector<bool> out(size, false);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = item.find('-');
    const std::optional<size_t> first = to_rank(item.substr(0, dash));
    const std::optional<size_t> last = dash == std::string_view::npos ? first : to_rank(item.substr(dash + 1));
    if (!first || !last) continue;
    for (size_t rank = *first; rank < size && rank <= *last; ++rank) out[rank] = true;
  }
  return out;
}

}  // namespace oarlock::control

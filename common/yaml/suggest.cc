#include "common/yaml/suggest.h"

#include <algorithm>
#include <cctype>

namespace oarlock {
namespace {

constexpr size_t kLongestName = 200;  // what is longer is not a typing error, and would take long to compare

std::string normalized(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

int edit_distance(std::string_view a_text, std::string_view b_text) {
  const std::string a = normalized(a_text);
  const std::string b = normalized(b_text);
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string suggest(std::string_view typed, const std::vector<std::string>& candidates) {
  if (typed.size() > kLongestName) return "";
  std::string best;
  int best_distance = static_cast<int>(std::max<size_t>(typed.size() / 3, 1)) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(typed, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace oarlock

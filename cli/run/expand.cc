#include "cli/run/expand.h"

namespace oarlock::run {

std::string expand(std::string_view text, const Lookup& lookup) {
  std::string out;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    out += text.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {
      out += '$';
      text.remove_prefix(2);
      continue;
    }
    const size_t end = text.starts_with("$(") ? text.find(')') : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += '$';
      text.remove_prefix(1);
      continue;
    }
    const std::string_view reference = text.substr(0, end + 1);
    out += lookup(std::string(reference.substr(2, end - 2))).value_or(std::string(reference));
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace oarlock::run

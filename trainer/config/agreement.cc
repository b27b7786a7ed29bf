#include "trainer/config/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/text.h"

namespace oarlock {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  if (value.is_string()) return replace_invalid_utf8(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());  // JSON lacks infinity
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The scope of the innermost section that has one.
Scope scope_of(const std::string& path, const FieldScopes& scopes, Scope inherited) {
  const auto found = scopes.find(path);
  return found == scopes.end() ? inherited : found->second;
}

void add_values(const Json& value, const std::string& path, Scope inherited, const FieldScopes& scopes,
                AgreedValues& out) {
  const Scope scope = scope_of(path, scopes, inherited);
  if (scope == Scope::kRank) return;
  const bool has_maps =
      value.is_array() && std::any_of(value.begin(), value.end(), [](const Json& item) { return item.is_object(); });
  if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      add_values(member, path.empty() ? key : fmt::format("{}.{}", path, key), scope, scopes, out);
  } else if (has_maps) {
    for (size_t i = 0; i < value.size(); ++i) add_values(value[i], fmt::format("{}[{}]", path, i), scope, scopes, out);
  } else {
    out[path] = scope == Scope::kPresence ? presence(value.is_string() ? text_of(value) : "value") : text_of(value);
  }
}

}  // namespace

std::string presence(const std::string& value) { return value.empty() ? "not set" : "set"; }

AgreedValues agreed_settings(const Json& printed, const FieldScopes& scopes) {
  AgreedValues out;
  add_values(printed, "", Scope::kShared, scopes, out);
  return out;
}

}  // namespace oarlock

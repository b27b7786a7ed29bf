#include "yaml/writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::yaml {
namespace {

// Returns true if YAML reads the text back as the same string without quotes. Conservative: it accepts only characters
// that are not special anywhere in a plain scalar.
bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_./-").find(c) != std::string_view::npos;
  };
  if (text.empty() || !(letter(text.front()) || text.front() == '/') ||
      !std::all_of(text.begin(), text.end(), harmless))
    return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kWords.begin(), kWords.end(), lower) == kWords.end();
}

template <typename Json>
std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.template get_ref<const std::string&>())) return value;
  if (value.is_number_float() && !std::isfinite(value.template get<double>())) {
    const auto number = value.template get<double>();
    return std::isnan(number) ? ".nan" : number > 0 ? ".inf" : "-.inf";
  }
  // JSON scalars, {} and [] are valid YAML. Control characters are escaped.
  const std::string text = dump_json(value);
  return is_printable(text) ? text : value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

template <typename Json>
bool is_block(const Json& value) {
  return value.is_structured() && !value.empty();
}

template <typename Json>
void write(const Json& value, size_t indent, std::string& out);

// Writes the value that follows "key:".
template <typename Json>
void write_value(const Json& value, size_t indent, std::string& out) {
  if (is_block(value)) {
    out += '\n';
    write(value, indent, out);
  } else {
    out += ' ' + scalar(value) + '\n';
  }
}

template <typename Json>
void write(const Json& value, size_t indent, std::string& out) {
  const std::string space(indent, ' ');
  if (!is_block(value)) {
    out += space + scalar(value) + '\n';
  } else if (value.is_object()) {
    for (const auto& [key, child] : value.items()) {
      out += space + scalar(Json(key)) + ':';
      write_value(child, child.is_array() ? indent : indent + 2, out);
    }
  } else {
    for (const Json& item : value) {
      const size_t begin = out.size();
      write(item, indent + 2, out);
      out[begin + indent] = '-';  // in the indentation of the item's first line
    }
  }
}

template <typename Json>
std::string document(const Json& value) {
  std::string out;
  write(value, 0, out);
  return out;
}

}  // namespace

std::string to_yaml(const nlohmann::json& value) { return document(value); }
std::string to_yaml(const nlohmann::ordered_json& value) { return document(value); }

}  // namespace oarlock::yaml

#include "cli/run/continue_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

namespace oarlock::run {
namespace {

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "_@%+=:,./-";
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

struct Length {
  std::string unit;  // "epochs" or "steps"
  int64_t count = 0;
};

// Returns the length that a setting such as "epochs=3" gives.
std::optional<Length> length_in(const std::string& setting) {
  for (const char* unit : {"epochs", "steps"}) {
    const std::string prefix = fmt::format("{}=", unit);
    if (!setting.starts_with(prefix)) continue;
    Length out{.unit = unit, .count = 0};
    const char* end = setting.data() + setting.size();
    const auto [stop, error] = std::from_chars(setting.data() + prefix.size(), end, out.count);
    if (error == std::errc() && stop == end) return out;
  }
  return std::nullopt;
}

std::optional<Length> length_of(const std::string& trainer) {
  const auto json = nlohmann::json::parse(trainer, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  for (const char* unit : {"steps", "epochs"}) {
    const auto it = json.find(unit);
    if (it != json.end() && it->is_number_integer()) return Length{.unit = unit, .count = it->get<int64_t>()};
  }
  return std::nullopt;
}

}  // namespace

std::string command_line(const RunCommand& command) {
  std::string out = "oarlock run " + quoted(command.file);
  const auto add = [&out](const char* option, const std::string& value) {
    out += fmt::format(" {} {}", option, quoted(value));
  };
  if (!command.name.empty()) add("--name", command.name);
  if (!command.workdir.empty()) add("--workdir", command.workdir);
  if (command.nodes) add("--nodes", std::to_string(*command.nodes));
  if (command.nproc) add("--nproc", std::to_string(*command.nproc));
  for (const std::string& setting : command.settings) out += " " + quoted(setting);
  return out;
}

std::optional<std::string> longer_command(const RunCommand& command, const std::string& trainer) {
  constexpr int64_t kMost = int64_t{1} << 40;
  std::optional<Length> length = length_of(trainer);
  RunCommand longer = command;
  longer.settings.clear();
  for (const std::string& setting : command.settings) {
    if (const std::optional<Length> given = length_in(setting)) {
      length = given;
    } else {
      longer.settings.push_back(setting);
    }
  }
  if (!length || length->count < 1 || length->count > kMost) return std::nullopt;
  longer.settings.push_back(fmt::format("{}={}", length->unit, 2 * length->count));
  return command_line(longer);
}

}  // namespace oarlock::run

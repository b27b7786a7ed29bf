#include "yaml/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/json_access.h"
#include "common/text.h"
#include "yaml/internal.h"

namespace oarlock::yaml {
namespace {

constexpr size_t kMaxPath = 200;
constexpr size_t kMaxMessage = 1000;
constexpr std::string_view kExpected = "expected ";  // begins messages about values of a wrong type

// Whether readers recognize the value in the text: true for 7 and 1.0, false for 017, 0x1F and 1_000.
bool is_decimal_form(std::string_view text, const nlohmann::json& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number == value.get<double>();
}

std::string describe(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kSequence:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
    case Node::Kind::kScalar:
      break;
  }
  const std::string text = shortened(node.text());
  if (node.is_quoted()) return fmt::format("the string \"{}\"", text);
  const nlohmann::json value = node.value();
  // Words such as 'on' and numbers such as 017 have a value that differs from their text.
  const std::string json = dump_json(value);
  if (value.is_boolean() && json != text) return fmt::format("'{}', which is the boolean {} in YAML", text, json);
  if (value.is_number() && !is_decimal_form(text, value))
    return fmt::format("'{}', which is the number {} in YAML", text, json);
  return fmt::format("'{}'", text);
}

// Describes a scalar that is not a string, where a string is required.
std::string describe_other_type(const Node& node) {
  const std::string described = describe(node);
  const bool is_as_written = described == fmt::format("'{}'", shortened(node.text()));
  if (!is_as_written) return described;
  return fmt::format("the {} {}", node.value().is_boolean() ? "boolean" : "number", shortened(node.text()));
}

// Returns why kubectl rejects or changes a key without quotes; empty if it does not. The parser rejects null.
std::string problem_of_plain_key(const std::string& key) {
  const nlohmann::json value = with_whole_number(resolve_plain_scalar(key));
  if (value.is_string() || value.dump() == key) return "";
  const std::string_view type = value.is_boolean() ? "boolean" : "number";
  return fmt::format("this key is the {} {} in YAML; put it in quotes", type, value.dump());
}

// `path` is restored before the function returns.
void check_conversion(const Node& node, std::string& path, Problems& problems) {
  const size_t length = path.size();
  for (const Node::Entry& entry : node.entries()) {
    path += (path.empty() ? "" : ".") + entry.key;
    const std::string why = entry.is_key_quoted ? "" : problem_of_plain_key(entry.key);
    if (!why.empty()) problems.add(entry.key_mark, path, why);
    check_conversion(entry.value, path, problems);
    path.resize(length);
  }
  const std::vector<Node> items = node.items();
  for (size_t i = 0; i < items.size(); ++i) {
    path += fmt::format("[{}]", i);
    check_conversion(items[i], path, problems);
    path.resize(length);
  }
  if (node.kind() != Node::Kind::kScalar) return;
  const nlohmann::json value = node.value();
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return;
  problems.add(node.mark(), path,
               fmt::format("'{}' does not exist in JSON, so that kubectl rejects the file; use a finite number, or put "
                           "it in quotes",
                           shortened(node.text())));
}

bool is_string(const Node& node) { return node.value().is_string(); }

// Returns the remedy for a string whose text is a value of the expected type; empty for others.
std::string remedy_for_quotes(const Node& node, bool (*is_expected)(const nlohmann::json&)) {
  if (!node.is_quoted()) return "";
  const nlohmann::json value = with_whole_number(resolve_plain_scalar(node.text()));
  const bool is_as_written = value.is_number() ? is_decimal_form(node.text(), value) : value.dump() == node.text();
  return is_expected(value) && is_as_written ? "; remove the quotes" : "";
}

// Returns the remedy for a duration with a unit, such as 2h, where a number of seconds is expected; empty for others.
std::string remedy_for_duration(const Node& node, std::string_view key) {
  constexpr std::pair<char, int64_t> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}, {'w', 604'800}};
  const std::string text = node.text();
  if (key.find("Seconds") == std::string_view::npos && !key.ends_with("seconds")) return "";
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end + 1 != text.data() + text.size() || number < 0 || number > 1'000'000) return "";
  for (const auto& [unit, seconds] : kUnits) {
    if (*end == unit) return fmt::format("; write {}, the number of seconds", number * seconds);
  }
  return "";
}

std::optional<bool> to_bool(const Node& node) {
  const nlohmann::json value = node.value();
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<int64_t> to_integer(const Node& node) {
  const nlohmann::json value = node.value();
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<double> to_double(const Node& node) {
  const nlohmann::json value = node.value();
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace

nlohmann::json scalar_value(const std::string& text, Tag tag) {
  if (tag == Tag::kQuoted || tag == Tag::kString || tag == Tag::kOther) return text;
  return resolve_plain_scalar(text);
}

Node::Node(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

Node::Kind Node::kind() const { return data_->kind; }
Mark Node::mark() const { return data_->mark; }
std::string Node::text() const { return data_->text; }
bool Node::is_quoted() const { return data_->tag == Tag::kQuoted; }
std::vector<Node::Entry> Node::entries() const { return data_->entries; }
std::vector<Node> Node::items() const { return data_->items; }

std::optional<Node> Node::find(std::string_view key) const {
  for (const Entry& entry : data_->entries) {
    if (entry.key == key) return entry.value;
  }
  return std::nullopt;
}

nlohmann::json Node::value() const { return with_whole_number(scalar_value(data_->text, data_->tag)); }

nlohmann::json Node::to_json() const {
  switch (kind()) {
    case Kind::kNull:
      return nullptr;
    case Kind::kSequence: {
      nlohmann::json out = nlohmann::json::array();
      for (const Node& item : items()) out.push_back(item.to_json());
      return out;
    }
    case Kind::kMap: {
      nlohmann::json out = nlohmann::json::object();
      for (const Entry& entry : entries()) out[entry.key] = entry.value.to_json();
      return out;
    }
    case Kind::kScalar:
      break;
  }
  nlohmann::json scalar = value();
  if (scalar.is_number_float() && !std::isfinite(scalar.get<double>())) return data_->text;
  return scalar;
}

std::string place_text(const std::string& file, Mark mark) {
  if (mark.on_command_line) return "command line";
  const std::string name = printable(file);
  return mark.line == 0 ? name : fmt::format("{}:{}:{}", name, mark.line, mark.column);
}

void Problems::add(Mark mark, std::string_view path, std::string_view message) {
  if (is_full()) {
    ++count_;
    return;
  }
  std::string place = place_text(file_, mark) + ": ";
  const std::string full =
      root_.empty() || path.empty() ? root_ + std::string(path) : fmt::format("{}.{}", root_, path);
  if (!full.empty()) place += shortened(full, kMaxPath) + ": ";
  std::string line = place + shortened(message, kMaxMessage);
  // Several checks can find that a value has a wrong type. The longer message has more detail.
  if (message.starts_with(kExpected)) {
    const auto same = std::ranges::find_if(
        lines_, [&](const std::string& other) { return other.starts_with(place + std::string(kExpected)); });
    if (same != lines_.end()) {
      if (line.size() > same->size()) *same = std::move(line);
      return;
    }
  }
  ++count_;
  lines_.push_back(std::move(line));
}

Error Problems::to_error() const {
  std::string text = fmt::format("{}", fmt::join(lines_, "\n"));
  if (count_ > lines_.size()) {
    const size_t more = count_ - lines_.size();
    text += fmt::format("\n{}: and {} more problem{}", printable(file_), more, more == 1 ? "" : "s");
  }
  return {ExitCode::kConfig, text};
}

bool check_string(const Node& value, std::string_view path, Problems& problems) {
  if (value.kind() == Node::Kind::kScalar && is_string(value)) return true;
  if (value.kind() == Node::Kind::kScalar) {
    problems.add(value.mark(), path,
                 fmt::format("expected a string, got {}; put it in quotes", describe_other_type(value)));
  } else {
    problems.add(value.mark(), path, fmt::format("expected a string, got {}", describe(value)));
  }
  return false;
}

void check_json_conversion(const Node& object, Problems& problems) {
  std::string path;
  check_conversion(object, path, problems);
}

MapReader::MapReader(const Node& node, std::string path, Problems& problems)
    : node_(node), path_(std::move(path)), problems_(problems) {
  if (node_.kind() != Node::Kind::kMap && node_.kind() != Node::Kind::kNull) {
    problems_.add(node_.mark(), path_, fmt::format("expected a map, got {}", describe(node_)));
  }
}

std::string MapReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::optional<Node> MapReader::take(std::string_view key) {
  known_.emplace_back(key);
  return node_.find(key);
}

void MapReader::problem(std::string_view key, std::string_view message) {
  const std::optional<Node> value = node_.find(key);
  problems_.add(value ? value->mark() : node_.mark(), path_of(key), message);
}

bool MapReader::has(std::string_view key) const {
  const std::optional<Node> value = node_.find(key);
  return value && value->kind() != Node::Kind::kNull;
}

void MapReader::require(std::string_view key) {
  if (!has(key)) problems_.add(node_.mark(), path_of(key), "is required");
}

std::optional<Node> MapReader::scalar(std::string_view key, std::string_view expected) {
  std::optional<Node> value = take(key);
  if (!value || value->kind() == Node::Kind::kNull)
    return std::nullopt;  // a null value selects the default, as in Kubernetes
  if (value->kind() != Node::Kind::kScalar) {
    problem(key, fmt::format("expected {}, got {}", expected, describe(*value)));
    return std::nullopt;
  }
  return value;
}

bool MapReader::read(std::string_view key, bool& target) {
  const auto value = scalar(key, "true or false");
  if (!value) return false;
  const std::optional<bool> flag = to_bool(*value);
  if (!flag) {
    problem(key, fmt::format("expected true or false, got {}{}", describe(*value),
                             remedy_for_quotes(*value, [](const auto& json) { return json.is_boolean(); })));
    return false;
  }
  target = *flag;
  return true;
}

bool MapReader::read(std::string_view key, int64_t& target) {
  const auto value = scalar(key, "an integer");
  if (!value) return false;
  const std::optional<int64_t> number = to_integer(*value);
  if (!number) {
    problem(key, fmt::format("expected an integer, got {}{}{}", describe(*value),
                             remedy_for_quotes(*value, [](const auto& json) { return json.is_number_integer(); }),
                             remedy_for_duration(*value, key)));
    return false;
  }
  target = *number;
  return true;
}

bool MapReader::read(std::string_view key, int& target) {
  int64_t wide = target;
  if (!read(key, wide)) return false;
  if (wide < INT32_MIN || wide > INT32_MAX) {
    problem(key, fmt::format("{} is out of range", wide));
    return false;
  }
  target = static_cast<int>(wide);
  return true;
}

bool MapReader::read(std::string_view key, double& target) {
  const auto value = scalar(key, "a number");
  if (!value) return false;
  const std::optional<double> number = to_double(*value);
  if (!number) {
    problem(key, fmt::format("expected a number, got {}{}", describe(*value),
                             remedy_for_quotes(*value, [](const auto& json) { return json.is_number(); })));
    return false;
  }
  target = *number;
  return true;
}

bool MapReader::read(std::string_view key, std::string& target) {
  const auto value = scalar(key, "a string");
  if (!value || !check_string(*value, path_of(key), problems_)) return false;
  target = value->text();
  return true;
}

template <typename T, typename Convert>
bool MapReader::read_list(std::string_view key, std::vector<T>& target, std::string_view expected, Convert convert) {
  const auto value = take(key);
  if (!value || value->kind() == Node::Kind::kNull) return false;
  if (value->kind() != Node::Kind::kSequence) {
    problem(key, fmt::format("expected a list of {}, got {}", expected, describe(*value)));
    return false;
  }
  std::vector<T> out;
  for (const Node& item : value->items()) {
    const std::optional<T> converted = item.kind() == Node::Kind::kScalar ? convert(item) : std::nullopt;
    if (!converted) {
      problems_.add(
          item.mark(), fmt::format("{}[{}]", path_of(key), out.size()),
          fmt::format("expected {}, got {}{}", expected, describe(item),
                      expected == "strings" && item.kind() == Node::Kind::kScalar ? "; put it in quotes" : ""));
      return false;
    }
    out.push_back(*converted);
  }
  target = std::move(out);
  return true;
}

bool MapReader::read(std::string_view key, std::vector<std::string>& target) {
  return read_list(key, target, "strings", [](const Node& item) -> std::optional<std::string> {
    return is_string(item) ? std::optional(item.text()) : std::nullopt;
  });
}

bool MapReader::read(std::string_view key, std::vector<double>& target) {
  return read_list(key, target, "numbers", to_double);
}

bool MapReader::read(std::string_view key, std::vector<int64_t>& target) {
  return read_list(key, target, "integers", to_integer);
}

std::optional<size_t> MapReader::read_choice(std::string_view key, const std::vector<std::string_view>& choices) {
  const auto value = scalar(key, "a name");
  if (!value) return std::nullopt;
  const std::string text = value->text();
  if (!is_string(*value)) {
    problem(key, fmt::format("expected one of {}, got {}; put it in quotes", fmt::join(choices, ", "),
                             describe_other_type(*value)));
    return std::nullopt;
  }
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  const std::string near = suggest(text, {choices.begin(), choices.end()});
  problem(key, fmt::format("'{}' is not one of {}{}", shortened(text), fmt::join(choices, ", "),
                           near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  return std::nullopt;
}

bool MapReader::map(std::string_view key, const std::function<void(MapReader&)>& read_fields) {
  const std::optional<Node> value = take(key);
  if (!value) return false;
  MapReader nested(*value, path_of(key), problems_);
  read_fields(nested);
  nested.finish();
  return true;
}

void MapReader::finish() {
  for (const Node::Entry& entry : node_.entries()) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    if (problems_.is_full()) {
      problems_.add(entry.key_mark, "", "");  // only counted
      continue;
    }
    const std::string near = suggest(entry.key, known_);
    problems_.add(entry.key_mark, path_of(entry.key),
                  near.empty() ? fmt::format("unknown key; the known keys are {}", fmt::join(known_, ", "))
                               : fmt::format("unknown key; did you mean '{}'?", near));
  }
}

}  // namespace oarlock::yaml

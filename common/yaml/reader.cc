#include "common/yaml/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "common/yaml/node_data.h"

namespace oarlock::yaml {
namespace {

constexpr size_t kLongestPath = 200;
constexpr size_t kLongestMessage = 1000;

std::optional<bool> to_bool(const std::string& text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

template <typename T>
std::optional<T> to_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_double(const std::string& text) {
  if (text == ".inf" || text == "+.inf" || text == ".Inf") return INFINITY;
  if (text == "-.inf" || text == "-.Inf") return -INFINITY;
  if (text == ".nan" || text == ".NaN") return NAN;
  const std::optional<double> value = to_number<double>(text);
  if (!value || !std::isfinite(*value))
    return std::nullopt;  // from_chars also takes "inf" and "nan", which YAML does not
  return value;
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
  return node.is_quoted() ? fmt::format("the string \"{}\"", text) : fmt::format("'{}'", text);
}

}  // namespace

bool is_null_text(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
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
  const std::string value = text();
  const Tag tag = data_->tag;
  if (is_quoted() || tag == Tag::kString) return value;
  if (const auto flag = to_bool(value)) return *flag;
  if (const auto integer = to_number<int64_t>(value); integer && tag != Tag::kFloat) return *integer;
  if (const auto number = to_double(value); number && std::isfinite(*number)) return *number;
  return value;
}

std::string place_text(const std::string& file, Mark mark) {
  if (mark.on_command_line) return "command line";
  const std::string name = printable(file);
  return mark.line == 0 ? name : fmt::format("{}:{}:{}", name, mark.line, mark.column);
}

void Problems::add(Mark mark, std::string_view path, std::string_view message) {
  ++count_;
  if (lines_.size() == kMaxShown) return;
  std::string line = place_text(file_, mark) + ": ";
  if (!path.empty()) line += shortened(path, kLongestPath) + ": ";
  lines_.push_back(line + shortened(message, kLongestMessage));
}

Error Problems::to_error() const {
  std::string text = fmt::format("{}", fmt::join(lines_, "\n"));
  if (count_ > lines_.size()) {
    const size_t more = count_ - lines_.size();
    text += fmt::format("\n{}: and {} more problem{}", printable(file_), more, more == 1 ? "" : "s");
  }
  return {ExitCode::kConfig, text};
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
  const auto flag = value->is_quoted() ? std::nullopt : to_bool(value->text());
  if (!flag) {
    problem(key, fmt::format("expected true or false, got {}", describe(*value)));
    return false;
  }
  target = *flag;
  return true;
}

bool MapReader::read(std::string_view key, int64_t& target) {
  const auto value = scalar(key, "an integer");
  if (!value) return false;
  const auto number = value->is_quoted() ? std::nullopt : to_number<int64_t>(value->text());
  if (!number) {
    problem(key, fmt::format("expected an integer, got {}", describe(*value)));
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
  const auto number = value->is_quoted() ? std::nullopt : to_double(value->text());
  if (!number) {
    problem(key, fmt::format("expected a number, got {}", describe(*value)));
    return false;
  }
  target = *number;
  return true;
}

bool MapReader::read(std::string_view key, std::string& target) {
  const auto value = scalar(key, "a string");
  if (!value) return false;
  const nlohmann::json json = value->to_json();
  if (!json.is_string()) {
    problem(key, fmt::format("expected a string, got {}; put it in quotes", describe(*value)));
    return false;
  }
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
      problems_.add(item.mark(), fmt::format("{}[{}]", path_of(key), out.size()),
                    fmt::format("expected {}, got {}", expected, describe(item)));
      return false;
    }
    out.push_back(*converted);
  }
  target = std::move(out);
  return true;
}

bool MapReader::read(std::string_view key, std::vector<std::string>& target) {
  return read_list(key, target, "strings", [](const Node& item) -> std::optional<std::string> {
    if (!item.to_json().is_string()) return std::nullopt;
    return item.text();
  });
}

bool MapReader::read(std::string_view key, std::vector<double>& target) {
  return read_list(key, target, "numbers", [](const Node& item) -> std::optional<double> {
    return item.is_quoted() ? std::nullopt : to_double(item.text());
  });
}

bool MapReader::read(std::string_view key, std::vector<int64_t>& target) {
  return read_list(key, target, "integers", [](const Node& item) -> std::optional<int64_t> {
    return item.is_quoted() ? std::nullopt : to_number<int64_t>(item.text());
  });
}

std::optional<size_t> MapReader::read_choice(std::string_view key, const std::vector<std::string_view>& choices) {
  const auto value = scalar(key, "a name");
  if (!value) return std::nullopt;
  const std::string text = value->text();
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

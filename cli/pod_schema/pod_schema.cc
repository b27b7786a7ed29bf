#include "cli/pod_schema/pod_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/text.h"
#include "operator/api/resources.h"

namespace oarlock::cli {
namespace {

using yaml::Node;

constexpr std::string_view kTable =
#include "cli/pod_schema/table.inc"
    ;

// Removes the first word of a text and returns it.
std::string_view take_word(std::string_view& text) {
  text = trim(text, " ");
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::vector<PodSchemaType> parse_table() {
  std::vector<PodSchemaType> types;
  std::string_view rest = kTable;
  take_line(rest);  // the version
  while (!rest.empty()) {
    std::string_view line = take_line(rest);
    PodSchemaType& type = types.emplace_back();
    type.name = take_word(line);
    while (!trim(line).empty()) {
      const std::string_view field = take_word(line);
      const size_t colon = field.find(':');
      type.fields.emplace_back(field.substr(0, colon), field.substr(colon + 1));
    }
  }
  return types;
}

const PodSchemaType* find_type(std::string_view name) {
  const auto found = std::ranges::find(pod_schema_types(), name, &PodSchemaType::name);
  return found == pod_schema_types().end() ? nullptr : &*found;
}

void check(const Node& node, std::string_view type, const std::string& path, yaml::Problems& problems);

// All numbers of a pod are integers. 60.0 is one, because the conversion from YAML to JSON writes it as 60.
bool is_integer(const nlohmann::json& value) {
  return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
}

void check_scalar(const Node& node, std::string_view type, const std::string& path, yaml::Problems& problems) {
  const auto expect = [&](bool is_right, std::string_view expected) {
    if (is_right) return;
    const std::string found =
        node.kind() == Node::Kind::kScalar ? fmt::format(", got {}", shortened(node.to_json().dump())) : "";
    problems.add(node.mark(), path, fmt::format("expected {}{}", expected, found));
  };
  const bool is_scalar = node.kind() == Node::Kind::kScalar;
  const nlohmann::json value = is_scalar ? node.to_json() : nlohmann::json();
  if (type == "string") yaml::check_string(node, path, problems);
  if (type == "number") expect(is_integer(value), "a whole number");
  if (type == "boolean") expect(value.is_boolean(), "true or false");
  if (type == "intOrString") expect(is_integer(value) || value.is_string(), "a whole number or a string");
  if (type == "quantity") expect(is_scalar && api::is_quantity(value), "a quantity, such as 4, 500m or 16Gi");
}

void check_list(const Node& node, std::string_view item_type, const std::string& path, yaml::Problems& problems) {
  if (node.kind() != Node::Kind::kSequence) return problems.add(node.mark(), path, "expected a list");
  const std::vector<Node> items = node.items();
  for (size_t i = 0; i < items.size(); ++i) check(items[i], item_type, fmt::format("{}[{}]", path, i), problems);
}

void check_map(const Node& node, std::string_view value_type, const std::string& path, yaml::Problems& problems) {
  if (node.kind() != Node::Kind::kMap) return problems.add(node.mark(), path, "expected a map");
  for (const Node::Entry& entry : node.entries())
    check(entry.value, value_type, fmt::format("{}.{}", path, entry.key), problems);
}

void check_object(const Node& node, const PodSchemaType& type, const std::string& path, yaml::Problems& problems) {
  yaml::MapReader reader(node, path, problems);
  for (const auto& [key, field_type] : type.fields) {
    if (const std::optional<Node> value = reader.take(key))
      check(*value, field_type, fmt::format("{}.{}", path, key), problems);
  }
  reader.finish();
}

// Null selects the default, as in Kubernetes. The depth of the tree is limited by that of the schema.
void check(const Node& node, std::string_view type, const std::string& path, yaml::Problems& problems) {
  if (node.kind() == Node::Kind::kNull || problems.is_full()) return;
  if (type.starts_with("[]")) return check_list(node, type.substr(2), path, problems);
  if (type.starts_with("{}")) return check_map(node, type.substr(2), path, problems);
  const PodSchemaType* object = find_type(type);
  if (object == nullptr) return check_scalar(node, type, path, problems);
  check_object(node, *object, path, problems);
}

}  // namespace

std::string pod_schema_version() {
  std::string_view table = kTable;
  std::string_view line = take_line(table);
  take_word(line);  // "Kubernetes"
  return std::string(take_word(line));
}

const std::vector<PodSchemaType>& pod_schema_types() {
  static const std::vector<PodSchemaType> kTypes = parse_table();
  return kTypes;
}

void check_pod_template(const Node& node, const std::string& path, yaml::Problems& problems) {
  check(node, "PodTemplateSpec", path, problems);
}

}  // namespace oarlock::cli

#include "cli/pod_schema/pod_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/resources.h"
#include "cli/pod_schema/pod_rules.h"
#include "common/text.h"

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

// The objects around the one that is checked, outermost first, and where they are.
struct Level {
  const PodSchemaType* type;
  std::string path;
};
using Levels = std::vector<Level>;

void check(const Node& node, std::string_view type, const std::string& path, Levels& levels, yaml::Problems& problems);

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
  if (type == "quantity") expect(is_scalar && api::is_quantity(value), "a quantity, " + api::similar_quantities(value));
}

// Returns how to write a value as the list that is expected; empty if that is not known.
std::string as_list(const Node& node, std::string_view item_type) {
  if (item_type == "string" && node.kind() == Node::Kind::kScalar) {
    std::vector<std::string> words;
    const std::string text = node.text();
    std::string_view rest = text;
    while (!trim(rest, " ").empty()) words.emplace_back(take_word(rest));
    const bool is_plain = text.find_first_of("\"'\\$|&;<>,[]{}#:\n") == std::string::npos;
    return is_plain ? fmt::format("; write [{}]", shortened(fmt::format("{}", fmt::join(words, ", ")))) : "";
  }
  if (item_type == "EnvVar" && node.kind() == Node::Kind::kMap && !node.entries().empty()) {
    const Node::Entry first = node.entries().front();
    if (first.value.kind() == Node::Kind::kScalar && first.key != "name")
      return fmt::format("; write its entries as - {{name: {}, value: ...}}", shortened(first.key));
  }
  return node.kind() == Node::Kind::kMap ? "; begin each item with '-'" : "";
}

void check_list(const Node& node, std::string_view item_type, const std::string& path, Levels& levels,
                yaml::Problems& problems) {
  if (node.kind() != Node::Kind::kSequence) {
    const std::string found = node.kind() == Node::Kind::kMap ? "a map" : fmt::format("'{}'", shortened(node.text()));
    return problems.add(node.mark(), path, fmt::format("expected a list, got {}{}", found, as_list(node, item_type)));
  }
  const std::vector<Node> items = node.items();
  for (size_t i = 0; i < items.size(); ++i)
    check(items[i], item_type, fmt::format("{}[{}]", path, i), levels, problems);
}

void check_map(const Node& node, std::string_view value_type, const std::string& path, Levels& levels,
               yaml::Problems& problems) {
  yaml::MapReader(node, path, problems);  // reports a node that is not a map
  for (const Node::Entry& entry : node.entries())
    check(entry.value, value_type, fmt::format("{}.{}", path, entry.key), levels, problems);
}

bool has_field(const PodSchemaType& type, std::string_view key) {
  return std::ranges::find(type.fields, key, &std::pair<std::string_view, std::string_view>::first) !=
         type.fields.end();
}

// Returns the path of the object to which a key belongs that is unknown where it is: a nested object of the current
// one, such as 'resources' for 'limits', or one around it. Empty if there is none.
std::string place_of(std::string_view key, const Levels& levels) {
  const Level& current = levels.back();
  for (const auto& [field, field_type] : current.type->fields) {
    const PodSchemaType* nested = find_type(field_type);
    if (nested != nullptr && has_field(*nested, key)) return fmt::format("{}.{}", current.path, field);
  }
  for (auto outer = levels.rbegin() + 1; outer != levels.rend(); ++outer) {
    if (has_field(*outer->type, key)) return outer->path;
  }
  return "";
}

struct OtherName {
  std::string_view type;
  std::string_view key;    // as people abbreviate it, or as other programs name it
  std::string_view field;  // of the type
};
constexpr OtherName kOtherNames[] = {
    {.type = "Container", .key = "cmd", .field = "command"},
    {.type = "Container", .key = "entrypoint", .field = "command"},
    {.type = "Container", .key = "environment", .field = "env"},
    {.type = "Container", .key = "mounts", .field = "volumeMounts"},
    {.type = "Container", .key = "pullPolicy", .field = "imagePullPolicy"},
    {.type = "Container", .key = "volumes", .field = "volumeMounts"},
    {.type = "Container", .key = "workdir", .field = "workingDir"},
    {.type = "ContainerPort", .key = "port", .field = "containerPort"},
    {.type = "NFSVolumeSource", .key = "host", .field = "server"},
    {.type = "PersistentVolumeClaimVolumeSource", .key = "name", .field = "claimName"},
    {.type = "SecretVolumeSource", .key = "name", .field = "secretName"},
    {.type = "Volume", .key = "pvc", .field = "persistentVolumeClaim"},
    {.type = "VolumeMount", .key = "path", .field = "mountPath"},
};

std::string remedy_for(const std::string& key, const std::vector<std::string>& known, const Levels& levels) {
  for (const OtherName& other : kOtherNames) {
    if (other.type == levels.back().type->name && other.key == key)
      return fmt::format("did you mean '{}'?", other.field);
  }
  if (const std::string near = suggest(key, known); !near.empty()) return fmt::format("did you mean '{}'?", near);
  if (const std::string place = place_of(key, levels); !place.empty()) return fmt::format("it belongs to {}", place);
  return fmt::format("the known keys are {}", fmt::join(known, ", "));
}

void report_unknown_keys(const Node& node, const Levels& levels, yaml::Problems& problems) {
  const PodSchemaType& type = *levels.back().type;
  std::vector<std::string> known;
  for (const auto& [key, field_type] : type.fields) known.emplace_back(key);
  for (const Node::Entry& entry : node.entries()) {
    if (has_field(type, entry.key)) continue;
    const std::string remedy = problems.is_full() ? "" : remedy_for(entry.key, known, levels);
    problems.add(entry.key_mark, fmt::format("{}.{}", levels.back().path, entry.key), "unknown key; " + remedy);
  }
}

// The key of a map for which people write its value alone: persistentVolumeClaim: data.
constexpr std::pair<std::string_view, std::string_view> kShortForms[] = {
    {"ConfigMapEnvSource", "name"},     {"ConfigMapVolumeSource", "name"},
    {"ContainerPort", "containerPort"}, {"HostPathVolumeSource", "path"},
    {"LocalObjectReference", "name"},   {"PersistentVolumeClaimVolumeSource", "claimName"},
    {"SecretEnvSource", "name"},        {"SecretVolumeSource", "secretName"},
};

// Returns how to write a scalar as the map that is expected; empty if that is not known.
std::string as_map(const std::string& text, std::string_view type) {
  const auto form = std::ranges::find(kShortForms, type, &std::pair<std::string_view, std::string_view>::first);
  if (form != std::end(kShortForms)) return fmt::format("; write {{{}: {}}}", form->second, shortened(text));
  const std::string_view separator = type == "EnvVar" ? "=" : type == "VolumeMount" ? ":" : "";
  const size_t at = separator.empty() ? std::string::npos : text.find(separator);
  if (at == std::string::npos || text.find_first_of(" ,{}'\"") != std::string::npos) return "";
  return fmt::format("; write {{name: {}, {}: {}}}", shortened(text.substr(0, at)),
                     type == "EnvVar" ? "value" : "mountPath", shortened(text.substr(at + 1)));
}

void report_other_than_map(const Node& node, std::string_view type, const std::string& path, yaml::Problems& problems) {
  const std::string remedy = node.kind() == Node::Kind::kScalar ? as_map(node.text(), type) : "";
  if (remedy.empty()) {
    yaml::MapReader(node, path, problems);  // reports it
  } else {
    problems.add(node.mark(), path, fmt::format("expected a map, got '{}'{}", shortened(node.text()), remedy));
  }
}

void check_object(const Node& node, const PodSchemaType& type, const std::string& path, Levels& levels,
                  yaml::Problems& problems) {
  report_other_than_map(node, type.name, path, problems);
  levels.push_back({&type, path});
  for (const auto& [key, field_type] : type.fields) {
    if (const std::optional<Node> value = node.find(key))
      check(*value, field_type, fmt::format("{}.{}", path, key), levels, problems);
  }
  report_unknown_keys(node, levels, problems);
  check_rules_of_type(type.name, node, path, problems);
  levels.pop_back();
}

// Null selects the default, as in Kubernetes. The depth of the tree is limited by that of the schema.
void check(const Node& node, std::string_view type, const std::string& path, Levels& levels, yaml::Problems& problems) {
  if (node.kind() == Node::Kind::kNull || problems.is_full()) return;
  if (type.starts_with("[]")) return check_list(node, type.substr(2), path, levels, problems);
  if (type.starts_with("{}")) return check_map(node, type.substr(2), path, levels, problems);
  const PodSchemaType* object = find_type(type);
  if (object == nullptr) return check_scalar(node, type, path, problems);
  check_object(node, *object, path, levels, problems);
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
  Levels levels;
  check(node, "PodTemplateSpec", path, levels, problems);
}

}  // namespace oarlock::cli

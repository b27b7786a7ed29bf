// docs/api-reference.md is generated from manifests/crd, which crd_test generates from the code. Run with --update to
// write it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

using nlohmann::json;

std::string joined(const json& values) {
  std::string out;
  for (const json& value : values) out += (out.empty() ? "" : ", ") + value.get<std::string>();
  return out;
}

std::string type_of(const json& field) {
  if (field.contains("enum")) return joined(field["enum"]);
  if (field.value("x-kubernetes-int-or-string", false)) return "integer or auto";
  const std::string type = field.at("type");
  if (field.value("format", "") == "date-time") return "time";
  if (type == "object") return "map";
  if (type != "array") return type;
  const json& items = field["items"];
  return items["type"] == "object" ? "list of maps" : "list of " + items["type"].get<std::string>() + "s";
}

std::string limits_of(const json& field) {
  if (!field.contains("minimum") && !field.contains("maximum")) return "";
  return fmt::format(", {} to {}", field.value("minimum", json("any")).dump(),
                     field.value("maximum", json("any")).dump());
}

std::string default_of(const json& field, bool is_required) {
  if (is_required) return "required";
  if (!field.contains("default") || field["default"].is_object()) return "";
  return "`" + (field["default"].is_string() ? field["default"].get<std::string>() : field["default"].dump()) + "`";
}

void write_rules(const json& node, const std::string& path, std::string& out) {
  for (const json& rule : node.value("x-kubernetes-validations", json::array())) {
    std::string at = path + rule.value("fieldPath", "");
    if (at.starts_with('.')) at.erase(0, 1);
    out += fmt::format("- `{}`: {}\n", at.empty() ? "TrainingJob" : at, rule["message"].get<std::string>());
  }
}

void collect_rules(const json& node, const std::string& path, std::string& out) {
  write_rules(node, path, out);
  const json properties = node.value("properties", json::object());
  for (const auto& [key, value] : properties.items()) collect_rules(value, path.empty() ? key : path + "." + key, out);
  if (node.contains("items")) collect_rules(node["items"], path + "[]", out);
}

// `yaml_node` preserves the order of the fields in the file, which JSON does not.
void write_fields(const yaml::Node& yaml_node, const json& node, const std::string& path, std::string& out) {
  const auto properties = yaml_node.find("properties");
  if (!properties) return;
  const json required = node.value("required", json::array());
  for (const yaml::Node::Entry& entry : properties->entries()) {
    const json& field = node["properties"][entry.key];
    const std::string at = path + "." + entry.key;
    const bool is_required = std::find(required.begin(), required.end(), entry.key) != required.end();
    out += fmt::format("| `{}` | {}{} | {} | {} |\n", at, type_of(field), limits_of(field),
                       default_of(field, is_required), field.value("description", ""));
    if (at == "spec.template") continue;  // defined by Kubernetes
    if (field.value("type", "") == "object") write_fields(entry.value, field, at, out);
    if (field.value("type", "") == "array") write_fields(*entry.value.find("items"), field["items"], at + "[]", out);
  }
}

TEST(ApiReference, MatchesTheCrd) {
  const yaml::Node document =
      yaml::load_all(test::source_path("manifests/crd/oarlock.dev_trainingjobs.yaml")).value().at(0);
  const yaml::Node version = document.find("spec")->find("versions")->items().at(0);
  const yaml::Node schema = *version.find("schema")->find("openAPIV3Schema");
  const yaml::Node parts = *schema.find("properties");
  std::string out =
      "# TrainingJob, `oarlock.dev/v1alpha1`\n\n"
      "Generated from `manifests/crd` by `api_reference_test --update`; do not edit. `kubectl explain tj.spec` prints "
      "the same.\n";
  for (const char* part : {"spec", "status"}) {
    const yaml::Node node = *parts.find(part);
    out += fmt::format("\n## {}\n\n| field | type | default | meaning |\n|---|---|---|---|\n", part);
    write_fields(node, node.to_json(), part, out);
  }
  out +=
      "\n## Rules\n\nThe API server rejects objects that violate these rules, with these messages; `oarlock validate` "
      "reports the same offline.\n\n";
  collect_rules(schema.to_json(), "", out);
  expect_golden("../../docs/api-reference.md", out);
}

}  // namespace
}  // namespace oarlock::test

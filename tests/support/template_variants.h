// Variants of the full template, one for each field of the pod schema and each of a few values of the field's type.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pod_schema/pod_schema.h"
#include "tests/support/template_typos.h"

namespace oarlock::test {

struct TemplateVariant {
  std::string name;  // "Container.ports=[]"
  nlohmann::json pod_template;
};

// Values of a type in the notation of the schema, for a field that has the value `present` or none.
inline std::vector<nlohmann::json> values_of_type(std::string_view type, const nlohmann::json& present) {
  using Json = nlohmann::json;
  if (type == "string") return {"", "A_b", "a/../b"};
  if (type == "number") return {-1, 0, 100000};
  if (type == "boolean") return {true, false};
  if (type == "quantity") return {"0", "1500m"};
  if (type == "intOrString") return {0, 70000, "a"};
  if (type.starts_with("[]")) {
    std::vector<Json> out = {Json::array()};
    if (present.is_array() && !present.empty()) {
      Json twice = present;
      twice.push_back(present.front());
      out.push_back(std::move(twice));
    } else if (type == "[]string") {
      out.push_back(Json::array({"a", "a"}));
    }
    return out;
  }
  if (type.starts_with("{}")) return {Json::object(), {{"a", type == "{}quantity" ? "1" : "b"}}};
  return {Json::object()};
}

// Adds the variants of the object at `at`, which has the type `type`, and of the objects in it.
inline void add_variants(const nlohmann::json& whole, const nlohmann::json::json_pointer& at, std::string_view type,
                         std::vector<TemplateVariant>& out) {
  const auto& types = cli::pod_schema_types();
  const auto known = std::ranges::find(types, type, &cli::PodSchemaType::name);
  if (known == types.end()) return;
  for (const auto& [field, field_type] : known->fields) {
    const auto place = at / std::string(field);
    const nlohmann::json present = whole.contains(place) ? whole.at(place) : nlohmann::json();
    const auto add = [&](const nlohmann::json& value) {
      if (value == present) return;
      TemplateVariant variant{std::string(type) + "." + std::string(field) + "=" + value.dump(), whole};
      if (value.is_null()) {
        variant.pod_template.at(at).erase(std::string(field));
      } else {
        variant.pod_template[place] = value;
      }
      out.push_back(std::move(variant));
    };
    add(nullptr);
    for (const nlohmann::json& value : values_of_type(field_type, present)) add(value);
    if (present.is_object()) add_variants(whole, place, field_type, out);
    for (size_t i = 0; present.is_array() && i < present.size(); ++i)
      add_variants(whole, place / i, field_type.substr(2), out);
  }
}

inline std::vector<TemplateVariant> template_variants() {
  std::vector<TemplateVariant> out;
  add_variants(full_template(), nlohmann::json::json_pointer("/spec"), "PodSpec", out);
  return out;
}

}  // namespace oarlock::test

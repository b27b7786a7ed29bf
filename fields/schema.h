// The schema of described fields, for CustomResourceDefinitions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

// Collects the described fields as a structural OpenAPI v3 schema. Not thread-safe.
class FieldsSchema final : public Fields {
 public:
  using Json = nlohmann::ordered_json;

  // Whether the API server sets defaults: in a spec, not in a status, which the controller writes.
  enum class Defaults { kYes, kNo };

  explicit FieldsSchema(Defaults defaults) : defaults_(defaults) {}

  // The schema of the whole object, with the fields in the order of the descriptions.
  Json schema(std::string_view description) const;

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view key, std::string& text, std::string_view help) override;
  void require(std::string_view key) override { required_.emplace_back(key); }
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  void add(std::string_view key, Json schema, const Json& default_value, std::string_view help);

  const Defaults defaults_;
  Json properties_ = Json::object();
  std::vector<std::string> required_;
};

}  // namespace oarlock

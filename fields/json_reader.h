// The lenient reader of described fields, for objects of an API server, which other versions may have written.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

// The problems that a reader and its nested readers have found.
struct ReadFindings {
  std::vector<std::string> problems;  // "spec.nodes: expected an integer, got "2""
  std::vector<std::string> unknown;   // "spec.elastic: unknown field"
};

// Reads JSON. Fields that are absent or null keep their value. Fields of a wrong type and unknown values and names are
// added to the findings and do not prevent the other fields from being read. Limits are not checked. Not thread-safe.
class JsonFieldsReader final : public Fields {
 public:
  // How members that the description does not name are treated.
  enum class UnknownFields { kSkip, kReport };

  // Reads `node`. All arguments must outlive the reader.
  JsonFieldsReader(const nlohmann::json& node, const FieldPath& path, UnknownFields unknown_fields,
                   ReadFindings& findings);

  // Reports the members that were not described. Nested readers do this themselves.
  void finish();

  // A section with another treatment of unknown members.
  void section(std::string_view key, UnknownFields unknown_fields, const Describe& describe);

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view key, std::string& text, std::string_view help) override;
  void unknown_members(std::string& text) override;
  bool has(std::string_view key) const override;
  void skip(std::string_view key) override { find(key); }
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  bool was_visited(std::string_view key) const;
  // Returns the value and marks the key as known; null if it is absent or null.
  const nlohmann::json* find(std::string_view key);
  template <typename Value>
  bool take(const FieldPath& path, const nlohmann::json& value, Value& target);
  bool report(const FieldPath& path, std::string_view expected, const nlohmann::json& value);

  const nlohmann::json& node_;
  const FieldPath path_;
  const UnknownFields unknown_fields_;
  ReadFindings& findings_;
  std::vector<std::string_view> visited_;  // keys
};

}  // namespace oarlock

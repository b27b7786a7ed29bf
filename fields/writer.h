// The writer of described fields: JSON objects, merge patches, and printed configurations.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

// How empty strings, lists and optionals are written.
enum class EmptyFields {
  kWrite,  // optionals are omitted
  kOmit,
  kNull,  // for a merge patch, which preserves members that it does not contain; lists are written as empty lists
};

// The fields and sections with another scope than kShared, by path: "optimizer.groups[0].lr".
using FieldScopes = std::map<std::string, Scope>;

// Writes the described fields to `target`, in the order of `Json`: nlohmann::json sorts keys, ordered_json keeps the
// order of the descriptions. Not thread-safe.
template <typename Json>
class FieldsWriter final : public Fields {
 public:
  // The target must outlive the writer, and becomes an object if it is not one.
  FieldsWriter(Json& target, EmptyFields empty) : FieldsWriter(target, empty, nullptr, nullptr, "") {}

  // Forwards every call to `reader`, which must outlive the writer, and writes the values that it leaves: the complete
  // configuration with every default. Leaves out the keys that have no meaning with the other values (Fields::only_if).
  // `scopes`, if not null, receives the scopes, and must outlive the writer.
  FieldsWriter(Json& target, EmptyFields empty, Fields& reader, FieldScopes* scopes = nullptr)
      : FieldsWriter(target, empty, &reader, scopes, "") {}

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view key, std::string& text, std::string_view help) override;
  void unknown_members(std::string& text) override;
  bool has(std::string_view key) const override { return reader_ != nullptr && reader_->has(key); }
  void problem(std::string_view key, std::string_view message) override;
  void require(std::string_view key) override;
  void only_if(std::string_view key, bool condition, std::string_view why_not) override;
  void scope(std::string_view key, Scope scope) override;
  void skip(std::string_view key) override;
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  FieldsWriter(Json& target, EmptyFields empty, Fields* reader, FieldScopes* scopes, std::string path);

  std::string path_of(std::string_view key) const;

  void write(std::string_view key, Json value);
  void write_empty(std::string_view key);
  void write_empty_list(std::string_view key);
  template <typename Value>
  void put(std::string_view key, const Value& value);
  void put(std::string_view key, const std::string& value);
  void put(std::string_view key, const SystemTime& value);
  template <typename Value>
  void put(std::string_view key, const std::optional<Value>& value);
  template <typename Value>
  void put(std::string_view key, const std::vector<Value>& values);

  Json& target_;
  const EmptyFields empty_;
  Fields* const reader_;              // null: the values are those of the struct
  FieldScopes* const scopes_;         // null: they are not wanted
  const std::string path_;            // of the object; "": the root
  std::vector<std::string> omitted_;  // keys without a meaning
};

extern template class FieldsWriter<nlohmann::json>;
extern template class FieldsWriter<nlohmann::ordered_json>;

}  // namespace oarlock

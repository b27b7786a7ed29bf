// Writes all values of a described struct (fields/fields.h) into one text. Two objects are equal if and only if
// their texts are. It is much faster than JSON, which the model checker would otherwise write for each state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "fields/fields.h"

namespace oarlock::test {

class KeyWriter final : public Fields {
 public:
  const std::string& text() const { return text_; }

  void section(std::string_view, const Describe& describe, std::string_view) override { describe(*this); }
  void number_or_name(std::string_view, int& number, NumberForm& form, std::string_view, const Limits&,
                      std::string_view) override {
    put(number);
    put(static_cast<int>(form));
  }
  void raw_object(std::string_view, std::string& text, std::string_view) override { put(text); }
  void unknown_members(std::string& text) override { put(text); }
  void visit(std::string_view, FieldValue value, const Limits&, std::string_view) override {
    std::visit([this](const auto* field) { put(*field); }, value);
  }
  bool visit_choice(std::string_view, size_t& chosen, const std::vector<std::string_view>&, std::string_view) override {
    put(chosen);
    return false;
  }
  void visit_optional(std::string_view, bool is_present, const Describe& describe, std::string_view) override {
    put(is_present);
    if (is_present) describe(*this);
  }
  void visit_list(std::string_view, size_t size, const std::function<void(size_t)>&,
                  const std::function<void(size_t, Fields&)>& describe, const Limits&, std::string_view) override {
    put(size);
    for (size_t i = 0; i < size; ++i) describe(i, *this);
  }

 private:
  template <typename T>
    requires std::is_arithmetic_v<T>
  void put(const T& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const SystemTime& value) { put(value.time_since_epoch().count()); }
  void put(const std::string& value) {
    put(value.size());
    text_ += value;
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }

  std::string text_;
};

}  // namespace oarlock::test

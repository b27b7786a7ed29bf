// The validator of described fields: compares the values of a struct with their limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

// A problem of one field.
struct FieldProblem {
  std::string path;  // "spec.nodes"
  std::string message;

  bool operator==(const FieldProblem&) const = default;
};

// Adds a problem for each number, string and list outside its limits, and for each set with a duplicate. Absent
// optional values are valid, and so are empty strings, which mean absent, except as elements of a list. Not
// thread-safe.
class FieldsValidator final : public Fields {
 public:
  // The problems, and the parent of the path, must outlive the validator.
  FieldsValidator(const FieldPath& path, std::vector<FieldProblem>& problems) : path_(path), problems_(problems) {}

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view, std::string&, std::string_view) override {}
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view, size_t&, const std::vector<std::string_view>&, std::string_view) override {
    return false;
  }
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  void add(std::string_view key, std::string message);
  void check_size(std::string_view key, size_t size, const Limits& limits);
  // Overloads for each type of field.
  void check(std::string_view, const Limits&, bool) {}
  void check(std::string_view, const Limits&, SystemTime) {}
  void check(std::string_view key, const Limits& limits, int64_t value);
  void check(std::string_view key, const Limits& limits, int value) { check(key, limits, int64_t{value}); }
  void check(std::string_view key, const Limits& limits, double value);
  void check(std::string_view key, const Limits& limits, const std::string& value);
  template <typename Value>
  void check(std::string_view key, const Limits& limits, const std::optional<Value>& value);
  template <typename Value>
  void check(std::string_view key, const Limits& limits, const std::vector<Value>& values);

  const FieldPath path_;
  std::vector<FieldProblem>& problems_;
};

}  // namespace oarlock

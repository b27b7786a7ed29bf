#include "fields/validator.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/text.h"

namespace oarlock {
namespace {

template <typename Value>
std::string in_quotes(const Value& value) {
  return fmt::format("{}", value);
}
std::string in_quotes(const std::string& value) { return fmt::format("'{}'", shortened(value)); }

}  // namespace

void FieldsValidator::add(std::string_view key, std::string message) {
  problems_.push_back({FieldPath{&path_, key}.text(), std::move(message)});
}

void FieldsValidator::check(std::string_view key, const Limits& limits, int64_t value) {
  const auto number = static_cast<double>(value);
  if (limits.low_is_open || limits.high_is_open) return check(key, limits, number);
  if (!limits.is_bounded() || (number >= limits.low && number <= limits.high)) return;
  if (*limits.noun != '\0') {
    add(key, fmt::format("{} is not {}: {} to {}", value, limits.noun, limits.low, limits.high));
  } else if (number < limits.low) {
    add(key, fmt::format("{} is too small; the minimum is {}", value, limits.low));
  } else {
    add(key, fmt::format("{} is too large; the maximum is {}", value, limits.high));
  }
}

void FieldsValidator::check(std::string_view key, const Limits& limits, double value) {
  if (auto problem = check_limits(limits, value)) add(key, *std::move(problem));
}

void FieldsValidator::check(std::string_view key, const Limits& limits, const std::string& value) {
  if (auto problem = check_limits(limits, value)) add(key, *std::move(problem));
}

template <typename Value>
void FieldsValidator::check(std::string_view key, const Limits& limits, const std::optional<Value>& value) {
  if (value) check(key, limits, *value);
}

template <typename Value>
void FieldsValidator::check(std::string_view key, const Limits& limits, const std::vector<Value>& values) {
  check_size(key, values.size(), limits);
  if (limits.max_items > 0 && values.size() > limits.max_items) return;
  for (const Value& value : values) check(key, limits, value);
  if (std::string_view(limits.list_type) != "set") return;
  std::vector<Value> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) add(key, fmt::format("{} occurs twice", in_quotes(*twice)));
}

void FieldsValidator::check_size(std::string_view key, size_t size, const Limits& limits) {
  if (limits.max_items > 0 && size > limits.max_items) {
    add(key, fmt::format("has {}; the maximum is {}", counted(size, "item"), limits.max_items));
  }
  if (size >= limits.min_items) return;
  std::string_view noun = *limits.noun == '\0' ? "an item" : limits.noun;
  noun.remove_prefix(noun.find(' ') + 1);  // the article
  add(key, limits.min_items == 1 ? fmt::format("needs at least one {}", noun)
                                 : fmt::format("has {}; the minimum is {}", counted(size, "item"), limits.min_items));
}

void FieldsValidator::visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view) {
  std::visit(
      [&]<typename Value>(const Value* field) {
        if constexpr (std::is_same_v<Value, std::string>) {
          if (field->empty()) return;  // absent
        }
        check(key, limits, *field);
      },
      value);
}

void FieldsValidator::number_or_name(std::string_view key, int& number, NumberForm&, std::string_view,
                                     const Limits& limits, std::string_view) {
  check(key, limits, number);
}

void FieldsValidator::section(std::string_view key, const Describe& describe, std::string_view) {
  FieldsValidator inner({&path_, key}, problems_);
  describe(inner);
}

void FieldsValidator::visit_optional(std::string_view key, bool is_present, const Describe& describe,
                                     std::string_view help) {
  if (is_present) section(key, describe, help);
}

void FieldsValidator::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>&,
                                 const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                                 std::string_view) {
  check_size(key, size, limits);
  for (size_t i = 0; i < size; ++i) {
    FieldsValidator inner({&path_, key, static_cast<std::ptrdiff_t>(i)}, problems_);
    describe(i, inner);
  }
}

}  // namespace oarlock

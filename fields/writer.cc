#include "fields/writer.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

namespace oarlock {

template <typename Json>
FieldsWriter<Json>::FieldsWriter(Json& target, EmptyFields empty, Fields* reader, FieldScopes* scopes, std::string path)
    : target_(target), empty_(empty), reader_(reader), scopes_(scopes), path_(std::move(path)) {
  if (!target_.is_object()) target_ = Json::object();
}

template <typename Json>
std::string FieldsWriter<Json>::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

template <typename Json>
void FieldsWriter<Json>::write(std::string_view key, Json value) {
  if (std::find(omitted_.begin(), omitted_.end(), key) == omitted_.end()) target_[std::string(key)] = std::move(value);
}

template <typename Json>
void FieldsWriter<Json>::write_empty(std::string_view key) {
  if (empty_ == EmptyFields::kNull) write(key, nullptr);
}

template <typename Json>
void FieldsWriter<Json>::write_empty_list(std::string_view key) {
  if (empty_ != EmptyFields::kOmit) write(key, Json::array());
}

template <typename Json>
template <typename Value>
void FieldsWriter<Json>::put(std::string_view key, const Value& value) {
  write(key, value);
}
template <typename Json>
void FieldsWriter<Json>::put(std::string_view key, const std::string& value) {
  if (value.empty() && empty_ != EmptyFields::kWrite) return write_empty(key);
  write(key, value);
}
template <typename Json>
void FieldsWriter<Json>::put(std::string_view key, const SystemTime& value) {
  write(key, to_rfc3339(value));
}
template <typename Json>
template <typename Value>
void FieldsWriter<Json>::put(std::string_view key, const std::optional<Value>& value) {
  if (!value) return write_empty(key);
  if constexpr (std::is_same_v<Value, std::string>) {
    write(key, *value);  // present, although it may be empty
  } else {
    put(key, *value);
  }
}
template <typename Json>
template <typename Value>
void FieldsWriter<Json>::put(std::string_view key, const std::vector<Value>& values) {
  if (values.empty()) return write_empty_list(key);
  write(key, values);
}

template <typename Json>
void FieldsWriter<Json>::visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) {
  if (reader_ != nullptr) reader_->visit(key, value, limits, help);
  std::visit([&](const auto* field) { put(key, *field); }, value);
}

template <typename Json>
bool FieldsWriter<Json>::visit_choice(std::string_view key, size_t& chosen,
                                      const std::vector<std::string_view>& choices, std::string_view help) {
  const bool found = reader_ != nullptr && reader_->visit_choice(key, chosen, choices, help);
  if (chosen < choices.size()) {
    write(key, choices[chosen]);
  } else {
    write_empty(key);
  }
  return found;
}

template <typename Json>
void FieldsWriter<Json>::section(std::string_view key, const Describe& describe, std::string_view help) {
  Json printed;
  const auto print = [&](Fields* reader) {
    FieldsWriter inner(printed, empty_, reader, scopes_, path_of(key));
    describe(inner);
  };
  if (reader_ == nullptr) {
    print(nullptr);
  } else {
    reader_->section(key, [&](Fields& inner) { print(&inner); }, help);
  }
  write(key, std::move(printed));
}

template <typename Json>
void FieldsWriter<Json>::visit_optional(std::string_view key, bool is_present, const Describe& describe,
                                        std::string_view help) {
  if (reader_ != nullptr) {
    reader_->visit_optional(
        key, is_present,
        [&](Fields& inner) {
          Json printed;
          FieldsWriter writer(printed, empty_, &inner, scopes_, path_of(key));
          describe(writer);
          write(key, std::move(printed));
        },
        help);
  } else if (is_present) {
    section(key, describe, help);
  } else {
    write_empty(key);
  }
}

template <typename Json>
void FieldsWriter<Json>::number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name,
                                        const Limits& limits, std::string_view help) {
  if (reader_ != nullptr) reader_->number_or_name(key, number, form, name, limits, help);
  if (form == NumberForm::kNumber) write(key, number);
  if (form == NumberForm::kName) write(key, name);
}

template <typename Json>
void FieldsWriter<Json>::raw_object(std::string_view key, std::string& text, std::string_view help) {
  if (reader_ != nullptr) reader_->raw_object(key, text, help);
  if (!text.empty()) write(key, Json::parse(text, nullptr, false));
}

template <typename Json>
void FieldsWriter<Json>::unknown_members(std::string& text) {
  if (reader_ != nullptr) reader_->unknown_members(text);
  const Json rest = Json::parse(text, nullptr, false);
  if (!rest.is_object()) return;
  for (const auto& [key, value] : rest.items()) {
    if (!target_.contains(key)) target_[key] = value;
  }
}

template <typename Json>
void FieldsWriter<Json>::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                                    const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                                    std::string_view help) {
  Json items = Json::array();
  // A list replaces the stored one as a whole, so its items need no nulls.
  const EmptyFields empty = empty_ == EmptyFields::kNull ? EmptyFields::kOmit : empty_;
  const auto print = [&](size_t index, Fields* reader) {
    FieldsWriter item(items.emplace_back(), empty, reader, scopes_, path_of(key) + "[" + std::to_string(index) + "]");
    describe(index, item);
  };
  if (reader_ == nullptr) {
    for (size_t i = 0; i < size; ++i) print(i, nullptr);
  } else {
    reader_->visit_list(key, size, resize, [&](size_t index, Fields& inner) { print(index, &inner); }, limits, help);
  }
  if (items.empty()) return write_empty_list(key);
  write(key, std::move(items));
}

template <typename Json>
void FieldsWriter<Json>::problem(std::string_view key, std::string_view message) {
  if (reader_ != nullptr) reader_->problem(key, message);
}
template <typename Json>
void FieldsWriter<Json>::require(std::string_view key) {
  if (reader_ != nullptr) reader_->require(key);
}
template <typename Json>
void FieldsWriter<Json>::scope(std::string_view key, Scope scope) {
  if (scopes_ != nullptr) (*scopes_)[path_of(key)] = scope;
}
template <typename Json>
void FieldsWriter<Json>::skip(std::string_view key) {
  if (reader_ != nullptr) reader_->skip(key);
}

template <typename Json>
void FieldsWriter<Json>::only_if(std::string_view key, bool condition, std::string_view why_not) {
  if (reader_ != nullptr) reader_->only_if(key, condition, why_not);
  if (condition) return;
  target_.erase(std::string(key));
  omitted_.emplace_back(key);
}

template class FieldsWriter<nlohmann::json>;
template class FieldsWriter<nlohmann::ordered_json>;

}  // namespace oarlock

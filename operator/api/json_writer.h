// A visitor of fields.h that writes JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::api {

// How empty strings, lists and optionals are written.
enum class Empty {
  kOmit,
  kNull,  // for a merge patch, which preserves members that it does not contain; lists are written as empty lists
};

class JsonWriter {
 public:
  using Json = nlohmann::json;

  JsonWriter(Json& target, Empty empty) : target_(target), empty_(empty) {
    if (!target_.is_object()) target_ = Json::object();
  }

  template <typename T>
  void field(const char* key, const T& value) {
    put(key, value);
  }
  template <typename Enum>
  void choice(const char* key, const Enum& value, Names<Enum> names) {
    for (const auto& [name, candidate] : names) {
      if (candidate == value) return put(key, std::string(name));
    }
    write_empty(key);
  }
  // Writes the members that JsonReader::unknown_members() preserved.
  void unknown_members(const std::string& text) {
    const Json rest = Json::parse(text, nullptr, false);
    if (!rest.is_object()) return;
    for (const auto& [key, value] : rest.items()) {
      if (!target_.contains(key)) target_[key] = value;
    }
  }
  void condition_status(const char* key, const bool& value) { target_[key] = value ? "True" : "False"; }
  void count_or_auto(const char* key, const int& count, const ProcessesFrom& from) {
    if (from == ProcessesFrom::kNumber) put(key, count);
    if (from == ProcessesFrom::kAuto) target_[key] = kAuto;
  }
  void verbatim(const std::string& text) {
    if (Json object = Json::parse(text, nullptr, false); object.is_object()) target_ = std::move(object);
  }
  void raw_object(const char* key, const std::string& text) {
    if (!text.empty()) target_[key] = Json::parse(text, nullptr, false);
  }
  template <typename Fn>
  void group(const char* key, Fn visit) {
    JsonWriter nested(target_[key], empty_);
    visit(nested);
  }
  template <typename T, typename Fn>
  void group(const char* key, std::optional<T>& value, Fn visit) {
    if (!value) return write_empty(key);
    group(key, [&](JsonWriter& nested) { visit(nested, *value); });
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>& values, Fn visit) {
    if (values.empty()) return write_empty_list(key);
    Json& items = target_[key] = Json::array();
    for (T& value : values) {  // a list replaces the stored one as a whole, so its items need no nulls
      JsonWriter nested(items.emplace_back(), Empty::kOmit);
      visit(nested, value);
    }
  }

 private:
  void write_empty(const char* key) {
    if (empty_ == Empty::kNull) target_[key] = nullptr;
  }
  void write_empty_list(const char* key) {
    if (empty_ == Empty::kNull) target_[key] = Json::array();
  }
  void put(const char* key, const bool& value) { target_[key] = value; }
  void put(const char* key, const int& value) { target_[key] = value; }
  void put(const char* key, const int64_t& value) { target_[key] = value; }
  void put(const char* key, const double& value) { target_[key] = value; }
  void put(const char* key, const SystemTime& value) { target_[key] = to_rfc3339(value); }
  void put(const char* key, const std::string& value) {
    if (value.empty()) return write_empty(key);
    target_[key] = value;
  }
  template <typename T>
  void put(const char* key, const std::optional<T>& value) {
    if (!value) return write_empty(key);
    put(key, *value);
  }
  template <typename T>
  void put(const char* key, const std::vector<T>& values) {
    if (values.empty()) return write_empty_list(key);
    target_[key] = values;
  }

  Json& target_;
  const Empty empty_;
};

}  // namespace oarlock::api

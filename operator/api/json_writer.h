// A visitor of fields.h that writes JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::api {

// What becomes of strings, lists and optionals that are empty.
enum class Empty {
  kLeftOut,
  kNull,  // for a merge patch, which leaves members alone that it does not name; lists are written empty
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
    nothing(key);
  }
  // Members that JsonReader::others() has kept.
  void others(const std::string& text) {
    const Json rest = Json::parse(text, nullptr, false);
    if (!rest.is_object()) return;
    for (const auto& [key, value] : rest.items()) {
      if (!target_.contains(key)) target_[key] = value;
    }
  }
  void truth(const char* key, const bool& value) { target_[key] = value ? "True" : "False"; }
  void verbatim(const std::string& text) {
    if (Json object = Json::parse(text, nullptr, false); object.is_object()) target_ = std::move(object);
  }
  void object(const char* key, const std::string& text) {
    if (!text.empty()) target_[key] = Json::parse(text, nullptr, false);
  }
  template <typename Fn>
  void group(const char* key, Fn visit) {
    JsonWriter nested(target_[key], empty_);
    visit(nested);
  }
  template <typename T, typename Fn>
  void group(const char* key, std::optional<T>& value, Fn visit) {
    if (!value) return nothing(key);
    group(key, [&](JsonWriter& nested) { visit(nested, *value); });
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>& values, Fn visit) {
    if (values.empty()) return no_items(key);
    Json& items = target_[key] = Json::array();
    for (T& value : values) {  // items replace whatever was there, so they need no nulls
      JsonWriter nested(items.emplace_back(), Empty::kLeftOut);
      visit(nested, value);
    }
  }

 private:
  void nothing(const char* key) {
    if (empty_ == Empty::kNull) target_[key] = nullptr;
  }
  void no_items(const char* key) {
    if (empty_ == Empty::kNull) target_[key] = Json::array();
  }
  void put(const char* key, const bool& value) { target_[key] = value; }
  void put(const char* key, const int& value) { target_[key] = value; }
  void put(const char* key, const int64_t& value) { target_[key] = value; }
  void put(const char* key, const double& value) { target_[key] = value; }
  void put(const char* key, const SystemTime& value) { target_[key] = to_rfc3339(value); }
  void put(const char* key, const std::string& value) {
    if (value.empty()) return nothing(key);
    target_[key] = value;
  }
  template <typename T>
  void put(const char* key, const std::optional<T>& value) {
    if (!value) return nothing(key);
    put(key, *value);
  }
  template <typename T>
  void put(const char* key, const std::vector<T>& values) {
    if (values.empty()) return no_items(key);
    target_[key] = values;
  }

  Json& target_;
  const Empty empty_;
};

}  // namespace oarlock::api

// A visitor of fields.h that reads JSON. Fields that are not known are ignored, absent and null ones keep their value.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::api {

// Keeps the first problem and goes on.
class JsonReader {
 public:
  using Json = nlohmann::json;

  JsonReader(const Json& node, std::string path, std::optional<Error>& error)
      : node_(node), path_(std::move(path)), error_(error) {
    if (!node_.is_object() && !node_.is_null()) problem(path_, "an object", node_);
  }

  template <typename T>
  void field(const char* key, T& target) {
    if (const Json* value = find(key)) take(at(key), *value, target);
  }
  template <typename Enum>
  void choice(const char* key, Enum& target, Names<Enum> names) {
    const Json* value = find(key);
    if (value == nullptr) return;
    std::string expected;
    for (const auto& [name, candidate] : names) {
      if (value->is_string() && value->get_ref<const std::string&>() == name) {
        target = candidate;
        return;
      }
      expected += (expected.empty() ? "" : ", ") + std::string(name);
    }
    problem(at(key), "one of " + expected, *value);
  }
  void truth(const char* key, bool& target) {
    std::string text = "False";
    field(key, text);
    target = text == "True";
  }
  void verbatim(std::string& text) { text = node_.dump(-1, ' ', false, Json::error_handler_t::replace); }
  void object(const char* key, std::string& text) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return problem(at(key), "an object", *value);
    text = value->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  template <typename Fn>
  void group(const char* key, Fn visit) {
    const Json* value = find(key);
    if (value == nullptr) return;
    JsonReader nested(*value, at(key), error_);
    visit(nested);
  }
  template <typename T, typename Fn>
  void group(const char* key, std::optional<T>& target, Fn visit) {
    group(key, [&](JsonReader& nested) { visit(nested, target.emplace()); });
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>& target, Fn visit) {
    each(key, [&](const std::string& path, const Json& value) {
      JsonReader nested(value, path, error_);
      visit(nested, target.emplace_back());
    });
  }

 private:
  std::string at(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  const Json* find(const char* key) const {
    if (!node_.is_object()) return nullptr;
    const auto it = node_.find(key);
    return it == node_.end() || it->is_null() ? nullptr : &*it;
  }

  void take(const std::string& path, const Json& value, bool& target) {
    if (!value.is_boolean()) return problem(path, "true or false", value);
    target = value.get<bool>();
  }
  void take(const std::string& path, const Json& value, int64_t& target) {
    if (!value.is_number_integer()) return problem(path, "an integer", value);
    target = value.get<int64_t>();
  }
  void take(const std::string& path, const Json& value, int& target) {
    if (!value.is_number_integer()) return problem(path, "an integer", value);
    const auto wide = value.get<int64_t>();
    if (wide < INT32_MIN || wide > INT32_MAX) return problem(path, "an integer of 32 bits", value);
    target = static_cast<int>(wide);
  }
  void take(const std::string& path, const Json& value, double& target) {
    if (!value.is_number()) return problem(path, "a number", value);
    target = value.get<double>();
  }
  void take(const std::string& path, const Json& value, std::string& target) {
    if (!value.is_string()) return problem(path, "a string", value);
    target = value.get<std::string>();
  }
  void take(const std::string& path, const Json& value, SystemTime& target) {
    if (!value.is_string() || !from_rfc3339(value.get<std::string>(), target))
      problem(path, value.is_string() ? "a time as 2026-11-21T10:11:12Z" : "a time", value);
  }
  template <typename T>
  void take(const std::string& path, const Json& value, std::optional<T>& target) {
    T taken{};
    take(path, value, taken);
    target = std::move(taken);
  }
  template <typename T>
  void take(const std::string& path, const Json& value, std::vector<T>& target) {
    if (!value.is_array()) return problem(path, "a list", value);
    for (size_t i = 0; i < value.size(); ++i) take(fmt::format("{}[{}]", path, i), value[i], target.emplace_back());
  }

  template <typename Fn>
  void each(const char* key, Fn visit) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return problem(at(key), "a list", *value);
    for (size_t i = 0; i < value->size(); ++i) visit(fmt::format("{}[{}]", at(key), i), (*value)[i]);
  }

  void problem(const std::string& path, const std::string& expected, const Json& value) {
    if (error_) return;
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    error_ = Error{ExitCode::kConfig, fmt::format("{}: expected {}, got {}", path, expected, text)};
  }

  const Json& node_;
  std::string path_;
  std::optional<Error>& error_;
};

}  // namespace oarlock::api

// A visitor of fields.h that reads JSON. Fields that are absent or null keep their value. Fields of a wrong type and
// unknown values are added to the findings and do not prevent the other fields from being read.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::api {

// The problems that a reader and its nested readers have found.
struct ReadFindings {
  std::vector<std::string> problems;  // "spec.nodes: expected an integer, got "2""
  std::vector<std::string> unknown;   // "spec.elastic: unknown field"
};

class JsonReader {
 public:
  using Json = nlohmann::json;

  // How members that no visitor function names are treated.
  enum class UnknownFields { kSkip, kReport };

  JsonReader(const Json& node, std::string path, UnknownFields unknown_fields, ReadFindings& findings)
      : node_(node), path_(std::move(path)), unknown_fields_(unknown_fields), findings_(findings) {
    if (!node_.is_object() && !node_.is_null()) problem(path_, "an object", node_);
  }

  // Reports the members that were not visited. Call it after the visitor function has returned.
  void finish() {
    if (unknown_fields_ != UnknownFields::kReport || !node_.is_object()) return;
    for (const auto& [key, value] : node_.items()) {
      if (!was_visited(key)) findings_.unknown.push_back(at(key) + ": unknown field");
    }
  }

  // Sets `text` to the members that were not visited as a JSON object, or leaves it unchanged if there are none.
  void unknown_members(std::string& text) {
    Json rest = Json::object();
    if (node_.is_object()) {
      for (const auto& [key, value] : node_.items()) {
        if (!was_visited(key)) rest[key] = value;
      }
    }
    if (!rest.empty()) text = rest.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  template <typename T>
  void field(const char* key, T& target) {
    if (const Json* value = find(key)) take(at(key), *value, target);
  }
  template <typename Enum>
  void choice(const char* key, Enum& target, Names<Enum> names) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return problem(at(key), "a string", *value);
    for (const auto& [name, candidate] : names) {
      if (value->get_ref<const std::string&>() == name) {
        target = candidate;
        return;
      }
    }
    findings_.unknown.push_back(fmt::format("{}: unknown value {}", at(key), shortened(*value)));
  }
  void condition_status(const char* key, bool& target) {
    std::string text = "False";
    field(key, text);
    target = text == "True";
  }
  void count_or_auto(const char* key, int& count, ProcessesFrom& from) {
    const Json* value = find(key);
    if (value == nullptr) {
      from = ProcessesFrom::kAbsent;
    } else if (*value == kAuto) {
      from = ProcessesFrom::kAuto;
    } else {
      take(at(key), *value, count);
    }
  }
  void verbatim(std::string& text) { text = node_.dump(-1, ' ', false, Json::error_handler_t::replace); }
  void raw_object(const char* key, std::string& text) {
    const Json* value = find(key);
    if (value == nullptr) return;
    // A binary value contains the original JSON text.
    if (value->is_binary()) {
      text.assign(value->get_binary().begin(), value->get_binary().end());
    } else if (value->is_object()) {
      text = value->dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      problem(at(key), "an object", *value);
    }
  }
  template <typename Fn>
  void group(const char* key, Fn visit) {
    group(key, unknown_fields_, std::move(visit));
  }
  template <typename Fn>
  void group(const char* key, UnknownFields unknown_fields, Fn visit) {
    const Json* value = find(key);
    if (value == nullptr) return;
    JsonReader nested(*value, at(key), unknown_fields, findings_);
    visit(nested);
    nested.finish();
  }
  template <typename T, typename Fn>
  void group(const char* key, std::optional<T>& target, Fn visit) {
    group(key, [&](JsonReader& nested) { visit(nested, target.emplace()); });
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>& target, Fn visit) {
    each(key, [&](const std::string& path, const Json& value) {
      const size_t known = findings_.unknown.size();
      JsonReader nested(value, path, unknown_fields_, findings_);
      visit(nested, target.emplace_back());
      nested.finish();
      // A rule without its unknown members could match failures that it should not match.
      if (std::is_same_v<T, FailureRule> && findings_.unknown.size() > known) target.pop_back();
    });
  }

 private:
  std::string at(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  bool was_visited(std::string_view key) const {
    return std::find(visited_.begin(), visited_.end(), key) != visited_.end();
  }

  const Json* find(const char* key) {
    visited_.emplace_back(key);
    if (!node_.is_object()) return nullptr;
    const auto it = node_.find(key);
    return it == node_.end() || it->is_null() ? nullptr : &*it;
  }

  void take(const std::string& path, const Json& value, bool& target) {
    if (!value.is_boolean()) return problem(path, "true or false", value);
    target = value.get<bool>();
  }
  void take(const std::string& path, const Json& value, int64_t& target) {
    if (const std::optional<int64_t> integer = integer_of(value)) {
      target = *integer;
    } else {
      problem(path, "an integer", value);
    }
  }
  void take(const std::string& path, const Json& value, int& target) {
    const std::optional<int64_t> wide = integer_of(value);
    if (!wide) return problem(path, "an integer", value);
    if (*wide < INT32_MIN || *wide > INT32_MAX) return problem(path, "an integer of 32 bits", value);
    target = static_cast<int>(*wide);
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

  // Returns the value of a number without a fraction in any notation; nullopt if it is not representable.
  static std::optional<int64_t> integer_of(const Json& value) {
    constexpr double kExact = 9007199254740992;  // 2^53
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
    if (value.is_number_integer()) return value.get<int64_t>();
    if (!value.is_number_float()) return std::nullopt;
    const auto number = value.get<double>();
    if (!(number >= -kExact && number <= kExact)) return std::nullopt;
    const auto integer = static_cast<int64_t>(number);
    return static_cast<double>(integer) == number ? std::optional(integer) : std::nullopt;
  }

  static std::string shortened(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }
  void problem(const std::string& path, const std::string& expected, const Json& value) {
    findings_.problems.push_back(fmt::format("{}: expected {}, got {}", path, expected, shortened(value)));
  }

  const Json& node_;
  const std::string path_;
  const UnknownFields unknown_fields_;
  ReadFindings& findings_;
  std::vector<std::string_view> visited_;  // keys
};

}  // namespace oarlock::api

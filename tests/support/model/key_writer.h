// A visitor of operator/api/fields.h that writes all values into one text. Two objects are equal if and only if their
// texts are. It is much faster than JSON, which the model checker would otherwise write for each state.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "operator/api/types.h"

namespace oarlock::test {

class KeyWriter {
 public:
  const std::string& text() const { return text_; }

  template <typename T>
  void field(const char*, const T& value) {
    put(value);
  }
  template <typename Enum>
  void choice(const char*, const Enum& value, api::Names<Enum>) {
    put(static_cast<int>(value));
  }
  void count_or_auto(const char*, const int& count, const api::ProcessesFrom& from) {
    put(count);
    put(static_cast<int>(from));
  }
  void condition_status(const char*, const bool& value) { put(value); }
  void verbatim(const std::string& text) { put(text); }
  void raw_object(const char*, const std::string& text) { put(text); }
  void unknown_members(const std::string& text) { put(text); }
  template <typename Fn>
  void group(const char*, Fn visit) {
    visit(*this);
  }
  template <typename T, typename Fn>
  void group(const char*, std::optional<T>& value, Fn visit) {
    put(value.has_value());
    if (value) visit(*this, *value);
  }
  template <typename T, typename Fn>
  void list(const char*, std::vector<T>& values, Fn visit) {
    put(values.size());
    for (T& value : values) visit(*this, value);
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

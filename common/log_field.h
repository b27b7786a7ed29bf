// A named value of a log line.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace oarlock {

using LogValue = std::variant<std::string, int64_t, double, bool>;

struct LogField {
  std::string_view key;
  LogValue value;

  LogField(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  template <typename T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  LogField(std::string_view k, T v) : key(k), value(static_cast<int64_t>(v)) {}
};

using LogFields = std::initializer_list<LogField>;

}  // namespace oarlock

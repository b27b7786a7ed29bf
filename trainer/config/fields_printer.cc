#include "trainer/config/fields_printer.h"

#include <algorithm>

namespace oarlock {

template <typename Value>
void FieldsPrinter::record(std::string_view key, const Value& value) {
  if (std::find(left_out_.begin(), left_out_.end(), key) == left_out_.end()) printed_[std::string(key)] = value;
}
template <typename Value>
void FieldsPrinter::record(std::string_view key, const std::optional<Value>& value) {
  if (value) record(key, *value);
}

void FieldsPrinter::field(std::string_view key, bool& value, std::string_view meaning) {
  reader_.field(key, value, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::string& value, std::string_view meaning) {
  reader_.field(key, value, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::vector<std::string>& value, std::string_view meaning) {
  reader_.field(key, value, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, int& value, const Range& range, std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, int64_t& value, const Range& range, std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, double& value, const Range& range, std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::optional<int64_t>& value, const Range& range,
                          std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::optional<double>& value, const Range& range,
                          std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::vector<int64_t>& value, const Range& range,
                          std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}
void FieldsPrinter::field(std::string_view key, std::vector<double>& value, const Range& range,
                          std::string_view meaning) {
  reader_.field(key, value, range, meaning);
  record(key, value);
}

void FieldsPrinter::section(std::string_view key, const std::function<void(Fields&)>& describe,
                            std::string_view meaning) {
  reader_.section(
      key,
      [&](Fields& inner) {
        FieldsPrinter printer(inner);
        describe(printer);
        record(key, printer.printed());
      },
      meaning);
}

void FieldsPrinter::only_where(std::string_view key, bool condition, std::string_view why_not) {
  reader_.only_where(key, condition, why_not);
  if (condition) return;
  printed_.erase(std::string(key));
  left_out_.emplace_back(key);
}

bool FieldsPrinter::choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                           std::string_view meaning) {
  const bool made = reader_.choose(key, chosen, choices, meaning);
  record(key, choices[chosen]);
  return made;
}

void FieldsPrinter::sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                             const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  reader_.sequence(
      key, size, resize,
      [&](size_t index, Fields& inner) {
        FieldsPrinter printer(inner);
        describe(index, printer);
        items.push_back(printer.printed());
      },
      meaning);
  record(key, items);
}

}  // namespace oarlock

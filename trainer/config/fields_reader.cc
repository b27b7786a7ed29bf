#include "trainer/config/fields_reader.h"

#include <fmt/format.h>

namespace oarlock {
namespace {

double as_double(double value) { return value; }
double as_double(int64_t value) { return static_cast<double>(value); }
double as_double(int value) { return value; }
template <typename Number>
double as_double(const std::optional<Number>& value) {
  return as_double(*value);
}

}  // namespace

FieldsReader::FieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems)
    : reader_(node, path, problems) {}

void FieldsReader::field(std::string_view key, bool& value, std::string_view) { reader_.read(key, value); }
void FieldsReader::field(std::string_view key, std::string& value, std::string_view) { reader_.read(key, value); }
void FieldsReader::field(std::string_view key, std::vector<std::string>& value, std::string_view) {
  reader_.read(key, value);
}

template <typename Number>
void FieldsReader::number(std::string_view key, Number& value, const Range& range) {
  if (!reader_.read(key, value)) return;
  if (const auto complaint = range.complaint(as_double(value))) reader_.problem(key, *complaint);
}

template <typename Number>
void FieldsReader::numbers(std::string_view key, std::vector<Number>& value, const Range& range) {
  if (!reader_.read(key, value)) return;
  for (size_t i = 0; i < value.size(); ++i) {
    if (const auto complaint = range.complaint(as_double(value[i]))) {
      reader_.problem(key, fmt::format("element {}: {}", i, *complaint));
    }
  }
}

void FieldsReader::field(std::string_view key, int& value, const Range& range, std::string_view) {
  number(key, value, range);
}
void FieldsReader::field(std::string_view key, int64_t& value, const Range& range, std::string_view) {
  number(key, value, range);
}
void FieldsReader::field(std::string_view key, double& value, const Range& range, std::string_view) {
  number(key, value, range);
}
void FieldsReader::field(std::string_view key, std::optional<int64_t>& value, const Range& range, std::string_view) {
  number(key, value, range);
}
void FieldsReader::field(std::string_view key, std::optional<double>& value, const Range& range, std::string_view) {
  number(key, value, range);
}
void FieldsReader::field(std::string_view key, std::vector<int64_t>& value, const Range& range, std::string_view) {
  numbers(key, value, range);
}
void FieldsReader::field(std::string_view key, std::vector<double>& value, const Range& range, std::string_view) {
  numbers(key, value, range);
}

void FieldsReader::section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view) {
  FieldsReader inner(reader_.take(key).value_or(yaml::empty_map()), path_of(key), reader_.problems());
  describe(inner);
  inner.finish();
}

bool FieldsReader::given(std::string_view key) const { return reader_.has(key); }
void FieldsReader::problem(std::string_view key, std::string_view message) { reader_.problem(key, message); }
void FieldsReader::require(std::string_view key) { reader_.require(key); }
void FieldsReader::only_where(std::string_view key, bool condition, std::string_view why_not) {
  if (!condition && given(key)) problem(key, why_not);
}
void FieldsReader::skip(std::string_view key) { reader_.take(key); }

bool FieldsReader::choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                          std::string_view) {
  Names<size_t> names;
  for (const std::string_view choice : choices) names.emplace_back(choice, names.size());
  return reader_.read<size_t>(key, chosen, names);
}

void FieldsReader::sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                            const std::function<void(size_t, Fields&)>& describe, std::string_view) {
  const std::optional<yaml::Node> node = reader_.take(key);
  std::vector<yaml::Node> items(size, yaml::empty_map());  // the default's
  if (node && node->kind() != yaml::Node::Kind::kNull && node->kind() != yaml::Node::Kind::kSequence) {
    reader_.problem(key, "expected a list of maps");
    return;
  }
  if (node && node->kind() == yaml::Node::Kind::kSequence) items = node->items();
  resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    FieldsReader inner(items[i], fmt::format("{}[{}]", path_of(key), i), reader_.problems());
    describe(i, inner);
    inner.finish();
  }
}

std::string FieldsReader::path_of(std::string_view key) const {
  return reader_.path().empty() ? std::string(key) : fmt::format("{}.{}", reader_.path(), key);
}

}  // namespace oarlock

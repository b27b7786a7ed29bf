#include "trainer/tasks/gears/anndata/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace oarlock {
namespace {

// Numbered in the order of their first rows.
Labels numbered(const std::vector<std::string>& words) {
  Labels labels;
  std::unordered_map<std::string, int32_t> numbers;
  for (const std::string& word : words) {
    const auto [at, is_new] = numbers.emplace(word, static_cast<int32_t>(labels.names.size()));
    if (is_new) labels.names.push_back(word);
    labels.codes.push_back(at->second);
  }
  return labels;
}

Labels without_masked(Labels labels, const std::vector<int8_t>& mask) {
  for (size_t i = 0; i < labels.codes.size() && i < mask.size(); ++i) {
    if (mask[i] != 0) labels.codes[i] = -1;
  }
  return labels;
}

Result<Labels> nullable(const Hdf5Group& column) {
  const Result<std::vector<std::string>> words =
      column.dataset("values").and_then([](const Hdf5Dataset& set) { return set.read_strings(); });
  if (!words) return tl::make_unexpected(words.error());
  const Result<std::vector<int8_t>> mask =
      column.dataset("mask").and_then([](const Hdf5Dataset& set) { return set.read<int8_t>(); });
  if (!mask) return tl::make_unexpected(mask.error());
  return without_masked(numbered(*words), *mask);
}

// Of whichever column tells it without reading it.
Result<int64_t> rows_of(const Hdf5Group& table, const std::string& index) {
  if (table.has_group(index)) {
    const std::string inner = index + (table.has(index + "/codes") ? "/codes" : "/values");
    return table.dataset(inner).map([](const Hdf5Dataset& set) { return set.rows(); });
  }
  return table.dataset(index).map([](const Hdf5Dataset& set) { return set.rows(); });
}

}  // namespace

Result<AnnDataFrame> AnnDataFrame::open(const Hdf5Group& root, const std::string& name) {
  Result<Hdf5Group> own_root = Hdf5Group::open_file(root.place().file);
  if (!own_root) return tl::make_unexpected(own_root.error());
  if (root.has_dataset(name)) {
    Result<Hdf5Dataset> table = root.dataset(name);
    if (!table) return tl::make_unexpected(table.error());
    const std::vector<std::string> members = table->members();
    if (members.empty()) return hdf5_fail(table->place(), "is no table");
    const int64_t rows = table->rows();
    const bool named = std::find(members.begin(), members.end(), "index") != members.end();
    AnnDataFrame frame(std::move(*own_root), std::move(*table), named ? "index" : members.front());
    frame.rows_ = rows;
    return frame;
  }
  Result<Hdf5Group> table = root.group(name);
  if (!table) return tl::make_unexpected(table.error());
  const Result<std::string> index =
      table->has_attribute("_index") ? table->string_attribute("_index") : Result<std::string>("_index");
  if (!index) return tl::make_unexpected(index.error());
  const Result<int64_t> rows = rows_of(*table, *index);
  if (!rows) return tl::make_unexpected(rows.error());
  AnnDataFrame frame(std::move(*own_root), std::move(*table), *index);
  frame.rows_ = *rows;
  return frame;
}

bool AnnDataFrame::has(const std::string& column) const {
  if (const auto* group = std::get_if<Hdf5Group>(&table_)) return group->has(column);
  const std::vector<std::string> members = std::get<Hdf5Dataset>(table_).members();
  return std::find(members.begin(), members.end(), column) != members.end();
}

Result<Labels> AnnDataFrame::labels(const std::string& column) const {
  const auto* group = std::get_if<Hdf5Group>(&table_);
  Result<Labels> labels =
      group != nullptr ? labels_of_group(*group, column) : labels_of_compound(std::get<Hdf5Dataset>(table_), column);
  if (labels && static_cast<int64_t>(labels->codes.size()) != rows_) {
    const Hdf5Place& table = group != nullptr ? group->place() : std::get<Hdf5Dataset>(table_).place();
    return hdf5_fail(table.below(column), fmt::format("has {} rows, the table {}", labels->codes.size(), rows_));
  }
  return labels;
}

Result<std::vector<std::string>> AnnDataFrame::strings(const std::string& column) const {
  const Result<Labels> read = labels(column);
  if (!read) return tl::make_unexpected(read.error());
  std::vector<std::string> words;
  words.reserve(read->codes.size());
  for (const int32_t code : read->codes) words.push_back(code < 0 ? "" : read->names[static_cast<size_t>(code)]);
  return words;
}

Result<Labels> AnnDataFrame::labels_of_group(const Hdf5Group& columns, const std::string& column) const {
  if (columns.has_group(column)) {
    const Hdf5Group inside = *columns.group(column);
    if (!inside.has("codes")) return nullable(inside);
    Result<std::vector<int32_t>> codes =
        inside.dataset("codes").and_then([](const Hdf5Dataset& set) { return set.read<int32_t>(); });
    if (!codes) return tl::make_unexpected(codes.error());
    return coded(inside.place(), std::move(*codes), inside.dataset("categories"));
  }
  const Result<Hdf5Dataset> words = columns.dataset(column);
  if (!words) return tl::make_unexpected(words.error());
  if (!words->has_attribute("categories")) return words->read_strings().map(numbered);
  const Result<std::string> path = words->reference_attribute("categories");
  if (!path) return tl::make_unexpected(path.error());
  Result<std::vector<int32_t>> codes = words->read<int32_t>();
  if (!codes) return tl::make_unexpected(codes.error());
  return coded(words->place(), std::move(*codes), root_.dataset(path->substr(1)));
}

Result<Labels> AnnDataFrame::labels_of_compound(const Hdf5Dataset& table, const std::string& column) const {
  const Result<Hdf5Kind> kind = table.member_kind(column);
  if (!kind) return tl::make_unexpected(kind.error());
  if (*kind == Hdf5Kind::kString) return table.read_member_strings(column).map(numbered);
  const Result<std::vector<double>> numbers = table.read_member_numbers(column);
  if (!numbers) return tl::make_unexpected(numbers.error());
  return coded(table.place().below(column), std::vector<int32_t>(numbers->begin(), numbers->end()),
               root_.dataset("uns/" + column + "_categories"));
}

Result<Labels> AnnDataFrame::coded(const Hdf5Place& place, std::vector<int32_t> codes,
                                   Result<Hdf5Dataset> categories) const {
  if (!categories) return tl::make_unexpected(categories.error());
  Result<std::vector<std::string>> names = categories->read_strings();
  if (!names) return tl::make_unexpected(names.error());
  for (size_t row = 0; row < codes.size(); ++row) {
    if (codes[row] >= static_cast<int32_t>(names->size())) {
      return hdf5_fail(
          place, fmt::format("row {} has the code {}, but there are {} categories", row, codes[row], names->size()));
    }
  }
  return Labels{std::move(*names), std::move(codes)};
}

}  // namespace oarlock

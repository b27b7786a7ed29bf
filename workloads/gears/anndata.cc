#include "workloads/gears/anndata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "common/status_macros.h"

namespace oarlock::gears {

namespace {

constexpr int64_t kElementsPerRead = int64_t{1} << 20;

Result<std::string> encoding_of(const Hdf5Group& group) {
  for (const char* name : {"encoding-type", "h5sparse_format"}) {
    if (group.has_attribute(name)) return group.string_attribute(name);
  }
  return hdf5_fail(group.place(), "does not specify its encoding (attribute encoding-type)");
}

Result<std::vector<int64_t>> shape_of(const Hdf5Group& group) {
  const Result<std::vector<int64_t>> shape =
      group.integers_attribute(group.has_attribute("shape") ? "shape" : "h5sparse_shape");
  if (shape && shape->size() != 2) return hdf5_fail(group.place(), "has a shape of other than two dimensions");
  return shape;
}

// Returns why `begin` (indptr) cannot be the beginnings of `rows` rows; empty if it can. As in SciPy, values after the
// last row are allowed, and belong to no row.
std::string row_problem(const std::vector<int64_t>& begin, int64_t rows, int64_t values, int64_t indices) {
  if (begin.empty() || std::ssize(begin) - 1 != rows)
    return fmt::format("indptr has {} numbers for {} rows", begin.size(), rows);
  if (values != indices) return fmt::format("data has {} values, indices has {}", values, indices);
  if (begin.front() != 0) return fmt::format("indptr begins with {}, expected 0", begin.front());
  const auto end = std::is_sorted_until(begin.begin(), begin.end());
  if (end != begin.end()) return fmt::format("indptr decreases to {} at row {}", *end, end - begin.begin() - 1);
  if (begin.back() > values) return fmt::format("indptr ends with {}, but data has {} values", begin.back(), values);
  return "";
}

// Returns the block with each row sorted by column, and with the sum of the values of a column that a row has several
// times, as SciPy adds them.
SparseRows with_unique_columns(SparseRows block) {
  const auto increases = [&](int64_t row) {
    const auto from = block.columns.begin() + block.begin[static_cast<size_t>(row)];
    const auto to = block.columns.begin() + block.begin[static_cast<size_t>(row) + 1];
    return std::adjacent_find(from, to, std::greater_equal<>()) == to;
  };
  int64_t row = 0;
  while (row < block.rows() && increases(row)) ++row;
  if (row == block.rows()) return block;
  SparseRows out{.first = block.first, .begin = {0}, .columns = {}, .values = {}};
  std::vector<std::pair<int32_t, float>> elements;
  for (row = 0; row < block.rows(); ++row) {
    elements.clear();
    for (auto i = static_cast<size_t>(block.begin[static_cast<size_t>(row)]);
         i < static_cast<size_t>(block.begin[static_cast<size_t>(row) + 1]); ++i)
      elements.emplace_back(block.columns[i], block.values[i]);
    std::stable_sort(elements.begin(), elements.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [column, value] : elements) {
      if (std::ssize(out.columns) > out.begin.back() && out.columns.back() == column) {
        out.values.back() += value;
      } else {
        out.columns.push_back(column);
        out.values.push_back(value);
      }
    }
    out.begin.push_back(std::ssize(out.values));
  }
  return out;
}

}  // namespace

Result<ExpressionMatrix> ExpressionMatrix::open(const Hdf5Group& root) {
  if (root.has_group("X")) return root.group("X").and_then(open_sparse);
  ASSIGN_OR_RETURN(Hdf5Dataset values, root.dataset("X"));
  return open_dense(std::move(values));
}

Result<ExpressionMatrix> ExpressionMatrix::open_dense(Hdf5Dataset values) {
  RETURN_IF_ERROR(values.expect_dimensions(2));
  const int64_t rows = values.rows();
  const int64_t columns = values.row_size();
  return ExpressionMatrix(std::move(values), rows, columns);
}

Result<ExpressionMatrix> ExpressionMatrix::open_sparse(const Hdf5Group& group) {
  ASSIGN_OR_RETURN(const std::string encoding, encoding_of(group));
  if (encoding != "csr_matrix" && encoding != "csr") {
    return hdf5_fail(group.place(),
                     fmt::format("is encoded as {}; write it by rows (adata.X = adata.X.tocsr())", encoding));
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> shape, shape_of(group));
  ASSIGN_OR_RETURN(Hdf5Dataset values, group.dataset("data"));
  ASSIGN_OR_RETURN(Hdf5Dataset indices, group.dataset("indices"));
  ASSIGN_OR_RETURN(const Hdf5Dataset indptr, group.dataset("indptr"));
  ASSIGN_OR_RETURN(std::vector<int64_t> begin, indptr.read<int64_t>());
  if (const std::string problem = row_problem(begin, shape.front(), values.size(), indices.size()); !problem.empty()) {
    return hdf5_fail(group.place(), fmt::format("does not fit together: {}; the file is truncated or damaged: fetch or "
                                                "write it again",
                                                problem));
  }
  ExpressionMatrix matrix(std::move(values), shape.front(), shape.back());
  matrix.indices_.push_back(std::move(indices));
  matrix.begin_ = std::move(begin);
  return matrix;
}

Result<void> ExpressionMatrix::for_each_block(const std::function<Result<void>(const SparseRows&)>& take) const {
  for (int64_t first = 0; first < rows_;) {
    const int64_t end = block_end(first);
    ASSIGN_OR_RETURN(const SparseRows block, read_block(first, end));
    RETURN_IF_ERROR(take(block));
    first = end;
  }
  return {};
}

// Returns the end of a block of at least one row.
int64_t ExpressionMatrix::block_end(int64_t first) const {
  if (indices_.empty())
    return std::min(rows_, first + std::max<int64_t>(1, kElementsPerRead / std::max<int64_t>(1, columns_)));
  const auto begin = begin_.begin() + first;
  const auto beyond = std::upper_bound(begin, begin_.end(), *begin + kElementsPerRead);
  return std::clamp<int64_t>(beyond - begin_.begin() - 1, first + 1, rows_);
}

Result<SparseRows> ExpressionMatrix::read_block(int64_t first, int64_t end) const {
  Result<SparseRows> block = indices_.empty() ? read_dense(first, end) : read_sparse(first, end);
  if (!block) return block;
  RETURN_IF_ERROR(check(*block));
  return indices_.empty() ? block : with_unique_columns(std::move(*block));
}

Result<SparseRows> ExpressionMatrix::read_dense(int64_t first, int64_t end) const {
  ASSIGN_OR_RETURN(const std::vector<float> all, values_.read_rows<float>(first, end - first));
  SparseRows block{.first = first, .begin = {0}, .columns = {}, .values = {}};
  for (size_t row = 0; row < static_cast<size_t>(end - first); ++row) {
    for (size_t column = 0; column < static_cast<size_t>(columns_); ++column) {
      const float value = all[row * static_cast<size_t>(columns_) + column];
      if (value == 0) continue;
      block.columns.push_back(static_cast<int32_t>(column));
      block.values.push_back(value);
    }
    block.begin.push_back(std::ssize(block.values));
  }
  return block;
}

Result<SparseRows> ExpressionMatrix::read_sparse(int64_t first, int64_t end) const {
  const int64_t from = begin_[static_cast<size_t>(first)];
  const int64_t count = begin_[static_cast<size_t>(end)] - from;
  ASSIGN_OR_RETURN(std::vector<float> values, values_.read_rows<float>(from, count));
  ASSIGN_OR_RETURN(std::vector<int32_t> columns, indices_.front().read_rows<int32_t>(from, count));
  SparseRows block{.first = first, .begin = {}, .columns = std::move(columns), .values = std::move(values)};
  for (int64_t row = first; row <= end; ++row) block.begin.push_back(begin_[static_cast<size_t>(row)] - from);
  return block;
}

Result<void> ExpressionMatrix::check(const SparseRows& block) const {
  for (int64_t row = 0; row < block.rows(); ++row) {
    for (auto i = static_cast<size_t>(block.begin[static_cast<size_t>(row)]);
         i < static_cast<size_t>(block.begin[static_cast<size_t>(row) + 1]); ++i) {
      if (block.columns[i] < 0 || block.columns[i] >= columns_) {
        return hdf5_fail(values_.place(), fmt::format("cell {} has a value of gene {}, but there are {} genes",
                                                      block.first + row, block.columns[i], columns_));
      }
      if (!std::isfinite(block.values[i])) {
        return hdf5_fail(values_.place(), fmt::format("cell {}, gene {}: {} is not finite", block.first + row,
                                                      block.columns[i], block.values[i]));
      }
    }
  }
  return {};
}

namespace {

// Encodes strings by codes in the order of their first rows.
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
  ASSIGN_OR_RETURN(const Hdf5Dataset values, column.dataset("values"));
  ASSIGN_OR_RETURN(const std::vector<std::string> words, values.read_strings());
  ASSIGN_OR_RETURN(const Hdf5Dataset missing, column.dataset("mask"));
  ASSIGN_OR_RETURN(const std::vector<int8_t> mask, missing.read<int8_t>());
  return without_masked(numbered(words), mask);
}

std::vector<std::string> words_of(const Labels& labels) {
  std::vector<std::string> words;
  words.reserve(labels.codes.size());
  for (const int32_t code : labels.codes) words.push_back(code < 0 ? "" : labels.names[static_cast<size_t>(code)]);
  return words;
}

// Determines the number of rows from a column, without reading it.
Result<int64_t> rows_of(const Hdf5Group& table, const std::string& index) {
  if (table.has_group(index)) {
    const std::string inner = index + (table.has(index + "/codes") ? "/codes" : "/values");
    return table.dataset(inner).map([](const Hdf5Dataset& set) { return set.rows(); });
  }
  return table.dataset(index).map([](const Hdf5Dataset& set) { return set.rows(); });
}

}  // namespace

Result<std::vector<std::string>> read_string_array(const Hdf5Group& group, const std::string& name) {
  if (group.has_group(name)) return group.group(name).and_then(nullable).map(words_of);
  ASSIGN_OR_RETURN(const Hdf5Dataset words, group.dataset(name));
  return words.read_strings();
}

Result<AnnDataFrame> AnnDataFrame::open(const Hdf5Group& root, const std::string& name) {
  ASSIGN_OR_RETURN(Hdf5Group own_root, Hdf5Group::open_file(root.place().file));
  if (root.has_dataset(name)) {
    ASSIGN_OR_RETURN(Hdf5Dataset table, root.dataset(name));
    const std::vector<std::string> members = table.members();
    if (members.empty()) return hdf5_fail(table.place(), "is not a table");
    const int64_t rows = table.rows();
    const bool named = std::find(members.begin(), members.end(), "index") != members.end();
    AnnDataFrame frame(std::move(own_root), std::move(table), named ? "index" : members.front());
    frame.rows_ = rows;
    return frame;
  }
  ASSIGN_OR_RETURN(Hdf5Group table, root.group(name));
  ASSIGN_OR_RETURN(const std::string index,
                   table.has_attribute("_index") ? table.string_attribute("_index") : Result<std::string>("_index"));
  ASSIGN_OR_RETURN(const int64_t rows, rows_of(table, index));
  AnnDataFrame frame(std::move(own_root), std::move(table), index);
  frame.rows_ = rows;
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
  return labels(column).map(words_of);
}

Result<Labels> AnnDataFrame::labels_of_group(const Hdf5Group& columns, const std::string& column) const {
  if (columns.has_group(column)) {
    const Hdf5Group inside = *columns.group(column);
    if (!inside.has("codes")) return nullable(inside);
    ASSIGN_OR_RETURN(const Hdf5Dataset numbers, inside.dataset("codes"));
    ASSIGN_OR_RETURN(std::vector<int32_t> codes, numbers.read<int32_t>());
    return coded(inside.place(), std::move(codes), read_string_array(inside, "categories"));
  }
  ASSIGN_OR_RETURN(const Hdf5Dataset words, columns.dataset(column));
  if (!words.has_attribute("categories")) return words.read_strings().map(numbered);
  ASSIGN_OR_RETURN(const std::string path, words.reference_attribute("categories"));
  ASSIGN_OR_RETURN(std::vector<int32_t> codes, words.read<int32_t>());
  return coded(words.place(), std::move(codes), read_string_array(root_, path.substr(1)));
}

Result<Labels> AnnDataFrame::labels_of_compound(const Hdf5Dataset& table, const std::string& column) const {
  ASSIGN_OR_RETURN(const Hdf5Kind kind, table.member_kind(column));
  if (kind == Hdf5Kind::kString) return table.read_member_strings(column).map(numbered);
  ASSIGN_OR_RETURN(const std::vector<double> numbers, table.read_member_numbers(column));
  for (size_t row = 0; row < numbers.size(); ++row) {
    const bool is_code = numbers[row] >= -1 && numbers[row] <= std::numeric_limits<int32_t>::max();  // false for NaN
    if (!is_code)
      return hdf5_fail(table.place().below(column), fmt::format("row {} has the invalid code {}", row, numbers[row]));
  }
  return coded(table.place().below(column), std::vector<int32_t>(numbers.begin(), numbers.end()),
               read_string_array(root_, "uns/" + column + "_categories"));
}

Result<Labels> AnnDataFrame::coded(const Hdf5Place& place, std::vector<int32_t> codes,
                                   Result<std::vector<std::string>> categories) const {
  ASSIGN_OR_RETURN(std::vector<std::string> names, std::move(categories));
  for (size_t row = 0; row < codes.size(); ++row) {
    if (codes[row] >= static_cast<int32_t>(names.size())) {
      return hdf5_fail(
          place, fmt::format("row {} has the code {}, but there are {} categories", row, codes[row], names.size()));
    }
  }
  return Labels{std::move(names), std::move(codes)};
}

}  // namespace oarlock::gears

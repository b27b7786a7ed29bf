#include "trainer/tasks/gears/anndata/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace oarlock {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 20;

Result<std::string> encoding_of(const Hdf5Group& group) {
  for (const char* name : {"encoding-type", "h5sparse_format"}) {
    if (group.has_attribute(name)) return group.string_attribute(name);
  }
  return hdf5_fail(group.place(), "says not how it is encoded (attribute encoding-type)");
}

Result<std::vector<int64_t>> shape_of(const Hdf5Group& group) {
  const Result<std::vector<int64_t>> shape =
      group.integers_attribute(group.has_attribute("shape") ? "shape" : "h5sparse_shape");
  if (shape && shape->size() != 2) return hdf5_fail(group.place(), "has a shape of other than two dimensions");
  return shape;
}

}  // namespace

Result<ExpressionMatrix> ExpressionMatrix::open(const Hdf5Group& root) {
  if (root.has_group("X")) return root.group("X").and_then(open_sparse);
  Result<Hdf5Dataset> values = root.dataset("X");
  if (!values) return tl::make_unexpected(values.error());
  return open_dense(std::move(*values));
}

Result<ExpressionMatrix> ExpressionMatrix::open_dense(Hdf5Dataset values) {
  if (const Result<void> fits = values.expect_dimensions(2); !fits) return tl::make_unexpected(fits.error());
  const int64_t rows = values.rows();
  const int64_t columns = values.row_size();
  return ExpressionMatrix(std::move(values), rows, columns);
}

Result<ExpressionMatrix> ExpressionMatrix::open_sparse(const Hdf5Group& group) {
  const Result<std::string> encoding = encoding_of(group);
  if (!encoding) return tl::make_unexpected(encoding.error());
  if (*encoding != "csr_matrix" && *encoding != "csr") {
    return hdf5_fail(group.place(),
                     fmt::format("is encoded as {}; write it by rows (adata.X = adata.X.tocsr())", *encoding));
  }
  const Result<std::vector<int64_t>> shape = shape_of(group);
  if (!shape) return tl::make_unexpected(shape.error());
  Result<Hdf5Dataset> values = group.dataset("data");
  if (!values) return tl::make_unexpected(values.error());
  Result<Hdf5Dataset> indices = group.dataset("indices");
  if (!indices) return tl::make_unexpected(indices.error());
  Result<std::vector<int64_t>> begin =
      group.dataset("indptr").and_then([](const Hdf5Dataset& set) { return set.read<int64_t>(); });
  if (!begin) return tl::make_unexpected(begin.error());
  const bool whole = static_cast<int64_t>(begin->size()) == shape->front() + 1 && begin->front() == 0 &&
                     std::is_sorted(begin->begin(), begin->end()) && begin->back() == values->size() &&
                     values->size() == indices->size();
  if (!whole) {
    return hdf5_fail(
        group.place(),
        fmt::format("does not fit together: {} rows, {} in indptr, {} values, {} indices; the file is "
                    "truncated or damaged",
                    shape->front(), static_cast<int64_t>(begin->size()) - 1, values->size(), indices->size()));
  }
  ExpressionMatrix matrix(std::move(*values), shape->front(), shape->back());
  matrix.indices_.push_back(std::move(*indices));
  matrix.begin_ = std::move(*begin);
  return matrix;
}

Result<void> ExpressionMatrix::for_each_block(const std::function<Result<void>(const SparseRows&)>& take) const {
  for (int64_t first = 0; first < rows_;) {
    const int64_t end = block_end(first);
    const Result<SparseRows> block = read_block(first, end);
    if (!block) return tl::make_unexpected(block.error());
    if (Result<void> taken = take(*block); !taken) return taken;
    first = end;
  }
  return {};
}

// At least one row.
int64_t ExpressionMatrix::block_end(int64_t first) const {
  if (indices_.empty())
    return std::min(rows_, first + std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, columns_)));
  const auto begin = begin_.begin() + first;
  const auto beyond = std::upper_bound(begin, begin_.end(), *begin + kBlockElements);
  return std::clamp<int64_t>(beyond - begin_.begin() - 1, first + 1, rows_);
}

Result<SparseRows> ExpressionMatrix::read_block(int64_t first, int64_t end) const {
  Result<SparseRows> block = indices_.empty() ? read_dense(first, end) : read_sparse(first, end);
  if (!block) return block;
  if (const Result<void> sound = check(*block); !sound) return tl::make_unexpected(sound.error());
  return block;
}

Result<SparseRows> ExpressionMatrix::read_dense(int64_t first, int64_t end) const {
  const Result<std::vector<float>> all = values_.read_rows<float>(first, end - first);
  if (!all) return tl::make_unexpected(all.error());
  SparseRows block{.first = first, .begin = {0}, .columns = {}, .values = {}};
  for (size_t row = 0; row < static_cast<size_t>(end - first); ++row) {
    for (size_t column = 0; column < static_cast<size_t>(columns_); ++column) {
      const float value = (*all)[row * static_cast<size_t>(columns_) + column];
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
  Result<std::vector<float>> values = values_.read_rows<float>(from, count);
  if (!values) return tl::make_unexpected(values.error());
  Result<std::vector<int32_t>> columns = indices_.front().read_rows<int32_t>(from, count);
  if (!columns) return tl::make_unexpected(columns.error());
  SparseRows block{.first = first, .begin = {}, .columns = std::move(*columns), .values = std::move(*values)};
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
        return hdf5_fail(values_.place(), fmt::format("cell {}, gene {}: {} is no number to learn from",
                                                      block.first + row, block.columns[i], block.values[i]));
      }
    }
  }
  return {};
}

}  // namespace oarlock

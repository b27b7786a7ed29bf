// AnnData files (.h5ad): the tables "obs" (cells) and "var" (genes), and the matrix X, cells by genes.
// Source: https://anndata.readthedocs.io/en/latest/fileformat-prose.html, and anndata/_io/h5ad.py of 0.6 and 0.7.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "workloads/formats/hdf5/reader.h"

namespace oarlock::gears {

// Consecutive rows of a matrix in compressed sparse row format.
struct SparseRows {
  int64_t first = 0;           // index of the first row in the matrix
  std::vector<int64_t> begin;  // row first + i has the elements begin[i] .. begin[i + 1] - 1
  std::vector<int32_t> columns;
  std::vector<float> values;

  int64_t rows() const { return static_cast<int64_t>(begin.size()) - 1; }
};

// The matrix X: csr or dense, with numbers of any type. It is read in blocks of rows, so that a matrix of any size
// needs little memory.
class ExpressionMatrix {
 public:
  // Fails with kDataErr if X is neither csr nor dense, or if its parts are inconsistent.
  static Result<ExpressionMatrix> open(const Hdf5Group& root);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // Calls `take` for all rows in order, in blocks of about a million elements, and stops when it fails. Fails with
  // kDataErr, naming row and dataset, if a block cannot be read, or contains a column out of range or a value that is
  // not finite. The columns of each row increase: several values of one column are added, as SciPy does.
  Result<void> for_each_block(const std::function<Result<void>(const SparseRows& block)>& take) const;

 private:
  ExpressionMatrix(Hdf5Dataset values, int64_t rows, int64_t columns)
      : values_(std::move(values)), rows_(rows), columns_(columns) {}

  static Result<ExpressionMatrix> open_dense(Hdf5Dataset values);
  static Result<ExpressionMatrix> open_sparse(const Hdf5Group& group);
  int64_t block_end(int64_t first) const;
  Result<SparseRows> read_block(int64_t first, int64_t end) const;
  Result<SparseRows> read_dense(int64_t first, int64_t end) const;
  Result<SparseRows> read_sparse(int64_t first, int64_t end) const;
  Result<void> check(const SparseRows& block) const;

  Hdf5Dataset values_;
  int64_t rows_;
  int64_t columns_;
  std::vector<Hdf5Dataset> indices_;  // one element; empty for a dense matrix
  std::vector<int64_t> begin_;        // csr's indptr
};

// A categorical column: the distinct strings, and for each row the index of its string; -1 if it is missing.
struct Labels {
  std::vector<std::string> names;
  std::vector<int32_t> codes;
};

// Reads an array of strings: a dataset, or a group of values and mask, whose missing strings are empty.
Result<std::vector<std::string>> read_string_array(const Hdf5Group& group, const std::string& name);

// A table, in each of the encodings in use:
//   - the current one: a group with a dataset per column; a categorical is a group of codes and categories; strings
//     that may be missing are a group of values and mask
//   - 0.7: such a group, in which a categorical is a dataset of codes that refers to its categories
//   - before 0.7: one dataset of compounds, with the categories in uns/COLUMN_categories
class AnnDataFrame {
 public:
  // `root` is the root of the file, `name` is "obs" or "var". Fails with kDataErr if there is no such table.
  static Result<AnnDataFrame> open(const Hdf5Group& root, const std::string& name);

  int64_t rows() const { return rows_; }
  bool has(const std::string& column) const;

  // Both fail with kDataErr, naming file and column, if the column does not exist, does not contain strings, or has
  // codes out of range.
  Result<Labels> labels(const std::string& column) const;
  Result<std::vector<std::string>> strings(const std::string& column) const;
  // The names of the rows.
  Result<std::vector<std::string>> index() const { return strings(index_); }

 private:
  using Table = std::variant<Hdf5Group, Hdf5Dataset>;
  AnnDataFrame(Hdf5Group root, Table table, std::string index)
      : root_(std::move(root)), table_(std::move(table)), index_(std::move(index)) {}

  Result<Labels> labels_of_group(const Hdf5Group& columns, const std::string& column) const;
  Result<Labels> labels_of_compound(const Hdf5Dataset& table, const std::string& column) const;
  Result<Labels> coded(const Hdf5Place& place, std::vector<int32_t> codes,
                       Result<std::vector<std::string>> categories) const;

  Hdf5Group root_;
  Table table_;
  std::string index_;
  int64_t rows_ = 0;
};

}  // namespace oarlock::gears

// The tables "obs" (of cells) and "var" (of genes) of an AnnData file, in each of the encodings that are about:
//   - today's: a group with a dataset per column; a categorical is a group of codes and categories, and strings that
//   may
//     be missing are a group of values and mask
//   - 0.7's: such a group, where a categorical is a dataset of codes that refers to its categories
//   - before 0.7: one dataset of compounds, with the categories in uns/COLUMN_categories
// Source: https://anndata.readthedocs.io/en/latest/fileformat-prose.html, and anndata/_io/h5ad.py of 0.6 and 0.7.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "trainer/data/hdf5/group.h"

namespace oarlock {

// A column of words: the distinct ones, and for each row the number of its own, -1 where it is missing.
struct Labels {
  std::vector<std::string> names;
  std::vector<int32_t> codes;
};

class AnnDataFrame {
 public:
  // `root`: of the file; `name`: "obs" or "var". kDataErr: not such a table.
  static Result<AnnDataFrame> open(const Hdf5Group& root, const std::string& name);

  int64_t rows() const { return rows_; }
  bool has(const std::string& column) const;

  // kDataErr, naming file and column: not there, not words, or codes beyond the categories.
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
  Result<Labels> coded(const Hdf5Place& place, std::vector<int32_t> codes, Result<Hdf5Dataset> categories) const;

  Hdf5Group root_;
  Table table_;
  std::string index_;
  int64_t rows_ = 0;
};

}  // namespace oarlock

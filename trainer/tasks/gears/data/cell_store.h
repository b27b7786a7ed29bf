// What GEARS learns from, made once from an AnnData file and memory-mapped: a file of any size takes little memory. The
// files of its folder, little-endian:
//   values.f32 columns.i32   the expression above zero, cell by cell
//   begin.i64                [cells + 1]: cell i has the elements from begin[i] to before begin[i + 1]
//   condition.i32            [cells]: the number of its condition
//   means.f64                [conditions, genes]
//   counted.u8               [conditions, genes]: 1 where the gene counts in the loss (uns/non_zeros_gene_idx)
//   about.json               genes, and of each condition the name, the cells and the differentially expressed genes
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "trainer/data/mapped_file.h"

namespace oarlock {

struct CellCondition {
  std::string name;  // "ctrl", "AHR+ctrl", "AHR+FEV"
  int64_t cells = 0;
  std::vector<int64_t> de;              // the 20 most differentially expressed genes, the strongest first; none of ctrl
  std::vector<int64_t> non_dropout_de;  // of those that do not drop out (uns/top_non_dropout_de_20)
};

class CellStore {
 public:
  // kDataErr: damaged.
  static Result<CellStore> open(const std::filesystem::path& folder);

  int64_t cells() const { return static_cast<int64_t>(condition_.bytes().size() / sizeof(int32_t)); }
  const std::vector<std::string>& genes() const { return genes_; }
  int64_t gene_count() const { return std::ssize(genes_); }
  const std::vector<CellCondition>& conditions() const { return conditions_; }  // in the order of their first cells
  // The number of a condition; -1: no cell has it.
  int64_t number_of(const std::string& condition) const;

  // Thread-safe, as all of it; `cell` must be below cells().
  int64_t condition_of(int64_t cell) const;
  // All genes of a cell; `out` holds gene_count().
  void expression(int64_t cell, std::span<float> out) const;
  // The cells of a condition, ascending.
  std::span<const int64_t> cells_of(int64_t condition) const { return cells_of_[static_cast<size_t>(condition)]; }

  at::Tensor means() const { return means_; }      // double [conditions, genes]
  at::Tensor counted() const { return counted_; }  // bool [conditions, genes]

 private:
  CellStore(MappedFile values, MappedFile columns, MappedFile begin, MappedFile condition)
      : values_(std::move(values)),
        columns_(std::move(columns)),
        begin_(std::move(begin)),
        condition_(std::move(condition)) {}

  Result<void> read_about(const std::filesystem::path& folder);
  Result<void> check(const std::filesystem::path& folder) const;

  MappedFile values_;
  MappedFile columns_;
  MappedFile begin_;
  MappedFile condition_;
  std::vector<std::string> genes_;
  std::vector<CellCondition> conditions_;
  std::vector<std::vector<int64_t>> cells_of_;
  at::Tensor means_;
  at::Tensor counted_;
};

}  // namespace oarlock

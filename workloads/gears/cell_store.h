// The converted data of GEARS, memory-mapped, so that a file of any size needs little memory. A store is a directory of
// little-endian files:
//   values.f32 columns.i32   the positive expression values and their genes, cell by cell
//   begin.i64                [cells + 1]: cell i has the elements begin[i] .. begin[i + 1] - 1
//   condition.i32            [cells]: the index of each cell's condition
//   means.f64                [conditions, genes]
//   counted.u8               [conditions, genes]: 1 if the gene counts in the loss (uns/non_zeros_gene_idx)
//   about.json               genes, and of each condition the name, the cells and the differentially expressed genes
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "workloads/gears/anndata.h"

namespace oarlock::gears {

struct CellCondition {
  std::string name;  // "ctrl", "AHR+ctrl", "AHR+FEV"
  int64_t cells = 0;
  std::vector<int64_t> de;  // the 20 most differentially expressed genes in descending order; empty for ctrl
  std::vector<int64_t> non_dropout_de;  // the same without dropouts (uns/top_non_dropout_de_20)
};

// All methods are thread-safe.
class CellStore {
 public:
  // Fails with kDataErr if the store is damaged.
  static Result<CellStore> open(const std::filesystem::path& directory);

  int64_t cells() const { return static_cast<int64_t>(condition_.bytes().size() / sizeof(int32_t)); }
  const std::vector<std::string>& genes() const { return genes_; }
  int64_t gene_count() const { return std::ssize(genes_); }
  const std::vector<CellCondition>& conditions() const { return conditions_; }  // in the order of their first cells
  // Returns the index of a condition; -1 if no cell has it.
  int64_t index_of(const std::string& condition) const;

  // Returns the index of a cell's condition. `cell` must be below cells().
  int64_t condition_of(int64_t cell) const;
  // Copies the expression of all genes of a cell to `out`, which has gene_count() elements.
  void expression(int64_t cell, std::span<float> out) const;
  // Returns the cells of a condition in ascending order.
  std::span<const int64_t> cells_of(int64_t condition) const { return cells_of_[static_cast<size_t>(condition)]; }

  at::Tensor means() const { return means_; }      // double [conditions, genes]
  at::Tensor counted() const { return counted_; }  // bool [conditions, genes]

 private:
  CellStore(MappedFile values, MappedFile columns, MappedFile begin, MappedFile condition)
      : values_(std::move(values)),
        columns_(std::move(columns)),
        begin_(std::move(begin)),
        condition_(std::move(condition)) {}

  Result<void> read_about(const std::filesystem::path& directory);
  Result<void> check(const std::filesystem::path& directory) const;

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

// Sums per group of cells and gene, [groups, genes], from which means and variances are computed.
struct GroupSums {
  static constexpr uint64_t kBytes = 2 * sizeof(double);  // for each group and gene

  int64_t genes = 0;
  std::vector<int64_t> cells;
  std::vector<double> sum;
  std::vector<double> squares;

  GroupSums(int64_t groups, int64_t gene_count)
      : genes(gene_count),
        cells(static_cast<size_t>(groups)),
        sum(static_cast<size_t>(groups * gene_count)),
        squares(static_cast<size_t>(groups * gene_count)) {}

  double mean(int64_t group, int64_t gene) const;
  double variance(int64_t group, int64_t gene) const;  // unbiased; 0 for a single cell
};

// Writes values, columns and begin of a CellStore, and accumulates the sums of the groups.
class CellWriter {
 public:
  // `groups` has the group of each cell. The directory must exist.
  CellWriter(const std::filesystem::path& directory, std::vector<int32_t> groups, int64_t group_count, int64_t genes);

  // Both fail with kIoErr if the disk is full.
  Result<void> add(const SparseRows& block);
  const GroupSums& sums() const { return sums_; }
  Result<void> finish();

 private:
  tl::unexpected<Error> write_error() const;

  std::filesystem::path directory_;
  std::vector<int32_t> groups_;
  GroupSums sums_;
  std::ofstream values_;
  std::ofstream columns_;
  std::ofstream begin_;
  int64_t written_ = 0;  // elements
};

}  // namespace oarlock::gears

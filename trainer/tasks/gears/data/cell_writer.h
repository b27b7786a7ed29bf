// Writes the files of a CellStore, cell by cell, and adds up what the conditions' means and tests are made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/gears/anndata/expression.h"

namespace oarlock {

// Per group of cells and gene: the sums that give mean and variance. Groups by genes.
struct GroupSums {
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
  double variance(int64_t group, int64_t gene) const;  // unbiased; 0 of a single cell
};

class CellWriter {
 public:
  // `groups`: of each cell. The folder exists.
  CellWriter(const std::filesystem::path& folder, std::vector<int32_t> groups, int64_t group_count, int64_t genes);

  void add(const SparseRows& block);
  const GroupSums& sums() const { return sums_; }
  // kIoErr: the disk is full.
  Result<void> finish();

 private:
  std::filesystem::path folder_;
  std::vector<int32_t> groups_;
  GroupSums sums_;
  std::ofstream values_;
  std::ofstream columns_;
  std::ofstream begin_;
  int64_t written_ = 0;  // elements
};

}  // namespace oarlock

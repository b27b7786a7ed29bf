// Converts an AnnData file to the files of a CellStore, in one pass over its matrix.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "workloads/gears/cell_store.h"

namespace oarlock::gears {

// The file must have obs/condition with "ctrl" among its values, and the gene names in var/gene_name or in the row
// names of var. uns/rank_genes_groups_cov_all, top_non_dropout_de_20 and non_zeros_gene_idx, which GEARS'
// new_data_process() writes, are used if they exist, and computed otherwise; obs/cell_type and obs/condition_name
// determine the entries of a condition. `directory` must exist. Needs memory for a block of rows, a number per cell,
// and two numbers per gene and condition. Fails with kNoInput, kIoErr, or kDataErr naming file and place.
Result<void> convert_anndata(const std::filesystem::path& h5ad, const std::filesystem::path& directory,
                             const Logger& log);

// The following two functions determine the genes that a perturbation changes most, as
// scanpy.tl.rank_genes_groups(method="t-test", rankby_abs=True) and get_DE_genes() and get_dropout_non_zero_genes() of
// gears/data_utils.py.

inline constexpr int64_t kTopGenes = 20;

// Returns all genes, sorted by the absolute value of Welch's t between the two groups in descending order, and by index
// if it is equal. Without cells or variance, t is 0, or infinite if the means differ.
std::vector<int64_t> rank_genes(const GroupSums& sums, int64_t group, int64_t reference);

// Returns the first kTopGenes of the ranking that are above zero in the condition, or zero in the control cells, too.
std::vector<int64_t> top_non_dropout(std::span<const int64_t> ranking, std::span<const double> means,
                                     std::span<const double> control_means);

}  // namespace oarlock::gears

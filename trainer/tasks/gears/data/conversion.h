// From an AnnData file to the files of a CellStore, in one pass over its matrix.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "common/log.h"

namespace oarlock {

// The file needs obs/condition with "ctrl" in it; var/gene_name (else the names of var's rows). Where uns has
// rank_genes_groups_cov_all, top_non_dropout_de_20 or non_zeros_gene_idx, as GEARS' new_data_process() leaves them,
// they are taken, else computed; obs/cell_type and obs/condition_name tell which of them belong to a condition.
// `folder` exists. Memory: that of a block of rows, of a number per cell, and of two per gene and condition. kNoInput;
// kDataErr naming file and place; kIoErr.
Result<void> convert_anndata(const std::filesystem::path& h5ad, const std::filesystem::path& folder, const Logger& log);

}  // namespace oarlock

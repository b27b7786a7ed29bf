// Which genes a perturbation changes most: scanpy.tl.rank_genes_groups() with method "t-test" and rankby_abs, and what
// GEARS makes of it (get_DE_genes() and get_dropout_non_zero_genes(), gears/data_utils.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/tasks/gears/data/cell_writer.h"

namespace oarlock {

inline constexpr int64_t kTopGenes = 20;

// All genes by the absolute value of Welch's t between the two groups, the largest first, equal ones by number. No cell
// or no variance: t is 0, or infinite where the means differ.
std::vector<int64_t> rank_genes(const GroupSums& sums, int64_t group, int64_t reference);

// The first kTopGenes of the ranking that are above zero in the condition, or zero in the control cells as well.
std::vector<int64_t> top_non_dropout(std::span<const int64_t> ranking, std::span<const double> means,
                                     std::span<const double> control_means);

}  // namespace oarlock

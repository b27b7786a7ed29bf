// How well the mean expression of perturbed cells was predicted: compute_metrics(), and of deeper_analysis() and
// non_dropout_analysis() what GEARS reports (gears/inference.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace oarlock {

// Means over a condition's cells, per gene.
struct ConditionMeans {
  std::span<const double> prediction;
  std::span<const double> truth;
  std::span<const double> control;  // of the control cells
};

struct ConditionScore {
  double mse = 0;
  double pearson = 0;  // 0 where there is no correlation
  double mse_de = 0;   // of the differentially expressed genes; 0 where there are none, as for ctrl
  double pearson_de = 0;
  double pearson_delta = 0;  // of the changes from the control cells, over all genes
};

ConditionScore score(const ConditionMeans& means, std::span<const int64_t> de);

struct NonDropoutScore {
  double frac_opposite_direction = 0;
  double frac_sigma_below_1 = 0;  // predictions within a standard deviation of the truth, of the genes that vary
  double mse = 0;
};

// `genes`: the differentially expressed ones that do not drop out, at least one; `deviation`: the standard deviation of
// each of these over the condition's cells.
NonDropoutScore score_non_dropout(const ConditionMeans& means, std::span<const int64_t> genes,
                                  std::span<const double> deviation);

// 0 where one of them does not vary.
double pearson(std::span<const double> a, std::span<const double> b);

}  // namespace oarlock

// The section "predict": GEARS.predict() and GI_predict(), and the scores of the interaction of two perturbations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/engine/task.h"
#include "workloads/gears/config.h"
#include "workloads/gears/data.h"

namespace oarlock::gears {

// The perturbations to predict: first those of the configuration in its order, then those that interactions need.
struct Queries {
  std::vector<std::string> names;
  at::Tensor perturbed;  // int64 [queries, 2]
};

// Fails with kConfig if a gene cannot be perturbed, a query has more than two genes, or an interaction not exactly two.
Result<Queries> make_queries(const GearsPredictConfig& config, const GearsData& data);

// Writes the files of the configuration from the rows of GroupedCells samples, with one group per query. Fails with
// kNoInput, kCantCreate or kIoErr.
Result<void> write_predictions(const GearsPredictConfig& config, const GearsData& data, const Queries& queries,
                               const EvalRows& rows);

// ---- Genetic interactions --------------------------------------------------------------------------------------
// get_coeffs() of GEARS (gears/utils.py), after Norman et al., Science 2019.

// Scores by name, in the order of the original: c1 and c2 of double = c1 * first + c2 * second, mag = |(c1, c2)|, dcor
// between singles and double, dcor_singles, dcor_first, dcor_second, corr_fit, dominance = |log10(c1 / c2)| (NaN if
// they differ in sign), eq_contr.
using InteractionScores = std::vector<std::pair<std::string, double>>;

// The arguments are changes of expression per gene: by each perturbation alone, and by both.
InteractionScores score_interaction(std::span<const double> first, std::span<const double> second,
                                    std::span<const double> both);

struct Coefficients {
  double first = 0;
  double second = 0;
};

// Theil-Sen regression without intercept, as sklearn.linear_model.TheilSenRegressor: the spatial median of the
// solutions of pairs of genes. Uses all pairs if there are at most 100,000, otherwise as many random ones.
Coefficients theil_sen(std::span<const double> first, std::span<const double> second, std::span<const double> both);

// One column per variable, all of the same length.
using Columns = std::vector<std::span<const double>>;

// Distance correlation of samples of one or two variables (Szekely, Rizzo, Bakirov, Annals of Statistics 2007); 0 if
// one of the two is constant.
double distance_correlation(const Columns& a, const Columns& b);

}  // namespace oarlock::gears

// How two perturbations act together: get_coeffs() of GEARS (gears/utils.py), after Norman et al., Science 2019.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace oarlock {

// By name, in the original's order: c1 and c2 of double = c1 * first + c2 * second, mag = |(c1, c2)|, dcor between
// singles and double, dcor_singles, dcor_first, dcor_second, corr_fit, dominance = |log10(c1 / c2)| (NaN where they
// differ in sign), eq_contr.
using InteractionScores = std::vector<std::pair<std::string, double>>;

// Changes of expression over the genes: by each perturbation alone, and by both.
InteractionScores score_interaction(std::span<const double> first, std::span<const double> second,
                                    std::span<const double> both);

struct Coefficients {
  double first = 0;
  double second = 0;
};

// Theil-Sen regression without intercept, as sklearn.linear_model.TheilSenRegressor: the spatial median of the
// solutions of pairs of genes. All pairs where there are at most 100,000, else as many that are drawn.
Coefficients theil_sen(std::span<const double> first, std::span<const double> second, std::span<const double> both);

// Of samples of one number or two (Szekely, Rizzo, Bakirov, Annals of Statistics 2007); 0 where one does not vary. Each
// of `a` and `b` has a column per number, all of the same length.
using Columns = std::vector<std::span<const double>>;
double distance_correlation(const Columns& a, const Columns& b);

}  // namespace oarlock

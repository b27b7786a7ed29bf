#include "trainer/tasks/gears/metrics.h"

#include <cmath>
#include <numeric>

namespace oarlock {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squared_error(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

std::vector<double> at(std::span<const double> values, std::span<const int64_t> genes) {
  std::vector<double> out;
  for (const int64_t gene : genes) out.push_back(values[static_cast<size_t>(gene)]);
  return out;
}

std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

int sign(double value) { return (value > 0 ? 1 : 0) - (value < 0 ? 1 : 0); }

}  // namespace

double pearson(std::span<const double> a, std::span<const double> b) {
  const double mean_a = mean_of(a);
  const double mean_b = mean_of(b);
  double product = 0;
  double square_a = 0;
  double square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  const double correlation = product / std::sqrt(square_a * square_b);
  return std::isfinite(correlation) ? correlation : 0;
}

ConditionScore score(const ConditionMeans& means, std::span<const int64_t> de) {
  ConditionScore score{
      .mse = squared_error(means.prediction, means.truth),
      .pearson = pearson(means.prediction, means.truth),
      .pearson_delta = pearson(difference(means.prediction, means.control), difference(means.truth, means.control))};
  if (de.empty()) return score;
  const std::vector<double> prediction = at(means.prediction, de);
  const std::vector<double> truth = at(means.truth, de);
  score.mse_de = squared_error(prediction, truth);
  score.pearson_de = pearson(prediction, truth);
  return score;
}

NonDropoutScore score_non_dropout(const ConditionMeans& means, std::span<const int64_t> genes,
                                  std::span<const double> deviation) {
  const std::vector<double> prediction = at(means.prediction, genes);
  const std::vector<double> truth = at(means.truth, genes);
  const std::vector<double> control = at(means.control, genes);
  int64_t opposite = 0;
  int64_t varying = 0;
  int64_t within = 0;
  for (size_t i = 0; i < genes.size(); ++i) {
    if (std::abs(sign(prediction[i] - control[i]) - sign(truth[i] - control[i])) == 2) ++opposite;
    if (deviation[i] <= 0) continue;
    ++varying;
    if (std::abs(prediction[i] - truth[i]) / deviation[i] <= 1) ++within;
  }
  return {.frac_opposite_direction = static_cast<double>(opposite) / static_cast<double>(genes.size()),
          .frac_sigma_below_1 = varying == 0 ? 0 : static_cast<double>(within) / static_cast<double>(varying),
          .mse = squared_error(prediction, truth)};
}

}  // namespace oarlock

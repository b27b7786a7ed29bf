#include "trainer/tasks/gears/genetic_interaction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trainer/data/random.h"
#include "trainer/tasks/gears/evaluation.h"

namespace oarlock::gears {

namespace {

constexpr int64_t kMostPairs = 100'000;
constexpr int kIterations = 1000;
constexpr double kTolerance = 1e-3;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Least-squares solution of two equations; the one with the smallest norm if it is not unique.
Coefficients solve(std::array<double, 2> x1, std::array<double, 2> x2, std::array<double, 2> y) {
  const double determinant = x1[0] * x2[1] - x2[0] * x1[1];
  const double norm = x1[0] * x1[0] + x1[1] * x1[1] + x2[0] * x2[0] + x2[1] * x2[1];
  if (norm == 0) return {};
  if (std::abs(determinant) > 2 * kEpsilon * norm) {
    return {(y[0] * x2[1] - x2[0] * y[1]) / determinant, (x1[0] * y[1] - y[0] * x1[1]) / determinant};
  }
  return {(x1[0] * y[0] + x1[1] * y[1]) / norm, (x2[0] * y[0] + x2[1] * y[1]) / norm};
}

// Modified Weiszfeld step, as sklearn's _modified_weiszfeld_step().
Coefficients weiszfeld_step(const std::vector<Coefficients>& points, Coefficients old) {
  Coefficients weighted;
  Coefficients direction;
  double weights = 0;
  bool at_point = false;
  for (const Coefficients& point : points) {
    const double x = point.first - old.first;
    const double y = point.second - old.second;
    const double distance = std::hypot(x, y);
    if (distance < kEpsilon) {
      at_point = true;
      continue;
    }
    direction.first += x / distance;
    direction.second += y / distance;
    weighted.first += point.first / distance;
    weighted.second += point.second / distance;
    weights += 1 / distance;
  }
  const double quotient = std::hypot(direction.first, direction.second);
  if (quotient <= kEpsilon) return old;
  const double stay = at_point ? std::min(1.0, 1 / quotient) : 0;
  return {(1 - stay) * weighted.first / weights + stay * old.first,
          (1 - stay) * weighted.second / weights + stay * old.second};
}

Coefficients spatial_median(const std::vector<Coefficients>& points) {
  Coefficients median;
  for (const Coefficients& point : points) {
    median.first += point.first / static_cast<double>(points.size());
    median.second += point.second / static_cast<double>(points.size());
  }
  for (int i = 0; i < kIterations; ++i) {
    const Coefficients next = weiszfeld_step(points, median);
    const double moved = std::hypot(next.first - median.first, next.second - median.second);
    median = next;
    if (moved < kTolerance) break;
  }
  return median;
}

double distance(const Columns& columns, size_t i, size_t j) {
  double sum = 0;
  for (const auto& column : columns) sum += (column[i] - column[j]) * (column[i] - column[j]);
  return std::sqrt(sum);
}

// The mean distance of each sample to all samples, and their mean, by which distances are centered.
struct Centre {
  std::vector<double> of_row;
  double of_all = 0;
};

Centre centre_of(const Columns& columns) {
  const size_t n = columns.front().size();
  Centre centre{.of_row = std::vector<double>(n), .of_all = 0};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) centre.of_row[i] += distance(columns, i, j) / static_cast<double>(n);
    centre.of_all += centre.of_row[i] / static_cast<double>(n);
  }
  return centre;
}

}  // namespace

Coefficients theil_sen(std::span<const double> first, std::span<const double> second, std::span<const double> both) {
  const auto n = std::ssize(first);
  std::vector<Coefficients> solutions;
  const auto add = [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a);
    const auto j = static_cast<size_t>(b);
    solutions.push_back(solve({first[i], first[j]}, {second[i], second[j]}, {both[i], both[j]}));
  };
  if (n * (n - 1) / 2 <= kMostPairs) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) add(i, j);
    }
  } else {
    SampleRandom random(/*seed=*/1000, 0);
    while (std::ssize(solutions) < kMostPairs) {
      const int64_t i = random.below(n);
      const int64_t j = random.below(n);
      if (i != j) add(i, j);
    }
  }
  return spatial_median(solutions);
}

double distance_correlation(const Columns& a, const Columns& b) {
  const size_t n = a.front().size();
  const Centre centre_a = centre_of(a);
  const Centre centre_b = centre_of(b);
  double covariance = 0;
  double variance_a = 0;
  double variance_b = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double x = distance(a, i, j) - centre_a.of_row[i] - centre_a.of_row[j] + centre_a.of_all;
      const double y = distance(b, i, j) - centre_b.of_row[i] - centre_b.of_row[j] + centre_b.of_all;
      covariance += x * y;
      variance_a += x * x;
      variance_b += y * y;
    }
  }
  const double scale = std::sqrt(variance_a * variance_b);
  return scale > 0 ? std::sqrt(std::max(covariance, 0.0) / scale) : 0;
}

InteractionScores score_interaction(std::span<const double> first, std::span<const double> second,
                                    std::span<const double> both) {
  const Coefficients c = theil_sen(first, second, both);
  std::vector<double> fitted(both.size());
  for (size_t i = 0; i < both.size(); ++i) fitted[i] = c.first * first[i] + c.second * second[i];
  const double dcor_first = distance_correlation({first}, {both});
  const double dcor_second = distance_correlation({second}, {both});
  return {{"c1", c.first},
          {"c2", c.second},
          {"mag", std::hypot(c.first, c.second)},
          {"dcor", distance_correlation({first, second}, {both})},
          {"dcor_singles", distance_correlation({first}, {second})},
          {"dcor_first", dcor_first},
          {"dcor_second", dcor_second},
          {"corr_fit", pearson(fitted, both)},
          {"dominance", std::abs(std::log10(c.first / c.second))},
          {"eq_contr", std::min(dcor_first, dcor_second) / std::max(dcor_first, dcor_second)}};
}

}  // namespace oarlock::gears

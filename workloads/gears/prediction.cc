#include "workloads/gears/prediction.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/csv.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/data/random.h"
#include "workloads/gears/evaluation.h"
#include "workloads/gears/gene_graphs.h"

namespace oarlock::gears {
namespace {

Result<void> check_query(const std::string& name, std::string_view key, const GearsData& data, size_t min_genes) {
  const NameList genes = genes_of(name);
  if (genes.size() < min_genes || genes.size() > 2) {
    return fail(ExitCode::kConfig,
                fmt::format("predict.{}: \"{}\" is not {}", key, name,
                            min_genes == 2 ? "a pair of genes such as AHR+FEV" : "a gene, or a pair such as AHR+FEV"));
  }
  for (const std::string& gene : genes) {
    if (data.perturbation(gene) >= 0) continue;
    return fail(ExitCode::kConfig,
                fmt::format("predict.{}: {} of \"{}\" is not among the {} genes that can be perturbed (data.gene2go, "
                            "data.gene_set_path)",
                            key, gene, name, data.perturbations.size()));
  }
  return {};
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

// Returns the indices of the genes that interactions are scored by.
Result<std::vector<size_t>> interaction_genes(const GearsPredictConfig& config, const GearsData& data) {
  NameList wanted = data.store.genes();
  if (!config.interaction_genes.empty()) {
    ASSIGN_OR_RETURN(NameList read, read_gene_list(config.interaction_genes));
    wanted = std::move(read);
  }
  const NameSet chosen = set_of(wanted);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < data.store.genes().size(); ++i) {
    if (chosen.contains(data.store.genes()[i])) numbers.push_back(i);
  }
  if (numbers.size() < 2) {
    return fail(ExitCode::kDataErr, fmt::format("{}: contains {} genes of the data, at least two are needed",
                                                config.interaction_genes, numbers.size()));
  }
  return numbers;
}

class Changes {
 public:
  Changes(const GearsData& data, const Queries& queries, const GroupMeans& means, std::vector<size_t> genes)
      : queries_(queries), means_(means), genes_(std::move(genes)), control_(data.store.means()[data.control()]) {}

  // Returns the change of the selected genes from the mean control cell by a query.
  std::vector<double> of(const std::string& query) const {
    const auto at =
        static_cast<size_t>(std::find(queries_.names.begin(), queries_.names.end(), query) - queries_.names.begin());
    std::vector<double> change;
    for (const size_t gene : genes_) {
      change.push_back(means_.mean[at][gene] - control_.const_data_ptr<double>()[gene]);
    }
    return change;
  }

 private:
  const Queries& queries_;
  const GroupMeans& means_;
  std::vector<size_t> genes_;
  at::Tensor control_;
};

Result<void> write_interactions(const GearsPredictConfig& config, const Changes& changes) {
  std::string text;
  for (const std::string& pair : config.interactions) {
    const NameList genes = genes_of(pair);
    const InteractionScores scores = score_interaction(changes.of(genes[0]), changes.of(genes[1]), changes.of(pair));
    if (text.empty()) {
      text = "interaction";
      for (const auto& [name, value] : scores) text += "," + name;
      text += "\n";
    }
    text += csv_field(pair);
    for (const auto& [name, value] : scores) text += fmt::format(",{}", value);
    text += "\n";
  }
  return write_file_atomically(config.interactions_file, text);
}

// Returns exp(-mean log variance), GEARS' uncertainty score; empty if the model predicts no variance.
std::vector<double> certainties(const EvalRows& rows) {
  std::vector<double> out;
  if (!rows.columns.contains("log_variance")) return out;
  for (const std::vector<double>& mean : means_of(rows, "log_variance").mean) out.push_back(std::exp(-mean.front()));
  return out;
}

}  // namespace

Result<Queries> make_queries(const GearsPredictConfig& config, const GearsData& data) {
  Queries queries;
  for (const std::string& name : config.perturbations) {
    RETURN_IF_ERROR(check_query(name, "perturbations", data, 1));
    add_name(queries.names, name);
  }
  for (const std::string& name : config.interactions) {
    RETURN_IF_ERROR(check_query(name, "interactions", data, 2));
    for (const std::string& gene : genes_of(name)) add_name(queries.names, gene);
    add_name(queries.names, name);
  }
  queries.perturbed = at::full({std::ssize(queries.names), 2}, -1, at::kLong);
  for (int64_t i = 0; i < std::ssize(queries.names); ++i) {
    const NameList genes = genes_of(queries.names[static_cast<size_t>(i)]);
    for (size_t k = 0; k < genes.size(); ++k) {
      queries.perturbed.select(0, i)[static_cast<int64_t>(k)] = data.perturbation(genes[k]);
    }
  }
  return queries;
}

Result<void> write_predictions(const GearsPredictConfig& config, const GearsData& data, const Queries& queries,
                               const EvalRows& rows) {
  const GroupMeans means = means_of(rows);
  if (!config.perturbations.empty()) {
    std::vector<std::string> names = queries.names;
    std::vector<std::vector<double>> mean = means.mean;
    std::vector<double> certainty = certainties(rows);
    const size_t requested = sorted_unique(config.perturbations).size();  // the others are for interactions
    names.resize(requested);
    mean.resize(requested);
    if (!certainty.empty()) certainty.resize(requested);
    RETURN_IF_ERROR(write_expression(config.file, names, data.store.genes(), mean, certainty));
  }
  if (config.interactions.empty()) return {};
  ASSIGN_OR_RETURN(std::vector<size_t> genes, interaction_genes(config, data));
  return write_interactions(config, Changes(data, queries, means, std::move(genes)));
}

namespace {

constexpr int64_t kMaxPairs = 100'000;
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
struct Center {
  std::vector<double> of_row;
  double of_all = 0;
};

Center center_of(const Columns& columns) {
  const size_t n = columns.front().size();
  Center center{.of_row = std::vector<double>(n), .of_all = 0};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) center.of_row[i] += distance(columns, i, j) / static_cast<double>(n);
    center.of_all += center.of_row[i] / static_cast<double>(n);
  }
  return center;
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
  if (n * (n - 1) / 2 <= kMaxPairs) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) add(i, j);
    }
  } else {
    SampleRandom random(/*seed=*/1000, 0);
    while (std::ssize(solutions) < kMaxPairs) {
      const int64_t i = random.below(n);
      const int64_t j = random.below(n);
      if (i != j) add(i, j);
    }
  }
  return spatial_median(solutions);
}

double distance_correlation(const Columns& a, const Columns& b) {
  const size_t n = a.front().size();
  const Center center_a = center_of(a);
  const Center center_b = center_of(b);
  double covariance = 0;
  double variance_a = 0;
  double variance_b = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double x = distance(a, i, j) - center_a.of_row[i] - center_a.of_row[j] + center_a.of_all;
      const double y = distance(b, i, j) - center_b.of_row[i] - center_b.of_row[j] + center_b.of_all;
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

// Metrics of predicted expression: compute_metrics(), and the metrics of deeper_analysis() and non_dropout_analysis()
// that GEARS reports (gears/inference.py). The baseline is the mean of the training perturbations, which published
// models do not always surpass (https://github.com/snap-stanford/GEARS/issues/82).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/engine/task.h"
#include "workloads/gears/data.h"

namespace oarlock::gears {

// Means over the cells of a condition, per gene.
struct ConditionMeans {
  std::span<const double> prediction;
  std::span<const double> truth;
  std::span<const double> control;  // of the control cells
};

struct ConditionScore {
  double mse = 0;
  double pearson = 0;
  double mse_de = 0;  // over the differentially expressed genes; 0 if there are none, as for ctrl
  double pearson_de = 0;
  double pearson_delta = 0;  // of the changes from the control cells, over all genes
};

ConditionScore score(const ConditionMeans& means, std::span<const int64_t> de);

struct NonDropoutScore {
  double frac_opposite_direction = 0;
  double frac_sigma_below_1 = 0;  // share of the varying genes that are predicted within a standard deviation
  double mse = 0;
};

// `genes` are the differentially expressed genes without dropouts, at least one. `deviation` has the standard deviation
// of each of them over the cells of the condition.
NonDropoutScore score_non_dropout(const ConditionMeans& means, std::span<const int64_t> genes,
                                  std::span<const double> deviation);

// Pearson's correlation; 0 if one of the two is constant.
double pearson(std::span<const double> a, std::span<const double> b);

// Mean predictions per group.
struct GroupMeans {
  std::vector<int64_t> groups;            // ascending
  std::vector<std::vector<double>> mean;  // [groups][genes]
};

// Computes the means from the rows of GroupedCells samples: `column` [samples, genes] has the sums over their cells;
// "cells" and "group" are [samples, 1].
GroupMeans means_of(const EvalRows& rows, const std::string& column = "sum");

// The scores of one condition.
struct ConditionResult {
  std::string condition;
  std::string subgroup;  // of the split; may be empty
  int64_t cells = 0;
  ConditionScore model;
  ConditionScore baseline;
  NonDropoutScore non_dropout;
};

class GearsEvaluation {
 public:
  // `data` must outlive the object.
  explicit GearsEvaluation(const GearsData& data);

  std::vector<ConditionResult> results(const GroupMeans& predictions, const Subgroups& subgroups) const;

 private:
  ConditionMeans means(std::span<const double> prediction, int64_t condition) const;
  NonDropoutScore non_dropout(const ConditionMeans& means, int64_t condition) const;

  const GearsData& data_;
  at::Tensor means_;              // of the store; owns the memory that spans refer to
  std::vector<double> baseline_;  // the mean over the training perturbations' means
};

// Returns the means over the conditions, as compute_metrics() does: mse, pearson, mse_de, pearson_de (the last two
// without ctrl), pearson_delta; frac_opposite_direction_top20_non_dropout, frac_sigma_below_1_non_dropout and
// mse_top20_de_non_dropout; baseline_mse ... of the baseline; with subgroups also SUBGROUP_mse ...
Metrics summarize(const std::vector<ConditionResult>& results);
// Returns the names of the metrics that summarize() can return, with the subgroups of every split.
std::vector<std::string> summary_names();

// Writes a CSV file with all scores, one line per condition. Fails with kCantCreate or kIoErr.
Result<void> write_results(const std::filesystem::path& csv, const std::vector<ConditionResult>& results);

// Writes a CSV file with one line per group: its name, its certainty if given, and the mean expression of each gene.
// Fails with kCantCreate or kIoErr.
Result<void> write_expression(const std::filesystem::path& csv, const std::vector<std::string>& names,
                              const std::vector<std::string>& genes, const std::vector<std::vector<double>>& mean,
                              const std::vector<double>& certainty = {});

}  // namespace oarlock::gears

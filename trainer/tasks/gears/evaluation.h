// From the predictions of an evaluation to metrics, beside those of a baseline: the mean of the training perturbations,
// which published models do not always beat (https://github.com/snap-stanford/GEARS/issues/82).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trainer/engine/eval_pass.h"
#include "trainer/tasks/gears/gears_data.h"
#include "trainer/tasks/gears/metrics.h"

namespace oarlock {

// Mean predictions by group, from the rows of GroupedCells samples: "sum" [samples, genes], the sums over their cells;
// "cells" and "group" [samples, 1].
struct GroupMeans {
  std::vector<int64_t> groups;            // ascending
  std::vector<std::vector<double>> mean;  // [groups][genes]
};
GroupMeans means_of(const EvalRows& rows, const std::string& column = "sum");

// What is reported of one condition.
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
  // `data` must outlive it.
  explicit GearsEvaluation(const GearsData& data);

  std::vector<ConditionResult> results(const GroupMeans& predictions, const Subgroups& subgroups) const;

 private:
  ConditionMeans means(std::span<const double> prediction, int64_t condition) const;
  NonDropoutScore non_dropout(const ConditionMeans& means, int64_t condition) const;

  const GearsData& data_;
  at::Tensor means_;              // of the store; its memory is what spans refer to
  std::vector<double> baseline_;  // the mean over the training perturbations' means
};

// Means over the conditions, as compute_metrics(): mse, pearson, mse_de, pearson_de (the last two without ctrl),
// pearson_delta; frac_opposite_direction_top20_non_dropout, frac_sigma_below_1_non_dropout and
// mse_top20_de_non_dropout; of the baseline baseline_mse ... With subgroups the same again as SUBGROUP_mse ...
Metrics summarize(const std::vector<ConditionResult>& results);

// A line per condition, with everything in it. kCantCreate, kIoErr.
Result<void> write_results(const std::filesystem::path& csv, const std::vector<ConditionResult>& results);

// A line per group: its name, its certainty where there are any, then the mean expression of each gene. kCantCreate,
// kIoErr.
Result<void> write_expression(const std::filesystem::path& csv, const std::vector<std::string>& names,
                              const std::vector<std::string>& genes, const std::vector<std::vector<double>>& mean,
                              const std::vector<double>& certainty = {});

}  // namespace oarlock

#include "trainer/tasks/gears/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/files.h"

namespace oarlock {
namespace {

// Running means by name.
class Means {
 public:
  void add(const std::string& name, double value) {
    sums_[name].first += value;
    sums_[name].second += 1;
  }
  Metrics metrics() const {
    Metrics out;
    for (const auto& [name, sum] : sums_) out[name] = sum.first / sum.second;
    return out;
  }

 private:
  std::map<std::string, std::pair<double, double>> sums_;
};

void add_score(Means& means, const std::string& prefix, const ConditionScore& score, bool is_control) {
  means.add(prefix + "mse", score.mse);
  means.add(prefix + "pearson", score.pearson);
  if (is_control) return;
  means.add(prefix + "mse_de", score.mse_de);
  means.add(prefix + "pearson_de", score.pearson_de);
  means.add(prefix + "pearson_delta", score.pearson_delta);
}

void add_non_dropout(Means& means, const std::string& prefix, const NonDropoutScore& score) {
  means.add(prefix + "frac_opposite_direction_top20_non_dropout", score.frac_opposite_direction);
  means.add(prefix + "frac_sigma_below_1_non_dropout", score.frac_sigma_below_1);
  means.add(prefix + "mse_top20_de_non_dropout", score.mse);
}

std::span<const double> row_of(const at::Tensor& matrix, int64_t row) {
  return {matrix.const_data_ptr<double>() + row * matrix.size(1), static_cast<size_t>(matrix.size(1))};
}

std::string subgroup_of(const Subgroups& subgroups, const std::string& condition) {
  for (const auto& [name, members] : subgroups) {
    if (contains(members, condition)) return name;
  }
  return "";
}

}  // namespace

GroupMeans means_of(const EvalRows& rows, const std::string& column) {
  const at::Tensor sums = rows.columns.at(column).contiguous();
  const at::Tensor cells = rows.columns.at("cells").contiguous();
  const at::Tensor groups = rows.columns.at("group").contiguous();
  std::map<int64_t, std::pair<std::vector<double>, double>> totals;
  for (int64_t i = 0; i < sums.size(0); ++i) {
    const std::span<const double> row = row_of(sums, i);
    auto& [sum, count] = totals[std::llround(groups.const_data_ptr<double>()[i])];
    sum.resize(row.size());
    for (size_t gene = 0; gene < row.size(); ++gene) sum[gene] += row[gene];
    count += cells.const_data_ptr<double>()[i];
  }
  GroupMeans out;
  for (auto& [group, total] : totals) {
    for (double& value : total.first) value /= total.second;
    out.groups.push_back(group);
    out.mean.push_back(std::move(total.first));
  }
  return out;
}

GearsEvaluation::GearsEvaluation(const GearsData& data)
    : data_(data), means_(data.store.means().contiguous()), baseline_(static_cast<size_t>(data.store.gene_count())) {
  double count = 0;
  for (const int64_t condition : data.train) {
    if (condition == data.control()) continue;
    const std::span<const double> own = row_of(means_, condition);
    for (size_t gene = 0; gene < own.size(); ++gene) baseline_[gene] += own[gene];
    ++count;
  }
  for (double& mean : baseline_) mean /= std::max(count, 1.0);
}

ConditionMeans GearsEvaluation::means(std::span<const double> prediction, int64_t condition) const {
  return {.prediction = prediction, .truth = row_of(means_, condition), .control = row_of(means_, data_.control())};
}

std::vector<ConditionResult> GearsEvaluation::results(const GroupMeans& predictions, const Subgroups& subgroups) const {
  std::vector<ConditionResult> results;
  for (size_t i = 0; i < predictions.groups.size(); ++i) {
    const int64_t number = predictions.groups[i];
    const CellCondition& condition = data_.store.conditions()[static_cast<size_t>(number)];
    const ConditionMeans own = means(predictions.mean[i], number);
    results.push_back({.condition = condition.name,
                       .subgroup = subgroup_of(subgroups, condition.name),
                       .cells = condition.cells,
                       .model = score(own, condition.de),
                       .baseline = score(means(baseline_, number), condition.de),
                       .non_dropout = non_dropout(own, number)});
  }
  return results;
}

// Standard deviations are taken from the cells: they are few, and of few genes.
NonDropoutScore GearsEvaluation::non_dropout(const ConditionMeans& means, int64_t condition) const {
  const std::vector<int64_t>& genes = data_.store.conditions()[static_cast<size_t>(condition)].non_dropout_de;
  if (genes.empty()) return {};
  std::vector<double> deviation(genes.size());
  std::vector<float> cell(static_cast<size_t>(data_.store.gene_count()));
  const std::span<const int64_t> cells = data_.store.cells_of(condition);
  for (const int64_t number : cells) {
    data_.store.expression(number, cell);
    for (size_t i = 0; i < genes.size(); ++i) {
      const auto gene = static_cast<size_t>(genes[i]);
      deviation[i] += std::pow(cell[gene] - means.truth[gene], 2);
    }
  }
  for (double& value : deviation) value = std::sqrt(value / static_cast<double>(cells.size()));
  return score_non_dropout(means, genes, deviation);
}

Metrics summarize(const std::vector<ConditionResult>& results) {
  Means means;
  for (const ConditionResult& result : results) {
    const bool is_control = result.condition == kControl;
    add_score(means, "", result.model, is_control);
    add_score(means, "baseline_", result.baseline, is_control);
    if (!is_control) add_non_dropout(means, "", result.non_dropout);
    if (result.subgroup.empty()) continue;
    add_score(means, result.subgroup + "_", result.model, is_control);
    add_score(means, result.subgroup + "_baseline_", result.baseline, is_control);
    add_non_dropout(means, result.subgroup + "_", result.non_dropout);
  }
  return means.metrics();
}

Result<void> write_results(const std::filesystem::path& csv, const std::vector<ConditionResult>& results) {
  std::string text =
      "condition,subgroup,cells,mse,pearson,mse_de,pearson_de,pearson_delta,baseline_mse,baseline_pearson,"
      "baseline_mse_de,baseline_pearson_de,baseline_pearson_delta,frac_opposite_direction_top20_non_dropout,"
      "frac_sigma_below_1_non_dropout,mse_top20_de_non_dropout\n";
  for (const ConditionResult& result : results) {
    text += fmt::format("{},{},{}", result.condition, result.subgroup, result.cells);
    for (const ConditionScore* score : {&result.model, &result.baseline}) {
      text += fmt::format(",{},{},{},{},{}", score->mse, score->pearson, score->mse_de, score->pearson_de,
                          score->pearson_delta);
    }
    const NonDropoutScore& rest = result.non_dropout;
    text += fmt::format(",{},{},{}\n", rest.frac_opposite_direction, rest.frac_sigma_below_1, rest.mse);
  }
  return write_file_atomically(csv, text);
}

Result<void> write_expression(const std::filesystem::path& csv, const std::vector<std::string>& names,
                              const std::vector<std::string>& genes, const std::vector<std::vector<double>>& mean,
                              const std::vector<double>& certainty) {
  std::string text = certainty.empty() ? "perturbation" : "perturbation,certainty";
  for (const std::string& gene : genes) text += "," + gene;
  text += "\n";
  for (size_t i = 0; i < names.size(); ++i) {
    text += names[i];
    if (!certainty.empty()) text += fmt::format(",{}", certainty[i]);
    for (const double value : mean[i]) text += fmt::format(",{}", value);
    text += "\n";
  }
  return write_file_atomically(csv, text);
}

}  // namespace oarlock

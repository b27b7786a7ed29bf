#include "workloads/gears/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/csv.h"
#include "common/files.h"

namespace oarlock::gears {

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

namespace {

// Means by name.
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
    if (std::ranges::find(members, condition) != members.end()) return name;
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

// Computes standard deviations from the cells, because they are needed for few cells and few genes only.
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

std::vector<std::string> summary_names() {
  std::vector<ConditionResult> results;
  for (const char* subgroup : kSubgroups) results.emplace_back().subgroup = subgroup;
  std::vector<std::string> names;
  for (const auto& [name, value] : summarize(results)) names.push_back(name);
  return names;
}

Result<void> write_results(const std::filesystem::path& csv, const std::vector<ConditionResult>& results) {
  std::string text =
      "condition,subgroup,cells,mse,pearson,mse_de,pearson_de,pearson_delta,baseline_mse,baseline_pearson,"
      "baseline_mse_de,baseline_pearson_de,baseline_pearson_delta,frac_opposite_direction_top20_non_dropout,"
      "frac_sigma_below_1_non_dropout,mse_top20_de_non_dropout\n";
  for (const ConditionResult& result : results) {
    text += fmt::format("{},{},{}", csv_field(result.condition), result.subgroup, result.cells);
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
  for (const std::string& gene : genes) text += "," + csv_field(gene);
  text += "\n";
  for (size_t i = 0; i < names.size(); ++i) {
    text += csv_field(names[i]);
    if (!certainty.empty()) text += fmt::format(",{}", certainty[i]);
    for (const double value : mean[i]) text += fmt::format(",{}", value);
    text += "\n";
  }
  return write_file_atomically(csv, text);
}

}  // namespace oarlock::gears

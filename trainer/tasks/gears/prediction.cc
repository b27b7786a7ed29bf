#include "trainer/tasks/gears/prediction.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/tasks/gears/evaluation.h"
#include "trainer/tasks/gears/gene_graphs.h"
#include "trainer/tasks/gears/genetic_interaction.h"

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
  if (!contains(names, name)) names.push_back(name);
}

// Returns the indices of the genes that interactions are scored by.
Result<std::vector<size_t>> interaction_genes(const GearsPredictConfig& config, const GearsData& data) {
  NameList wanted = data.store.genes();
  if (!config.interaction_genes.empty()) {
    ASSIGN_OR_RETURN(NameList read, read_gene_list(config.interaction_genes));
    wanted = std::move(read);
  }
  std::vector<size_t> numbers;
  for (size_t i = 0; i < data.store.genes().size(); ++i) {
    if (contains(wanted, data.store.genes()[i])) numbers.push_back(i);
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
    text += pair;
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

}  // namespace oarlock::gears

#include "workloads/gears/data.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "trainer/data/random.h"
#include "workloads/gears/conversion.h"
#include "workloads/gears/gene_graphs.h"

namespace oarlock::gears {

namespace {

namespace fs = std::filesystem;

using Entry = std::shared_ptr<const CacheEntry>;

constexpr int kCellsVersion = 2;    // of the files that convert_anndata() writes
constexpr int kNetworkVersion = 1;  // of the edges that coexpression_edges() returns
constexpr char kNetwork[] = "co_expression_network.csv";
constexpr int64_t kMaxPerturbed = 2;  // genes per condition

Result<Entry> open_entry(const GearsDataConfig& config, std::string kind, int version, std::string options,
                         const Logger& log, const CacheFill& fill) {
  const CacheKey key{.directory = cache_directory(config.path, config.cache),
                     .sources = {config.path},
                     .kind = std::move(kind),
                     .version = version,
                     .options = std::move(options)};
  return open_regular_file(config.path)
      .and_then([&](const FileDescriptor&) { return open_cache_entry(key, log, fill); })
      .map([](CacheEntry entry) { return std::make_shared<const CacheEntry>(std::move(entry)); })
      .map_error([](Error error) {
        if (error.code == ExitCode::kNoInput) error.message += " (data.path)";
        return error;
      });
}

Result<Entry> open_converted(const GearsDataConfig& config, const Logger& log) {
  return open_entry(config, "cells", kCellsVersion, "", log,
                    [&](const fs::path& part) { return convert_anndata(config.path, part, log); });
}

Result<Entry> open_network(const GearsDataConfig& config, const CoexpressionOptions& options, const GearsData& data,
                           const Logger& log) {
  const std::string key =
      fmt::format("{} {} {} {}", kCellsVersion, options.threshold, options.similar, fmt::join(data.split.train, " "));
  return open_entry(config, "network", kNetworkVersion, key, log, [&](const fs::path& part) -> Result<void> {
    const auto genes = static_cast<uint64_t>(data.store.gene_count());
    RETURN_IF_ERROR(expect_memory(genes * genes, kCoexpressionBytes, config.path + ": the co-expression of its genes"));
    const std::vector<NamedEdge> edges = coexpression_edges(data.store, data.train, options);
    log.info("co-expression computed", {{"edges", edges.size()}});
    return write_edges(part / kNetwork, edges);
  });
}

Result<std::vector<std::string>> candidate_genes(const GearsDataConfig& config, const CellStore& store) {
  if (!config.gene_set_path.empty()) return read_gene_list(config.gene_set_path);
  std::vector<std::string> genes = store.genes();
  for (const CellCondition& condition : store.conditions()) {
    for (std::string& gene : genes_of(condition.name)) genes.push_back(std::move(gene));
  }
  return genes;
}

struct Ontology {
  std::vector<std::string> candidates;  // sorted: the perturbations, and the genes without terms
  std::vector<std::string> perturbations;
  std::vector<NamedEdge> edges;
};

// Without terms and graph, every gene can be perturbed, and the graph has no edges.
Result<Ontology> read_ontology(const GearsDataConfig& config, int64_t similar, const CellStore& store) {
  ASSIGN_OR_RETURN(std::vector<std::string> genes, candidate_genes(config, store));
  Ontology ontology{.candidates = sorted_unique(std::move(genes)), .perturbations = {}, .edges = {}};
  ontology.perturbations = ontology.candidates;
  std::optional<GeneTerms> terms;
  if (!config.gene2go.empty()) {
    ASSIGN_OR_RETURN(GeneTerms read, read_gene2go(config.gene2go));
    terms = std::move(read);
    ontology.perturbations =
        filter(ontology.perturbations, [&](const std::string& gene) { return terms->contains(gene); });
  }
  if (!config.go_graph.empty()) {
    ASSIGN_OR_RETURN(std::vector<NamedEdge> edges, read_edges(config.go_graph));
    ontology.edges = strongest_of_targets(std::move(edges), similar + 1);
  } else if (terms) {
    ontology.edges = ontology_edges(*terms, ontology.perturbations, similar);
  }
  if (ontology.perturbations.empty()) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: contains none of the genes that could be perturbed; use a file for the genes of {}",
                            config.gene2go.empty() ? config.path : config.gene2go, config.path));
  }
  return ontology;
}

// Returns why a condition cannot be used; empty if it can.
std::string obstacle_of(const NameList& genes, const Ontology& ontology, const GearsDataConfig& config) {
  if (std::ssize(genes) > kMaxPerturbed) return fmt::format("more than {} perturbed genes", kMaxPerturbed);
  const auto lacks_one = [&](const NameList& sorted) {
    return !std::all_of(genes.begin(), genes.end(), [&](const std::string& gene) {
      return std::binary_search(sorted.begin(), sorted.end(), gene);
    });
  };
  if (lacks_one(ontology.candidates))
    return fmt::format("a gene is not in {} (data.gene_set_path)", config.gene_set_path);
  if (lacks_one(ontology.perturbations)) return fmt::format("a gene is not in {} (data.gene2go)", config.gene2go);
  return "";
}

std::vector<int64_t> indices_of(const CellStore& store, const NameList& conditions) {
  std::vector<int64_t> numbers;
  for (const std::string& name : conditions) numbers.push_back(store.index_of(name));
  return numbers;
}

// Returns "3 left out: more than 2 perturbed genes; ..." for a message.
std::string count_left_out(const std::map<std::string, NameList>& left_out) {
  std::vector<std::string> parts;
  for (const auto& [reason, conditions] : left_out)
    parts.push_back(fmt::format("{} left out: {}", conditions.size(), reason));
  return parts.empty() ? "none left out" : fmt::format("{}", fmt::join(parts, "; "));
}

// Opens everything except for the co-expression.
Result<GearsData> open_cells(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log) {
  ASSIGN_OR_RETURN(Entry entry, open_converted(config, log));
  ASSIGN_OR_RETURN(CellStore store, CellStore::open(entry->path()));
  ASSIGN_OR_RETURN(Ontology ontology, read_ontology(config, graphs.num_similar_genes_go_graph, store));
  GearsData data{.store = std::move(store), .perturbations = ontology.perturbations};
  const int64_t conditions = std::ssize(data.store.conditions());
  data.perturbed = at::full({conditions, kMaxPerturbed}, -1, at::kLong);
  NameList known;
  for (int64_t i = 0; i < conditions; ++i) {
    const std::string& name = data.store.conditions()[static_cast<size_t>(i)].name;
    const NameList genes = genes_of(name);
    if (const std::string obstacle = obstacle_of(genes, ontology, config); !obstacle.empty()) {
      data.left_out[obstacle].push_back(name);
      continue;
    }
    known.push_back(name);
    for (int64_t k = 0; k < std::ssize(genes); ++k)
      data.perturbed.select(0, i)[k] = data.perturbation(genes[static_cast<size_t>(k)]);
  }
  ASSIGN_OR_RETURN(Split split, make_split(config.split, known));
  data.split = std::move(split);
  if (config.split.kind == SplitKind::kNoSplit) data.split.train = data.split.val = data.split.test;
  data.train = indices_of(data.store, data.split.train);
  data.val = indices_of(data.store, data.split.val);
  data.test = indices_of(data.store, data.split.test);
  if (data.train.empty() || data.val.empty()) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: of {} conditions ({}) the split {} leaves {} to train on and {} to validate with",
                            config.path, conditions, count_left_out(data.left_out), name_of(config.split.kind),
                            data.train.size(), data.val.size()));
  }
  data.entry = std::move(entry);
  data.graphs.genes = data.store.gene_count();
  data.graphs.perturbations = std::ssize(data.perturbations);
  data.graphs.ontology = index_edges(ontology.edges, data.perturbations);
  return data;
}

}  // namespace

int64_t GearsData::perturbation(const std::string& gene) const {
  const auto at = std::lower_bound(perturbations.begin(), perturbations.end(), gene);
  return at == perturbations.end() || *at != gene ? -1 : at - perturbations.begin();
}

Result<void> prepare_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log) {
  ASSIGN_OR_RETURN(const GearsData data, open_cells(config, graphs, log));
  for (const auto& [reason, conditions] : data.left_out) {
    log.warn("these perturbations are left out",
             {{"reason", reason}, {"conditions", fmt::format("{}", fmt::join(conditions, " "))}});
  }
  log.info("conditions split", {{"split", name_of(config.split.kind)},
                                {"train", data.train.size()},
                                {"val", data.val.size()},
                                {"test", data.test.size()}});
  if (!config.coexpress_graph.empty()) return {};
  return open_network(config, graphs.coexpression, data, log).map([](const Entry&) {});
}

Result<GearsData> open_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log) {
  Result<GearsData> data = open_cells(config, graphs, log);
  if (!data) return data;
  Entry network;
  if (config.coexpress_graph.empty()) {
    ASSIGN_OR_RETURN(network, open_network(config, graphs.coexpression, *data, log));
  }
  ASSIGN_OR_RETURN(const std::vector<NamedEdge> edges,
                   read_edges(network ? network->path() / kNetwork : fs::path(config.coexpress_graph)));
  data->graphs.coexpression = index_edges(edges, data->store.genes());
  return data;
}

namespace {

constexpr uint64_t kQueryStream = 0x71756572;  // separate from the streams of cells

void fill_row(const CellStore& store, int64_t cell, at::Tensor& matrix, int64_t row) {
  const auto genes = static_cast<size_t>(store.gene_count());
  store.expression(cell, {matrix.mutable_data_ptr<float>() + row * store.gene_count(), genes});
}

std::vector<CellGroup> chunks(int64_t group, const std::vector<int64_t>& controls, int64_t max_cells) {
  std::vector<CellGroup> out;
  for (auto at = controls.begin(); at != controls.end();) {
    const auto end = at + std::min<std::ptrdiff_t>(max_cells, controls.end() - at);
    out.push_back({.group = group, .controls = {at, end}});
    at = end;
  }
  return out;
}

}  // namespace

int64_t matched_control(const GearsData& data, int64_t seed, int64_t cell) {
  if (data.store.condition_of(cell) == data.control()) return cell;
  const std::span<const int64_t> controls = data.store.cells_of(data.control());
  SampleRandom random(static_cast<uint64_t>(seed), cell);
  return controls[static_cast<size_t>(random.below(std::ssize(controls)))];
}

TrainingCells::TrainingCells(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed)
    : data_(data), seed_(seed) {
  for (const int64_t condition : conditions) {
    const std::span<const int64_t> own = data.store.cells_of(condition);
    cells_.insert(cells_.end(), own.begin(), own.end());
  }
}

void TrainingCells::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  const int64_t n = std::ssize(indices);
  at::Tensor& x = batch.allocate("x", {n, data_.store.gene_count()}, at::kFloat);
  at::Tensor& y = batch.allocate("y", {n, data_.store.gene_count()}, at::kFloat);
  at::Tensor& condition = batch.allocate("condition", {n}, at::kLong);
  at::Tensor& perturbed = batch.allocate("perturbed", {n, data_.perturbed.size(1)}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t cell = cells_[static_cast<size_t>(indices[static_cast<size_t>(i)])];
    fill_row(data_.store, matched_control(data_, seed_, cell), x, i);
    fill_row(data_.store, cell, y, i);
    const int64_t number = data_.store.condition_of(cell);
    condition.mutable_data_ptr<int64_t>()[i] = number;
    perturbed.select(0, i).copy_(data_.perturbed.select(0, number));
  }
}

void GroupedCells::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  const int64_t n = std::ssize(indices);
  at::Tensor& begin = batch.allocate("begin", {n + 1}, at::kLong);
  at::Tensor& group = batch.allocate("group", {n}, at::kLong);
  at::Tensor& perturbed = batch.allocate("perturbed", {n, perturbed_.size(1)}, at::kLong);
  auto* ends = begin.mutable_data_ptr<int64_t>();
  ends[0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const CellGroup& sample = samples_[static_cast<size_t>(indices[static_cast<size_t>(i)])];
    ends[i + 1] = ends[i] + std::ssize(sample.controls);
    group.mutable_data_ptr<int64_t>()[i] = sample.group;
    perturbed.select(0, i).copy_(perturbed_.select(0, sample.group));
  }
  at::Tensor& x = batch.allocate("x", {ends[n], store_.gene_count()}, at::kFloat);
  int64_t row = 0;
  for (const int64_t index : indices) {
    for (const int64_t cell : samples_[static_cast<size_t>(index)].controls) fill_row(store_, cell, x, row++);
  }
}

std::vector<CellGroup> groups_of_conditions(const GearsData& data, const std::vector<int64_t>& conditions, int64_t seed,
                                            int64_t max_cells) {
  std::vector<CellGroup> groups;
  for (const int64_t condition : conditions) {
    std::vector<int64_t> controls;
    for (const int64_t cell : data.store.cells_of(condition)) controls.push_back(matched_control(data, seed, cell));
    const std::vector<CellGroup> own = chunks(condition, controls, max_cells);
    groups.insert(groups.end(), own.begin(), own.end());
  }
  return groups;
}

std::vector<CellGroup> groups_of_queries(const GearsData& data, int64_t queries, int64_t controls, int64_t seed,
                                         int64_t max_cells) {
  const std::span<const int64_t> all = data.store.cells_of(data.control());
  SampleRandom random(mix_seed({static_cast<uint64_t>(seed), kQueryStream}), 0);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < controls; ++i) drawn.push_back(all[static_cast<size_t>(random.below(std::ssize(all)))]);
  std::vector<CellGroup> groups;
  for (int64_t query = 0; query < queries; ++query) {
    const std::vector<CellGroup> own = chunks(query, drawn, max_cells);
    groups.insert(groups.end(), own.begin(), own.end());
  }
  return groups;
}

}  // namespace oarlock::gears

#include "trainer/tasks/gears/gears_data.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "trainer/data/derived_folder.h"
#include "trainer/tasks/gears/data/conversion.h"
#include "trainer/tasks/gears/graphs/ontology.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of what convert_anndata() writes
constexpr char kNetwork[] = "co_expression_network.csv";
constexpr int64_t kMostPerturbed = 2;  // genes of a condition

std::string hash_of(const std::string& text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

Result<fs::path> converted_folder(const GearsDataConfig& config) {
  struct stat file{};
  if (::stat(config.path.c_str(), &file) != 0) {
    return fail_errno(errno, fmt::format("{}: cannot be opened (data.path)", config.path));
  }
  if (!S_ISREG(file.st_mode)) return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", config.path));
  const fs::path path = config.path;
  const fs::path parent = config.cache.empty() ? path.parent_path() : fs::path(config.cache);
  return parent / (path.filename().string() + ".oarlock") /
         hash_of(fmt::format("{} {} {}.{}", kFormat, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec));
}

Result<fs::path> network_folder(const GearsDataConfig& config, const CoexpressionOptions& options, const Split& split) {
  return converted_folder(config).map([&](const fs::path& converted) {
    const std::string key = fmt::format("{} {} {}", options.threshold, options.similar, fmt::join(split.train, " "));
    return fs::path(converted.string() + "-" + hash_of(key));
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
  std::vector<std::string> perturbations;
  std::vector<NamedEdge> edges;
};

// Without terms and graph every gene can be perturbed, and knows of no other.
Result<Ontology> read_ontology(const GearsDataConfig& config, int64_t similar, const CellStore& store) {
  Result<std::vector<std::string>> genes = candidate_genes(config, store);
  if (!genes) return tl::make_unexpected(genes.error());
  Ontology ontology{.perturbations = sorted_unique(std::move(*genes)), .edges = {}};
  std::optional<GeneTerms> terms;
  if (!config.gene2go.empty()) {
    Result<GeneTerms> read = read_gene2go(config.gene2go);
    if (!read) return tl::make_unexpected(read.error());
    terms = std::move(*read);
    ontology.perturbations =
        where(ontology.perturbations, [&](const std::string& gene) { return terms->contains(gene); });
  }
  if (!config.go_graph.empty()) {
    Result<std::vector<NamedEdge>> edges = read_edges(config.go_graph);
    if (!edges) return tl::make_unexpected(edges.error());
    ontology.edges = strongest_of_targets(std::move(*edges), similar + 1);
  } else if (terms) {
    ontology.edges = ontology_edges(*terms, ontology.perturbations, similar);
  }
  return ontology;
}

// Numbers of a condition's genes; nothing where one cannot be perturbed, or there are too many.
std::optional<std::vector<int64_t>> numbers_of(const std::string& condition, const std::vector<std::string>& sorted) {
  std::vector<int64_t> numbers;
  for (const std::string& gene : genes_of(condition)) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), gene);
    if (at == sorted.end() || *at != gene) return std::nullopt;
    numbers.push_back(at - sorted.begin());
  }
  if (std::ssize(numbers) > kMostPerturbed) return std::nullopt;
  return numbers;
}

std::vector<int64_t> numbers_of(const CellStore& store, const NameList& conditions) {
  std::vector<int64_t> numbers;
  for (const std::string& name : conditions) numbers.push_back(store.number_of(name));
  return numbers;
}

// Everything but the co-expression.
Result<GearsData> open_cells(const GearsDataConfig& config, const GearsGraphConfig& graphs) {
  const Result<fs::path> folder = converted_folder(config);
  if (!folder) return tl::make_unexpected(folder.error());
  Result<CellStore> store = CellStore::open(*folder);
  if (!store) return tl::make_unexpected(store.error());
  Result<Ontology> ontology = read_ontology(config, graphs.num_similar_genes_go_graph, *store);
  if (!ontology) return tl::make_unexpected(ontology.error());
  GearsData data{.store = std::move(*store), .perturbations = std::move(ontology->perturbations)};
  const int64_t conditions = std::ssize(data.store.conditions());
  data.perturbed = at::full({conditions, kMostPerturbed}, -1, at::kLong);
  NameList known;
  for (int64_t i = 0; i < conditions; ++i) {
    const std::string& name = data.store.conditions()[static_cast<size_t>(i)].name;
    const auto numbers = numbers_of(name, data.perturbations);
    (numbers ? known : data.left_out).push_back(name);
    for (int64_t k = 0; numbers && k < std::ssize(*numbers); ++k) {
      data.perturbed.select(0, i)[k] = (*numbers)[static_cast<size_t>(k)];
    }
  }
  Result<Split> split = make_split(config.split, known);
  if (!split) return tl::make_unexpected(split.error());
  data.split = std::move(*split);
  if (config.split.kind == SplitKind::kNoSplit) data.split.train = data.split.val = data.split.test;
  data.train = numbers_of(data.store, data.split.train);
  data.val = numbers_of(data.store, data.split.val);
  data.test = numbers_of(data.store, data.split.test);
  if (data.train.empty() || data.val.empty()) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: of {} conditions ({} left out, as their genes are not in the ontology) the split {} "
                            "leaves {} to train on and {} to validate with",
                            config.path, conditions, data.left_out.size(), name_of(config.split.kind),
                            data.train.size(), data.val.size()));
  }
  data.graphs.genes = data.store.gene_count();
  data.graphs.perturbations = std::ssize(data.perturbations);
  data.graphs.ontology = numbered_edges(ontology->edges, data.perturbations);
  return data;
}

}  // namespace

void describe(GearsDataConfig& config, Fields& fields) {
  fields.field("path", config.path, "AnnData file (.h5ad) with obs/condition, as GEARS' perturb_processed.h5ad");
  fields.require("path");
  fields.field("cache", config.cache, "folder for what is made of the file; empty: that of the file");
  describe(config.split, fields);
  fields.field("gene2go", config.gene2go, R"(terms of the gene ontology, JSON {"GENE": ["GO:...", ...], ...})");
  fields.field("go_graph", config.go_graph, "CSV source,target,importance instead of the graph made of gene2go");
  fields.field("gene_set_path", config.gene_set_path,
               "genes that can be perturbed, one per line; empty: those of the data");
  fields.field("coexpress_graph", config.coexpress_graph,
               "CSV source,target,importance instead of the co-expression of the training cells");
  fields.field("test_batch_size", config.test_batch_size, at_least(1), "cells at a time in evaluation and prediction");
}

void describe(GearsGraphConfig& config, Fields& fields) {
  fields.field("num_similar_genes_go_graph", config.num_similar_genes_go_graph, at_least(0),
               "most similar genes by the ontology");
  fields.field("num_similar_genes_co_express_graph", config.coexpression.similar, at_least(0),
               "most co-expressed genes");
  fields.field("coexpress_threshold", config.coexpression.threshold, from_to(0, 1),
               "correlation above which genes are co-expressed");
}

int64_t GearsData::perturbation(const std::string& gene) const {
  const auto at = std::lower_bound(perturbations.begin(), perturbations.end(), gene);
  return at == perturbations.end() || *at != gene ? -1 : at - perturbations.begin();
}

Result<void> prepare_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log) {
  const Result<fs::path> folder = converted_folder(config);
  if (!folder) return tl::make_unexpected(folder.error());
  const Result<void> converted =
      make_folder_once(*folder, [&](const fs::path& part) { return convert_anndata(config.path, part, log); });
  if (!converted) return converted;
  const Result<GearsData> data = open_cells(config, graphs);
  if (!data) return tl::make_unexpected(data.error());
  if (!data->left_out.empty()) {
    log.warn("these perturbations are not in the gene ontology and are left out",
             {{"conditions", fmt::format("{}", fmt::join(data->left_out, " "))}});
  }
  log.info("conditions split", {{"split", name_of(config.split.kind)},
                                {"train", data->train.size()},
                                {"val", data->val.size()},
                                {"test", data->test.size()}});
  if (!config.coexpress_graph.empty()) return {};
  const Result<fs::path> network = network_folder(config, graphs.coexpression, data->split);
  if (!network) return tl::make_unexpected(network.error());
  return make_folder_once(*network, [&](const fs::path& part) {
    const std::vector<NamedEdge> edges = coexpression_edges(data->store, data->train, graphs.coexpression);
    log.info("co-expression computed", {{"edges", edges.size()}});
    return write_edges(part / kNetwork, edges);
  });
}

Result<GearsData> open_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs) {
  Result<GearsData> data = open_cells(config, graphs);
  if (!data) return data;
  fs::path csv = config.coexpress_graph;
  if (csv.empty()) {
    const Result<fs::path> network = network_folder(config, graphs.coexpression, data->split);
    if (!network) return tl::make_unexpected(network.error());
    csv = *network / kNetwork;
  }
  const Result<std::vector<NamedEdge>> edges = read_edges(csv);
  if (!edges) return tl::make_unexpected(edges.error());
  data->graphs.coexpression = numbered_edges(*edges, data->store.genes());
  return data;
}

}  // namespace oarlock

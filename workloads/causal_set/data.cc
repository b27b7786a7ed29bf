#include "workloads/causal_set/data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>

#include "common/status_macros.h"
#include "common/work_progress.h"
#include "trainer/data/cache_directory.h"
#include "trainer/data/graph_archive.h"
#include "workloads/causal_set/array_store.h"
#include "workloads/causal_set/sample_reader.h"

namespace oarlock::causal_set {

namespace {

namespace fs = std::filesystem;
using Stores = std::vector<std::unique_ptr<ArrayStore>>;

constexpr int kVersion = 1;  // of the files that convert() writes
constexpr int64_t kProgressEvery = 10'000;

Result<Stores> open_stores(const CausalSetDataConfig& config) {
  Stores stores;
  for (const std::string& path : config.paths) {
    Result<std::unique_ptr<ArrayStore>> store = open_store(path, config.missing_chunks);
    if (!store) {
      store.error().message += " (data.paths)";
      return tl::make_unexpected(store.error());
    }
    stores.push_back(std::move(*store));
  }
  return stores;
}

CacheKey key_of(const CausalSetDataConfig& config, std::span<const TargetSpec> targets, const Stores& stores) {
  std::vector<std::string> names = {"link_matrix", "adjacency_matrix", "cset_size", "num_samples"};
  names.insert(names.end(), config.node_features.begin(), config.node_features.end());
  names.insert(names.end(), config.graph_features.begin(), config.graph_features.end());
  std::string of_targets;
  for (const TargetSpec& target : targets) {
    names.push_back(target.array);
    of_targets += fmt::format("{} {} {};", target.array, target.width, fmt::join(target.classes, ","));
  }
  CacheKey key{
      .directory = cache_directory(config.paths.front(), config.cache),
      .sources = {},
      .kind = "graphs",
      .version = kVersion,
      .options = fmt::format("{} {} {} [{}] [{}] [{}]", static_cast<int>(config.edges), static_cast<int>(config.axes),
                             static_cast<int>(config.missing_chunks), fmt::join(config.node_features, ","),
                             fmt::join(config.graph_features, ","), of_targets)};
  for (const auto& store : stores) {
    const std::vector<fs::path> sources = store->sources(names);
    key.sources.insert(key.sources.end(), sources.begin(), sources.end());
    key.options += fmt::format(" {}", sources.size());
  }
  return key;
}

std::vector<GraphColumn> columns_of(const CausalSetDataConfig& config, const SampleWidths& widths) {
  using Of = GraphColumn::Of;
  const auto features = static_cast<int64_t>(config.node_features.size());
  std::vector<GraphColumn> columns = {
      {.of = Of::kNodes, .name = "x", .type = at::kFloat, .row = {features}},
      {.of = Of::kGraphs, .name = "targets", .type = at::kDouble, .row = {widths.targets}},
  };
  if (widths.graph_features > 0)
    columns.push_back(
        {.of = Of::kGraphs, .name = "graph_features", .type = at::kFloat, .row = {widths.graph_features}});
  return columns;
}

Result<void> add(const CausalSample& sample, GraphArchiveWriter& writer) {
  std::vector<int64_t> sources;
  std::vector<int64_t> destinations;
  for (const auto& [from, to] : sample.edges) {
    sources.push_back(from);
    destinations.push_back(to);
  }
  GraphRecord record{.nodes = sample.size, .sources = sources, .destinations = destinations, .columns = {}};
  record.columns = {std::as_bytes(std::span(sample.node_features)), std::as_bytes(std::span(sample.targets))};
  if (!sample.graph_features.empty()) record.columns.push_back(std::as_bytes(std::span(sample.graph_features)));
  return writer.add(record);
}

Result<void> convert_store(SampleReader& reader, GraphArchiveWriter& writer, const std::string& path,
                           const Logger& log) {
  for (int64_t i = 0; i < reader.size(); ++i) {
    ASSIGN_OR_RETURN(const CausalSample sample, reader.sample(i));
    RETURN_IF_ERROR(add(sample, writer));
    report_work(LongWork::kPrepareData, i + 1, reader.size());
    if ((i + 1) % kProgressEvery == 0)
      log.info("converting causal sets", {{"store", path}, {"samples", i + 1}, {"of", reader.size()}});
  }
  return {};
}

Result<void> convert(const Stores& stores, const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                     const fs::path& directory, const Logger& log) {
  std::optional<GraphArchiveWriter> writer;
  SampleWidths widths;
  for (const auto& store : stores) {
    ASSIGN_OR_RETURN(SampleReader reader, SampleReader::open(*store, config, targets));
    if (!writer) {
      widths = reader.widths();
      ASSIGN_OR_RETURN(GraphArchiveWriter created, GraphArchiveWriter::create(directory, columns_of(config, widths)));
      writer.emplace(std::move(created));
    }
    if (reader.widths() != widths)
      return fail(ExitCode::kDataErr, fmt::format("{}: the widths of graph features or targets differ from those of {}",
                                                  store->path().string(), stores.front()->path().string()));
    RETURN_IF_ERROR(convert_store(reader, *writer, store->path().string(), log));
  }
  return writer->finish().map([&] {
    log.info("causal sets converted", {{"to", directory.parent_path().string()},
                                       {"samples", writer->graphs()},
                                       {"elements", writer->nodes()},
                                       {"edges", writer->edges()}});
  });
}

}  // namespace

void CausalSets::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  auto* sample =
      batch.allocate("sample", {static_cast<int64_t>(indices.size())}, at::kLong).mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) *sample++ = samples_.at(static_cast<size_t>(index));
  const at::Tensor& samples = batch["sample"];
  graphs_->collate({samples.const_data_ptr<int64_t>(), indices.size()}, batch);
}

Result<CausalSetSplits> open_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                                         const Logger& log) {
  ASSIGN_OR_RETURN(const Stores stores, open_stores(config));
  ASSIGN_OR_RETURN(CacheEntry opened, open_cache_entry(key_of(config, targets, stores), log, [&](const fs::path& part) {
                     return convert(stores, config, targets, part, log);
                   }));
  const auto entry = std::make_shared<const CacheEntry>(std::move(opened));
  ASSIGN_OR_RETURN(GraphCollation graphs, open_graphs(entry->path()));
  const auto shared = std::make_shared<const GraphCollation>(std::move(graphs));
  SplitIndices split = split_samples(shared->size(), config.split);
  if (split.train.empty() || split.validation.empty())
    return fail(
        ExitCode::kDataErr,
        fmt::format("data.split: of {} samples, {} are for training and {} for validation; neither may be empty",
                    shared->size(), split.train.size(), split.validation.size()));
  return CausalSetSplits{
      {shared, std::move(split.train)}, {shared, std::move(split.validation)}, {shared, std::move(split.test)}, entry};
}

Result<void> prepare_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                                 const Logger& log) {
  return open_causal_sets(config, targets, log).map([&](const CausalSetSplits& splits) {
    log.info(
        "samples",
        {{"training", splits.train.size()}, {"validation", splits.validation.size()}, {"test", splits.test.size()}});
  });
}

SplitIndices split_samples(int64_t samples, const SplitConfig& config) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(config.seed));
  const at::Tensor order = at::randperm(samples, generator, at::TensorOptions().dtype(at::kLong));
  const auto* begin = order.const_data_ptr<int64_t>();
  const auto share = [&](double part) {
    constexpr double kRounding = 1e-9;  // 0.1 * 30 is 3
    return static_cast<int64_t>(std::floor(part * static_cast<double>(samples) + kRounding));
  };
  const int64_t train = share(config.train);
  const int64_t validation = std::min(share(config.validation), samples - train);
  return {{begin, begin + train},
          {begin + train, begin + train + validation},
          {begin + train + validation, begin + samples}};
}

}  // namespace oarlock::causal_set

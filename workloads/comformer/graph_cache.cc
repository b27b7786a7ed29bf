#include "workloads/comformer/graph_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "common/cpu.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/work_progress.h"
#include "trainer/data/fingerprint.h"
#include "trainer/data/graph_archive.h"
#include "trainer/data/index_slice.h"
#include "workloads/comformer/crystal_graph.h"
#include "workloads/comformer/data.h"
#include "workloads/comformer/structures.h"
#include "workloads/formats/crystal.h"

namespace oarlock::comformer {

namespace {

constexpr size_t kChunk = 512;                     // structures in memory at a time, at most
constexpr size_t kChunkBytes = size_t{256} << 20;  // size of their edges after which no further structure is begun
constexpr int64_t kLogEvery = 20'000;              // structures

struct LabeledGraph {
  CrystalGraph graph;
  std::vector<double> label;
  std::string content;  // fingerprint of the crystal
};

std::vector<GraphColumn> columns(int64_t targets) {
  using Of = GraphColumn::Of;
  return {{.of = Of::kNodes, .name = "atomic_number", .type = at::kByte, .row = {}},
          {.of = Of::kEdges, .name = "vector", .type = at::kFloat, .row = {3}},
          {.of = Of::kGraphs, .name = "lattice", .type = at::kFloat, .row = {3, 3}},
          {.of = Of::kGraphs, .name = "label", .type = at::kDouble, .row = {targets}},
          {.of = Of::kGraphs, .name = "content", .type = at::kByte, .row = {32}},
          {.of = Of::kGraphs, .name = "structure", .type = at::kLong, .row = {}}};
}

// Returns the fingerprint of a crystal. Its lengths are rounded to 2^-13 angstrom, because their last bits may depend
// on the CPU, and on the decimals of a copy of the file.
std::string fingerprint_of(const Crystal& crystal) {
  constexpr double kUnitsPerAngstrom = 8192;
  FingerprintBuilder out;
  const auto add = [&out](std::span<const Vector3> rows) {
    for (const Vector3& row : rows) {
      for (const double length : row) out.add(std::lround(length * kUnitsPerAngstrom));
    }
  };
  add(crystal.lattice);
  out.add(std::as_bytes(std::span(crystal.numbers)));
  add(crystal.positions);
  return out.text();
}

Result<LabeledGraph> build_graph(const CrystalSource& source, int64_t structure, const CrystalGraphOptions& options) {
  ASSIGN_OR_RETURN(LabeledCrystal crystal, source.read(structure));
  for (const uint8_t number : crystal.crystal.numbers) {
    if (number > kFeaturedElements) {
      return fail(ExitCode::kDataErr,
                  fmt::format("{}: there are no features of the element {}: the table of atoms ends at {}",
                              source.place(structure), element_symbol(number),
                              element_symbol(static_cast<uint8_t>(kFeaturedElements))));
    }
  }
  Result<CrystalGraph> graph = crystal_graph(crystal.crystal, options);
  if (!graph) return fail(graph.error().code, fmt::format("{}: {}", source.place(structure), graph.error().message));
  return LabeledGraph{
      .graph = *std::move(graph), .label = std::move(crystal.label), .content = fingerprint_of(crystal.crystal)};
}

// As build_graph(); for a thread, which no exception may leave.
Result<LabeledGraph> try_build_graph(const CrystalSource& source, int64_t structure,
                                     const CrystalGraphOptions& options) {
  try {
    return build_graph(source, structure, options);
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOsErr,
                fmt::format("{}: there is not enough memory for its graph; raise the memory limit, or "
                            "leave the structure out by data.index",
                            source.place(structure)));
  }
}

// Returns the graphs of the first structures in their order, independently of the assignment to threads: of all of
// them, or until they have kChunkBytes.
std::vector<Result<LabeledGraph>> build_chunk(const CrystalSource& source, std::span<const int64_t> chunk,
                                              const CrystalGraphOptions& options, int threads) {
  std::vector<Result<LabeledGraph>> graphs(chunk.size());
  std::atomic<size_t> next = 0;
  std::atomic<size_t> bytes = 0;
  const auto work = [&] {
    while (bytes < kChunkBytes) {
      const size_t i = next++;
      if (i >= chunk.size()) return;
      graphs[i] = try_build_graph(source, chunk[i], options);
      if (graphs[i]) bytes += graphs[i]->graph.edges.size() * sizeof(CrystalEdge);
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }  // joins the workers
  graphs.resize(std::min<size_t>(next, chunk.size()));
  return graphs;
}

template <typename T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

Result<void> write(const LabeledGraph& item, int64_t structure, GraphArchiveWriter& writer) {
  std::vector<int64_t> sources;
  std::vector<int64_t> destinations;
  std::vector<float> vectors;
  for (const CrystalEdge& edge : item.graph.edges) {
    sources.push_back(edge.source);
    destinations.push_back(edge.destination);
    vectors.insert(vectors.end(), edge.vector.begin(), edge.vector.end());
  }
  std::vector<float> lattice;
  for (const Vector3& vector : item.graph.lattice_vectors) {
    for (const double component : vector) lattice.push_back(static_cast<float>(component));
  }
  return writer.add({.nodes = static_cast<int64_t>(item.graph.numbers.size()),
                     .sources = sources,
                     .destinations = destinations,
                     .columns = {bytes(item.graph.numbers), bytes(vectors), bytes(lattice), bytes(item.label),
                                 std::as_bytes(std::span(item.content)), std::as_bytes(std::span(&structure, 1))}});
}

}  // namespace

Result<void> convert_crystals(const CrystalSource& source, const std::vector<int64_t>& structures, int64_t targets,
                              const CrystalGraphOptions& options, int threads, const std::filesystem::path& directory,
                              const Logger& log) {
  ASSIGN_OR_RETURN(GraphArchiveWriter writer, GraphArchiveWriter::create(directory, columns(targets)));
  for (size_t begin = 0; begin < structures.size();) {
    const auto chunk = std::span(structures).subspan(begin, std::min(kChunk, structures.size() - begin));
    const std::vector<Result<LabeledGraph>> graphs = build_chunk(source, chunk, options, threads);
    begin += graphs.size();
    for (size_t i = 0; i < graphs.size(); ++i) {
      if (!graphs[i]) return tl::make_unexpected(graphs[i].error());
      RETURN_IF_ERROR(write(*graphs[i], chunk[i], writer));
      report_work(LongWork::kPrepareData, writer.graphs(), static_cast<int64_t>(structures.size()));
      if (writer.graphs() % kLogEvery == 0)
        log.info("building crystal graphs", {{"done", writer.graphs()}, {"of", structures.size()}});
    }
  }
  log.info("crystal graphs built", {{"structures", writer.graphs()},
                                    {"atoms", writer.nodes()},
                                    {"edges", writer.edges()},
                                    {"to", directory.string()}});
  return writer.finish();
}

namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 3;  // must change when the same file gives different graphs

Result<void> build(const CrystalDataConfig& config, int64_t targets, const fs::path& directory, const Logger& log) {
  ASSIGN_OR_RETURN(const auto source, open_crystals({.path = config.path,
                                                     .target_property = config.target_property,
                                                     .targets = targets,
                                                     .ties = config.graph.nearest.ties}));
  return IndexSlice::parse(config.index)
      .and_then([&](const IndexSlice& slice) { return slice.indices(source->size()); })
      .and_then([&](const std::vector<int64_t>& structures) {
        return convert_crystals(*source, structures, targets, config.graph, usable_cpus(), directory, log);
      });
}

Result<std::shared_ptr<const CacheEntry>> open_entry(const CrystalDataConfig& config, int64_t targets,
                                                     const Logger& log) {
  const CrystalGraphOptions& graph = config.graph;
  const CacheKey key{
      .directory = cache_directory(config.path, config.cache),
      .sources = {config.path},
      .kind = "graphs",
      .version = kVersion,
      .options = fmt::format("{} {} {} {} {} {} {}", config.target_property, targets, config.index, graph.nearest.count,
                             graph.nearest.cutoff, static_cast<int>(graph.nearest.ties), graph.lattice_loops)};
  const auto fill = [&](const fs::path& part) { return build(config, targets, part, log); };
  return open_regular_file(config.path)
      .and_then([&](const FileDescriptor&) { return open_cache_entry(key, log, fill); })
      .map([](CacheEntry entry) { return std::make_shared<const CacheEntry>(std::move(entry)); })
      .map_error([](Error error) {
        if (error.code == ExitCode::kNoInput) error.message += " (data.path)";
        return error;
      });
}

}  // namespace

Result<void> prepare_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log) {
  if (!config.cache_graphs) return {};
  return open_entry(config, targets, log).map([](const auto&) {});
}

Result<CrystalGraphs> open_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log) {
  if (config.cache_graphs) {
    ASSIGN_OR_RETURN(std::shared_ptr<const CacheEntry> entry, open_entry(config, targets, log));
    ASSIGN_OR_RETURN(GraphCollation graphs, open_graphs(entry->path()));
    return CrystalGraphs{.entry = std::move(entry), .graphs = std::move(graphs)};
  }
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) {
    return fail(ExitCode::kCantCreate,
                fmt::format("the directory for temporary files does not exist ({}); set TMPDIR, or "
                            "data.cache_graphs: true",
                            error.message()));
  }
  ASSIGN_OR_RETURN(const ScratchDirectory directory, ScratchDirectory::create(parent, "oarlock-graphs-"));
  RETURN_IF_ERROR(build(config, targets, directory.path(), log));
  ASSIGN_OR_RETURN(GraphCollation graphs, open_graphs(directory.path()));
  return CrystalGraphs{.entry = nullptr, .graphs = std::move(graphs)};
}

}  // namespace oarlock::comformer

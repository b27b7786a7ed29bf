#include "trainer/tasks/comformer/graph_conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <thread>

#include "trainer/data/chemical_elements.h"
#include "trainer/data/graph_archive.h"
#include "trainer/tasks/comformer/atom_features.h"

namespace oarlock {
namespace {

constexpr size_t kChunk = 512;         // structures that are in memory at a time
constexpr int64_t kLogEvery = 20'000;  // structures

struct LabelledGraph {
  CrystalGraph graph;
  std::vector<double> label;
};

std::vector<GraphColumn> columns(int64_t targets) {
  using Of = GraphColumn::Of;
  return {{.of = Of::kNodes, .name = "atomic_number", .type = at::kByte, .row = {}},
          {.of = Of::kEdges, .name = "vector", .type = at::kFloat, .row = {3}},
          {.of = Of::kGraphs, .name = "lattice", .type = at::kFloat, .row = {3, 3}},
          {.of = Of::kGraphs, .name = "label", .type = at::kDouble, .row = {targets}},
          {.of = Of::kGraphs, .name = "structure", .type = at::kLong, .row = {}}};
}

Result<LabelledGraph> built(const CrystalSource& source, int64_t structure, const CrystalGraphOptions& options) {
  Result<LabelledCrystal> crystal = source.read(structure);
  if (!crystal) return tl::make_unexpected(crystal.error());
  for (const uint8_t number : crystal->crystal.numbers) {
    if (number > kFeaturedElements) {
      return fail(
          ExitCode::kDataErr,
          fmt::format("{}: nothing is known of the element {}: the table of atoms ends at {}", source.place(structure),
                      element_symbol(number), element_symbol(static_cast<uint8_t>(kFeaturedElements))));
    }
  }
  return LabelledGraph{.graph = crystal_graph(crystal->crystal, options), .label = std::move(crystal->label)};
}

// The graphs of a chunk, by its order; which thread builds which does not matter.
std::vector<Result<LabelledGraph>> build_chunk(const CrystalSource& source, std::span<const int64_t> chunk,
                                               const CrystalGraphOptions& options, int threads) {
  std::vector<Result<LabelledGraph>> graphs(chunk.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < chunk.size(); i = next++) graphs[i] = built(source, chunk[i], options);
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }  // the workers have ended
  return graphs;
}

template <typename T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

void write(const LabelledGraph& item, int64_t structure, GraphArchiveWriter& writer) {
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
  writer.add({.nodes = static_cast<int64_t>(item.graph.numbers.size()),
              .sources = sources,
              .destinations = destinations,
              .columns = {bytes(item.graph.numbers), bytes(vectors), bytes(lattice), bytes(item.label),
                          std::as_bytes(std::span(&structure, 1))}});
}

}  // namespace

Result<void> convert_crystals(const CrystalSource& source, const std::vector<int64_t>& structures, int64_t targets,
                              const CrystalGraphOptions& options, int threads, const std::filesystem::path& folder,
                              const Logger& log) {
  Result<GraphArchiveWriter> writer = GraphArchiveWriter::create(folder, columns(targets));
  if (!writer) return tl::make_unexpected(writer.error());
  for (size_t begin = 0; begin < structures.size(); begin += kChunk) {
    const auto chunk = std::span(structures).subspan(begin, std::min(kChunk, structures.size() - begin));
    const std::vector<Result<LabelledGraph>> graphs = build_chunk(source, chunk, options, threads);
    for (size_t i = 0; i < chunk.size(); ++i) {
      if (!graphs[i]) return tl::make_unexpected(graphs[i].error());
      write(*graphs[i], chunk[i], *writer);
      if (writer->graphs() % kLogEvery == 0)
        log.info("building crystal graphs", {{"done", writer->graphs()}, {"of", structures.size()}});
    }
  }
  log.info("crystal graphs built", {{"structures", writer->graphs()},
                                    {"atoms", writer->nodes()},
                                    {"edges", writer->edges()},
                                    {"to", folder.string()}});
  return writer->finish();
}

}  // namespace oarlock

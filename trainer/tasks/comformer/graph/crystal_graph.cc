#include "trainer/tasks/comformer/graph/crystal_graph.h"

#include <algorithm>
#include <tuple>

namespace oarlock {
namespace {

// An edge and its reverse, written in the one way where the source is not above the destination.
struct Pair {
  int32_t source;
  int32_t destination;
  CellImage image;

  auto operator<=>(const Pair&) const = default;
};

CellImage reversed(const CellImage& image) { return {-image[0], -image[1], -image[2]}; }

std::vector<Pair> pairs_of(const Crystal& crystal, const CrystalGraphOptions& options,
                           const std::array<CellImage, 3>& loops) {
  std::vector<Pair> pairs;
  const auto nearest = nearest_neighbours(crystal, options.nearest);
  for (int32_t site = 0; site < static_cast<int32_t>(nearest.size()); ++site) {
    for (const Neighbour& neighbour : nearest[static_cast<size_t>(site)]) {
      if (site <= neighbour.site) {
        pairs.push_back({.source = site, .destination = neighbour.site, .image = neighbour.image});
      } else {
        pairs.push_back({.source = neighbour.site, .destination = site, .image = reversed(neighbour.image)});
      }
    }
    if (!options.lattice_loops) continue;
    for (const CellImage& image : loops) pairs.push_back({.source = site, .destination = site, .image = image});
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

CrystalEdge edge_of(const Crystal& crystal, int32_t source, int32_t destination, const CellImage& image) {
  CrystalEdge edge{.source = source, .destination = destination, .image = image, .vector = {}};
  const Vector3 moved = moved_by(crystal.lattice, image);
  const Vector3& from = crystal.positions[static_cast<size_t>(source)];
  const Vector3& to = crystal.positions[static_cast<size_t>(destination)];
  for (size_t axis = 0; axis < 3; ++axis) edge.vector[axis] = static_cast<float>((moved[axis] + to[axis]) - from[axis]);
  return edge;
}

}  // namespace

CrystalGraph crystal_graph(const Crystal& crystal, const CrystalGraphOptions& options) {
  CrystalGraph graph;
  graph.numbers = crystal.numbers;
  const std::array<CellImage, 3> vectors = lattice_vectors(crystal, options.nearest.ties);
  for (size_t i = 0; i < 3; ++i) graph.lattice_vectors[i] = moved_by(crystal.lattice, vectors[i]);
  for (const Pair& pair : pairs_of(crystal, options, vectors)) {
    graph.edges.push_back(edge_of(crystal, pair.source, pair.destination, pair.image));
    graph.edges.push_back(edge_of(crystal, pair.destination, pair.source, reversed(pair.image)));
  }
  std::sort(graph.edges.begin(), graph.edges.end(), [](const CrystalEdge& a, const CrystalEdge& b) {
    return std::tie(a.destination, a.source, a.image) < std::tie(b.destination, b.source, b.image);
  });
  return graph;
}

}  // namespace oarlock

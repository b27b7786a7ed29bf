// A crystal as a graph: an edge from each atom to its nearest neighbours, whichever cell they lie in.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/tasks/comformer/graph/lattice_vectors.h"
#include "trainer/tasks/comformer/graph/nearest_neighbours.h"

namespace oarlock {

struct CrystalEdge {
  int32_t source = 0;
  int32_t destination = 0;
  CellImage image{};              // of the destination
  std::array<float, 3> vector{};  // from the source to the destination, in angstrom

  bool operator==(const CrystalEdge&) const = default;
};

struct CrystalGraph {
  std::vector<uint8_t> numbers;            // of the nodes, as in the crystal
  std::vector<CrystalEdge> edges;          // by destination, then source and image
  std::array<Vector3, 3> lattice_vectors;  // see lattice_vectors.h; angstrom
};

struct CrystalGraphOptions {
  NearestOptions nearest;
  bool lattice_loops = true;  // edges from each atom to its own images along the three lattice vectors
};

// Every pair of neighbours gives two edges, one each way, even if only one of the two has the other among its nearest.
// An atom that neighbours its own image T neighbours -T as well: each of these two comes twice, as in the original.
CrystalGraph crystal_graph(const Crystal& crystal, const CrystalGraphOptions& options);

}  // namespace oarlock

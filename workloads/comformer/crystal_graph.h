// A crystal as a graph: edges from each atom to its nearest neighbors in any cell of the periodic crystal.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "workloads/comformer/config.h"
#include "workloads/formats/crystal.h"

namespace oarlock::comformer {

// The translation of an atom from its position in the file, in multiples of the lattice vectors a, b and c.
using CellImage = std::array<int32_t, 3>;

// Returns n0 a + n1 b + n2 c.
Vector3 translation_of(const Matrix3& lattice, const CellImage& image);

// The lattice of jarvis' Atoms: five decimals. The original measures distances with the lattice of the file, and uses
// this one for everything else.
Matrix3 original_lattice(const Matrix3& lattice);

// Returns the Cartesian coordinates that the original makes of the fractional ones: numpy's product with
// original_lattice(), in which OpenBLAS uses fused multiply-add, except for a single atom. The result is the same on
// every CPU.
std::vector<Vector3> original_cartesian(const std::vector<Vector3>& fractional, const Matrix3& lattice);

struct Neighbor {
  int32_t site = 0;
  CellImage image{};
  double distance = 0;  // angstrom
};

// Atoms at a smaller distance, in angstrom, count as the same atom.
constexpr double kSamePlace = 0.15;

// Fails with kDataErr, with a message that names no file, if neighbors_within() would take more than a few seconds or
// 400 MB, as for a cell that is much smaller than the radius, or if an atom is too far from its cell. The lattice must
// span a volume.
Result<void> check_neighbor_search(const Crystal& crystal, double radius);

// Returns, for each atom, the atoms with kSamePlace < distance <= radius, sorted by site and image. The distance is
// computed in double precision as the square root of the sum of the squares of (image + neighbor) - atom, which is
// bitwise equal to numpy's result. check_neighbor_search() must not fail for the arguments.
std::vector<std::vector<Neighbor>> neighbors_within(const Crystal& crystal, double radius);

// Returns, for each atom, its nearest neighbors and all atoms at the distance of the last one, sorted by distance, site
// and image. With kExact the radius of the search grows as in the original (to the longest edge of the cell, then
// twofold); with kTolerant the result does not depend on it. Fails as check_neighbor_search() does.
Result<std::vector<std::vector<Neighbor>>> nearest_neighbors(const Crystal& crystal, const NearestOptions& options);

// Returns three vectors that represent the lattice independently of the cell in the file: the shortest linearly
// independent ones (the unique lattice representation of Yan et al., ICLR 2024, https://arxiv.org/abs/2403.11857). They
// are images of the cell. The second and the third do not form an obtuse angle with the first; then, if the three are
// left-handed, all are reversed. Of several vectors with equal lengths (see Ties), the smallest image comes first; with
// kExact this applies only to bitwise equal lengths, measured from the first atom as in the original. Fails as
// check_neighbor_search() does.
Result<std::array<CellImage, 3>> lattice_vectors(const Crystal& crystal, Ties ties);

struct CrystalEdge {
  int32_t source = 0;
  int32_t destination = 0;
  CellImage image{};              // of the destination
  std::array<float, 3> vector{};  // from source to destination, angstrom

  bool operator==(const CrystalEdge&) const = default;
};

struct CrystalGraph {
  std::vector<uint8_t> numbers;            // atomic numbers of the nodes, as in the crystal
  std::vector<CrystalEdge> edges;          // sorted by destination, source and image
  std::array<Vector3, 3> lattice_vectors;  // angstrom
};

// Every pair of neighbors has two edges, one in each direction, even if only one of the two atoms is among the nearest
// neighbors of the other. If the image T of an atom is its neighbor, so is the image -T; as in the original,
// each of these edges exists twice. Fails as check_neighbor_search() does.
Result<CrystalGraph> crystal_graph(const Crystal& crystal, const CrystalGraphOptions& options);

}  // namespace oarlock::comformer

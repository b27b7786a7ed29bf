// Which atoms of a periodic crystal lie within a radius of each atom of its cell.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/data/crystal.h"

namespace oarlock {

// How many times a, b and c an atom is moved from where its file has it.
using CellImage = std::array<int32_t, 3>;

// n0 a + n1 b + n2 c
Vector3 moved_by(const Matrix3& lattice, const CellImage& image);

struct Neighbour {
  int32_t site = 0;
  CellImage image{};
  double distance = 0;  // angstrom
};

// Atoms that are nearer than this, in angstrom, are taken for one and the same.
constexpr double kSamePlace = 0.15;

// For each atom those at kSamePlace < distance <= radius, by site and image. The distance is computed in double
// precision as sqrt of the squares of (image + neighbour) - atom, so that it is the same bit for bit as what numpy
// gives.
std::vector<std::vector<Neighbour>> neighbours_within(const Crystal& crystal, double radius);

}  // namespace oarlock

// The three vectors that stand for a crystal's lattice whatever cell it was written with: the shortest that are
// linearly independent (the unique lattice representation of Yan et al., ICLR 2024, https://arxiv.org/abs/2403.11857).
#pragma once

#include <array>

#include "trainer/tasks/comformer/graph/nearest_neighbours.h"

namespace oarlock {

// As images of the cell. The second and the third make no obtuse angle with the first; then, where the three are
// left-handed, all are reversed. Where lengths are equal (see Ties) the image that is less comes first; with kExact
// that holds for lengths whose bits are equal only, measured from the first atom as the original does.
std::array<CellImage, 3> lattice_vectors(const Crystal& crystal, Ties ties);

}  // namespace oarlock

// The k nearest neighbours of each atom of a crystal, and all that are as far as the k-th.
#pragma once

#include <vector>

#include "trainer/tasks/comformer/graph/periodic_neighbours.h"

namespace oarlock {

// When two distances are equal.
enum class Ties {
  kTolerant,  // within kTieTolerance: symmetry makes many equal, but files and arithmetic round them
  kExact,     // bit by bit, as the Python original: which of a shell's atoms are kept depends on rounding
};

constexpr double kTieTolerance = 1e-5;  // angstrom; files have positions to 1e-8, single precision to 1e-6

struct NearestOptions {
  int64_t count = 25;  // k
  double cutoff = 4;   // angstrom; where the search begins: it goes on until each atom has k neighbours
  Ties ties = Ties::kTolerant;
};

// For each atom, by distance, then site and image. With kExact the cutoff grows as the original's does (to the longest
// edge of the cell, then twofold); with kTolerant nothing depends on how it grows.
std::vector<std::vector<Neighbour>> nearest_neighbours(const Crystal& crystal, const NearestOptions& options);

}  // namespace oarlock

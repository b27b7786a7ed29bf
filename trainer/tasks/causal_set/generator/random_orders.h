// Random causal sets of two kinds whose statistics are known, and that a classifier must tell apart. Pure: a seed gives
// the same sets everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/tasks/causal_set/causal_relations.h"

namespace oarlock {

// Points that are uniform in a diamond of two-dimensional Minkowski space, numbered by time. One precedes another where
// both of its light-cone coordinates are smaller, so that of all pairs one half is related on average. All relations.
std::vector<Relation> sprinkle_diamond(int64_t size, uint64_t seed);

// What almost all large orders look like (Kleitman and Rothschild, Asymptotic enumeration of partial orders on a finite
// set, 1975): layers of a quarter, a half and a quarter of the elements, each two neighbouring layers related with
// probability 1/2. No manifold. All relations; the longest chain has three elements where there is one from the first
// layer to the last.
std::vector<Relation> kleitman_rothschild(int64_t size, uint64_t seed);

}  // namespace oarlock

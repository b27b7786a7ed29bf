// Synthetic crystals whose label is a known function of the structure, so that the achievable error is known.
#pragma once

#include <cstdint>
#include <string>

#include "workloads/formats/crystal.h"

namespace oarlock::comformer {

enum class CrystalFamily {
  // Cubic AO, where A is Mg, Ca, Sr or Ba, with edges a of 3.5 to 4.45 angstrom and the label
  // -2.5 + 0.3 (a - 4) + 0.1 N(0, 1), as in ComFormer's own example. The mean absolute error of any model is at least
  // 0.1 sqrt(2 / pi) = 0.0798.
  kCubic,
  // 2 to 5 atoms at random positions of a random triclinic cell. The label is noiseless: the mean over the atoms of the
  // sum over all other atoms of w_A w_B exp(-distance / 1.2 angstrom), where w is a weight of the element.
  kTriclinic,
};

struct GeneratedCrystal {
  Crystal crystal;
  double label = 0;
};

// Returns the crystal with an index. It depends only on the family, the index and the seed.
GeneratedCrystal generated_crystal(CrystalFamily family, int64_t number, uint64_t seed);

// Returns a frame of an extended XYZ file, with the label under the given name.
std::string extxyz_frame(const GeneratedCrystal& crystal, const std::string& target_property);

}  // namespace oarlock::comformer

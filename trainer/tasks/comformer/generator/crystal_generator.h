// Small honest data: crystals whose label is a known function of them, so that it is known what there is to learn.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/data/crystal.h"

namespace oarlock {

enum class CrystalFamily {
  // Cubic AO, A one of Mg, Ca, Sr and Ba, with edges a of 3.5 to 4.45 angstrom and the label -2.5 + 0.3 (a - 4) + 0.1
  // N(0,
  // 1), as ComFormer's own example makes them. No model errs by less than 0.1 sqrt(2 / pi) = 0.0798 in the mean.
  kCubic,
  // 2 to 5 atoms at random places of a random triclinic cell. Without noise: the label is the mean over the atoms of
  // the
  // sum over all others of w_A w_B exp(-distance / 1.2 angstrom), w a weight of the element.
  kTriclinic,
};

struct GeneratedCrystal {
  Crystal crystal;
  double label = 0;
};

// The crystal of this number; depends on nothing else but the seed.
GeneratedCrystal generated_crystal(CrystalFamily family, int64_t number, uint64_t seed);

// As a frame of an extended XYZ file, the label under this name.
std::string extxyz_frame(const GeneratedCrystal& crystal, const std::string& target_property);

}  // namespace oarlock

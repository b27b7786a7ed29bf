// What is told of an atom by its element: the table of CGCNN (Xie and Grossman, Phys. Rev. Lett. 120, 145301, 2018), as
// jarvis-tools ships it (atom_init.json).
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/tasks/comformer/model/model.h"

namespace oarlock {

constexpr int64_t kFeaturedElements = 100;  // hydrogen to fermium

// float [kFeaturedElements + 1, kAtomFeatures], by atomic number; row 0 is zero.
at::Tensor atom_features();

}  // namespace oarlock

// Real spherical harmonics up to l = 2.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

// Of the directions of vectors [e, 3] -> [e, 9]: l = 0, then l = 1 as x, y, z, then l = 2 as xz, xy, y^2 - (x^2 + z^2)
// / 2, yz, (z^2 - x^2) / 2; normalised so that the squares of each l sum to 2 l + 1. Order and normalisation
// ("component") are those of e3nn (https://docs.e3nn.org, o3.spherical_harmonics).
at::Tensor spherical_harmonics(const at::Tensor& vectors);

}  // namespace oarlock

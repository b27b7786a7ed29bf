#include "trainer/tasks/comformer/model/spherical_harmonics.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <cmath>

namespace oarlock {

at::Tensor spherical_harmonics(const at::Tensor& vectors) {
  const double root3 = std::sqrt(3.0);
  const double root5 = std::sqrt(5.0);
  const double root15 = std::sqrt(15.0);
  const at::Tensor unit = vectors / vectors.norm(2, -1, true);
  const at::Tensor x = unit.select(-1, 0);
  const at::Tensor y = unit.select(-1, 1);
  const at::Tensor z = unit.select(-1, 2);
  return at::stack({at::ones_like(x), root3 * x, root3 * y, root3 * z, root15 * x * z, root15 * x * y,
                    root5 * (y * y - 0.5 * (x * x + z * z)), root15 * y * z, 0.5 * root15 * (z * z - x * x)},
                   -1);
}

}  // namespace oarlock

#include "trainer/data/crystal.h"

#include <cmath>

namespace oarlock {

bool spans_volume(const Matrix3& lattice) {
  constexpr double kFlattest = 1e-6;  // of the box with the same edges
  double box = 1;
  for (const Vector3& edge : lattice) box *= std::sqrt(dot(edge, edge));
  return std::isfinite(box) && box > 0 && std::abs(signed_volume(lattice)) > kFlattest * box;
}

}  // namespace oarlock

// The structure of a crystal, as files give it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace oarlock {

using Vector3 = std::array<double, 3>;
using Matrix3 = std::array<Vector3, 3>;

struct Crystal {
  Matrix3 lattice{};               // rows a, b and c, in angstrom
  std::vector<uint8_t> numbers;    // atomic numbers, 1 to 118
  std::vector<Vector3> positions;  // Cartesian, in angstrom; as many; atoms may lie outside the cell
};

inline double dot(const Vector3& a, const Vector3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

inline Vector3 cross(const Vector3& a, const Vector3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// Positive for a right-handed lattice.
inline double signed_volume(const Matrix3& lattice) { return dot(lattice[0], cross(lattice[1], lattice[2])); }

// Whether its vectors are finite and span a volume.
bool spans_volume(const Matrix3& lattice);

}  // namespace oarlock

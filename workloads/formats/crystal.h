// The structure of a crystal, and the chemical elements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace oarlock {

using Vector3 = std::array<double, 3>;
using Matrix3 = std::array<Vector3, 3>;

struct Crystal {
  Matrix3 lattice{};               // the rows are the lattice vectors a, b and c in angstrom
  std::vector<uint8_t> numbers;    // atomic numbers, 1 to kElements
  std::vector<Vector3> positions;  // Cartesian positions in angstrom, one per atom; may be outside the cell
};

inline double dot(const Vector3& a, const Vector3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

inline Vector3 cross(const Vector3& a, const Vector3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// Returns the volume of a lattice, which is positive if the lattice is right-handed.
inline double signed_volume(const Matrix3& lattice) { return dot(lattice[0], cross(lattice[1], lattice[2])); }

// Returns whether the lattice vectors are finite and linearly independent.
bool spans_volume(const Matrix3& lattice);

constexpr uint8_t kElements = 118;

// Returns the atomic number of an element, for example 14 for "Si", or nothing if there is no such element.
std::optional<uint8_t> atomic_number(std::string_view symbol);

// Returns the symbol of an element, for example "Si" for 14. `number` must be in [1, kElements].
std::string_view element_symbol(uint8_t number);

}  // namespace oarlock

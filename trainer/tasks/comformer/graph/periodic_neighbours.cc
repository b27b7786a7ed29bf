#include "trainer/tasks/comformer/graph/periodic_neighbours.h"

#include <cmath>

namespace oarlock {
namespace {

// Rows b with dot(b[i], lattice[j]) = 1 where i == j, else 0.
Matrix3 reciprocal(const Matrix3& lattice) {
  const double volume = signed_volume(lattice);
  Matrix3 out{};
  for (size_t axis = 0; axis < 3; ++axis) {
    out[axis] = cross(lattice[(axis + 1) % 3], lattice[(axis + 2) % 3]);
    for (double& component : out[axis]) component /= volume;
  }
  return out;
}

struct ImageRange {
  CellImage first;
  CellImage last;
};

// Along an axis two atoms within `radius` are no more than radius * |reciprocal| cells apart.
ImageRange images_within(const Matrix3& inverse, const Vector3& from, const Vector3& to, double radius) {
  constexpr double kSlack = 1e-6;  // cells; what is too far is sorted out by its distance
  ImageRange range{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const double reach = radius * std::sqrt(dot(inverse[axis], inverse[axis])) + kSlack;
    const double apart = dot(inverse[axis], to) - dot(inverse[axis], from);
    range.first[axis] = static_cast<int32_t>(std::ceil(-reach - apart));
    range.last[axis] = static_cast<int32_t>(std::floor(reach - apart));
  }
  return range;
}

double distance(const Vector3& moved, const Vector3& to, const Vector3& from) {
  Vector3 apart{};
  for (size_t axis = 0; axis < 3; ++axis) apart[axis] = (moved[axis] + to[axis]) - from[axis];
  return std::sqrt(dot(apart, apart));
}

}  // namespace

Vector3 moved_by(const Matrix3& lattice, const CellImage& image) {
  Vector3 out{};
  for (size_t axis = 0; axis < 3; ++axis)
    out[axis] = image[0] * lattice[0][axis] + image[1] * lattice[1][axis] + image[2] * lattice[2][axis];
  return out;
}

std::vector<std::vector<Neighbour>> neighbours_within(const Crystal& crystal, double radius) {
  const Matrix3 inverse = reciprocal(crystal.lattice);
  const auto sites = static_cast<int32_t>(crystal.positions.size());
  std::vector<std::vector<Neighbour>> neighbours(crystal.positions.size());
  for (size_t from = 0; from < crystal.positions.size(); ++from) {
    for (int32_t site = 0; site < sites; ++site) {
      const Vector3& to = crystal.positions[static_cast<size_t>(site)];
      const auto [first, last] = images_within(inverse, crystal.positions[from], to, radius);
      CellImage image{};
      for (image[0] = first[0]; image[0] <= last[0]; ++image[0]) {
        for (image[1] = first[1]; image[1] <= last[1]; ++image[1]) {
          for (image[2] = first[2]; image[2] <= last[2]; ++image[2]) {
            const double apart = distance(moved_by(crystal.lattice, image), to, crystal.positions[from]);
            if (apart > kSamePlace && apart <= radius)
              neighbours[from].push_back({.site = site, .image = image, .distance = apart});
          }
        }
      }
    }
  }
  return neighbours;
}

}  // namespace oarlock

#include "trainer/tasks/comformer/graph/lattice_vectors.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace oarlock {
namespace {

constexpr double kParallel = 1e-6;  // sine, or volume per box, below which vectors are dependent
constexpr double kRightAngle = 1e-9;

double length(const Vector3& v) { return std::sqrt(dot(v, v)); }

// The images of the first atom, the nearest first. The cell's own edges are among them.
std::vector<Neighbour> images_by_length(const Crystal& crystal, Ties ties) {
  double longest = 0;
  for (const Vector3& edge : crystal.lattice) longest = std::max(longest, length(edge));
  const Crystal alone{.lattice = crystal.lattice, .numbers = {crystal.numbers[0]}, .positions = {crystal.positions[0]}};
  std::vector<Neighbour> images = neighbours_within(alone, longest + kTieTolerance)[0];
  std::sort(images.begin(), images.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::tie(a.distance, a.image) < std::tie(b.distance, b.image);
  });
  if (ties == Ties::kExact) return images;
  for (auto begin = images.begin(); begin != images.end();) {
    const auto end = std::find_if(
        begin, images.end(), [&](const Neighbour& image) { return image.distance > begin->distance + kTieTolerance; });
    std::sort(begin, end, [](const Neighbour& a, const Neighbour& b) { return a.image < b.image; });
    begin = end;
  }
  return images;
}

void reverse(CellImage& image) {
  for (int32_t& component : image) component = -component;
}

}  // namespace

std::array<CellImage, 3> lattice_vectors(const Crystal& crystal, Ties ties) {
  std::array<CellImage, 3> chosen{};
  Matrix3 vectors{};
  size_t found = 0;
  for (const Neighbour& candidate : images_by_length(crystal, ties)) {
    const Vector3 vector = moved_by(crystal.lattice, candidate.image);
    if (found == 1 && length(cross(vectors[0], vector)) <= kParallel * length(vectors[0]) * length(vector)) continue;
    if (found == 2) {
      const double box = length(vectors[0]) * length(vectors[1]) * length(vector);
      if (std::abs(signed_volume({vectors[0], vectors[1], vector})) <= kParallel * box) continue;
    }
    chosen[found] = candidate.image;
    vectors[found] = vector;
    const bool obtuse = dot(vectors[0], vector) < -kRightAngle * length(vectors[0]) * length(vector);
    if (obtuse) {
      reverse(chosen[found]);
      vectors[found] = moved_by(crystal.lattice, chosen[found]);
    }
    if (++found == 3) break;
  }
  if (signed_volume(vectors) < 0) std::for_each(chosen.begin(), chosen.end(), reverse);
  return chosen;
}

}  // namespace oarlock

#include "trainer/tasks/comformer/graph/nearest_neighbours.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace oarlock {
namespace {

double longest_edge(const Matrix3& lattice) {
  double longest = 0;
  for (const Vector3& edge : lattice) longest = std::max(longest, std::sqrt(dot(edge, edge)));
  return longest;
}

double grown(double cutoff, const Crystal& crystal, Ties ties) {
  constexpr double kStep = 1.25;  // no further than needed: the work grows with the cube
  if (ties == Ties::kTolerant) return cutoff * kStep;
  const double longest = longest_edge(crystal.lattice);
  return cutoff < longest ? longest : 2 * cutoff;
}

}  // namespace

std::vector<std::vector<Neighbour>> nearest_neighbours(const Crystal& crystal, const NearestOptions& options) {
  const auto count = static_cast<size_t>(options.count);
  const double tolerance = options.ties == Ties::kTolerant ? kTieTolerance : 0;
  for (double cutoff = options.cutoff;; cutoff = grown(cutoff, crystal, options.ties)) {
    // As far as the ties of a k-th neighbour at the cutoff itself.
    auto neighbours = neighbours_within(crystal, cutoff + tolerance);
    const bool enough = std::all_of(neighbours.begin(), neighbours.end(), [&](const std::vector<Neighbour>& of_site) {
      return std::count_if(of_site.begin(), of_site.end(), [&](const Neighbour& n) { return n.distance <= cutoff; }) >=
             options.count;
    });
    if (!enough) continue;
    for (std::vector<Neighbour>& of_site : neighbours) {
      std::sort(of_site.begin(), of_site.end(), [](const Neighbour& a, const Neighbour& b) {
        return std::tie(a.distance, a.site, a.image) < std::tie(b.distance, b.site, b.image);
      });
      const double farthest = of_site[count - 1].distance + tolerance;
      std::erase_if(of_site, [&](const Neighbour& n) { return n.distance > farthest; });
    }
    return neighbours;
  }
}

}  // namespace oarlock

#include "workloads/comformer/crystal_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <vector>

#include "common/status_macros.h"

namespace oarlock::comformer {

namespace {

// Returns rows b with dot(b[i], lattice[j]) = 1 if i == j, else 0.
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

// Along an axis, two atoms within `radius` are at most radius * |reciprocal| cells apart.
ImageRange images_within(const Matrix3& inverse, const Vector3& from, const Vector3& to, double radius) {
  constexpr double kSlack = 1e-6;  // cells; images that are too far are excluded by their distance
  ImageRange range{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const double reach = radius * std::sqrt(dot(inverse[axis], inverse[axis])) + kSlack;
    const double apart = dot(inverse[axis], to) - dot(inverse[axis], from);
    range.first[axis] = static_cast<int32_t>(std::ceil(-reach - apart));
    range.last[axis] = static_cast<int32_t>(std::floor(reach - apart));
  }
  return range;
}

double length(const Vector3& v) { return std::sqrt(dot(v, v)); }

double distance(const Vector3& moved, const Vector3& to, const Vector3& from) {
  Vector3 apart{};
  for (size_t axis = 0; axis < 3; ++axis) apart[axis] = (moved[axis] + to[axis]) - from[axis];
  return std::sqrt(dot(apart, apart));
}

}  // namespace

Vector3 translation_of(const Matrix3& lattice, const CellImage& image) {
  Vector3 out{};
  for (size_t axis = 0; axis < 3; ++axis)
    out[axis] = image[0] * lattice[0][axis] + image[1] * lattice[1][axis] + image[2] * lattice[2][axis];
  return out;
}

Matrix3 original_lattice(const Matrix3& lattice) {
  constexpr double kScale = 1e5;
  Matrix3 out = lattice;
  for (Vector3& vector : out) {
    for (double& component : vector) component = std::nearbyint(component * kScale) / kScale;  // numpy.around()
  }
  return out;
}

std::vector<Vector3> original_cartesian(const std::vector<Vector3>& fractional, const Matrix3& lattice) {
  const Matrix3 rounded = original_lattice(lattice);
  std::vector<Vector3> out;
  for (const Vector3& f : fractional) {
    Vector3& position = out.emplace_back();
    for (size_t axis = 0; axis < 3; ++axis) {
      const Vector3 column = {rounded[0][axis], rounded[1][axis], rounded[2][axis]};
      position[axis] = fractional.size() == 1 ? dot(f, column)
                                              : std::fma(f[2], column[2], std::fma(f[1], column[1], f[0] * column[0]));
    }
  }
  return out;
}

Result<void> check_neighbor_search(const Crystal& crystal, double radius) {
  constexpr double kMaxTests = 1 << 28;      // pairs of atoms: some seconds
  constexpr double kMaxNeighbors = 1 << 22;  // 128 MiB, in each thread that builds graphs
  constexpr double kMaxRadius = 1e7;         // angstrom: 1 mm
  constexpr double kMaxCells = 1e6;          // between an atom and its cell: above, rounding changes distances
  const Matrix3 inverse = reciprocal(crystal.lattice);
  for (size_t atom = 0; atom < crystal.positions.size(); ++atom) {
    const Vector3& at = crystal.positions[atom];
    for (const Vector3& row : inverse) {
      if (std::abs(dot(row, at)) <= kMaxCells) continue;
      return fail(ExitCode::kDataErr, fmt::format("atom {} at {:.6g} {:.6g} {:.6g} is more than {:.0f} cells away from "
                                                  "its cell; correct its position and the lattice, or leave the "
                                                  "structure out by data.index",
                                                  atom, at[0], at[1], at[2], kMaxCells));
    }
  }
  const auto sites = static_cast<double>(crystal.positions.size());
  double tests = sites * sites;
  for (const Vector3& row : inverse) tests *= 2 * radius * length(row) + 1;
  const double sphere = 4 * std::numbers::pi / 3 * std::pow(radius, 3);
  const double found = sites * sites * sphere / std::abs(signed_volume(crystal.lattice));
  if (radius <= kMaxRadius && tests <= kMaxTests && found <= kMaxNeighbors) return {};  // false for NaN
  const Matrix3& cell = crystal.lattice;
  return fail(
      ExitCode::kDataErr,
      fmt::format(
          "the search for neighbors within {:.4g} angstrom must test {:.2g} pairs of atoms and find {:.2g} "
          "neighbors (at most {:.2g} and {:.2g}), because the cell with {} atoms, edges of {:.4g}, {:.4g} and "
          "{:.4g} angstrom and a volume of {:.4g} is too small, thin, oblique or large; correct the lattice, reduce "
          "data.cutoff or data.max_neighbors, or leave the structure out by data.index",
          radius, tests, found, kMaxTests, kMaxNeighbors, crystal.positions.size(), length(cell[0]), length(cell[1]),
          length(cell[2]), std::abs(signed_volume(cell))));
}

std::vector<std::vector<Neighbor>> neighbors_within(const Crystal& crystal, double radius) {
  const Matrix3 inverse = reciprocal(crystal.lattice);
  const auto sites = static_cast<int32_t>(crystal.positions.size());
  std::vector<std::vector<Neighbor>> neighbors(crystal.positions.size());
  for (size_t from = 0; from < crystal.positions.size(); ++from) {
    for (int32_t site = 0; site < sites; ++site) {
      const Vector3& to = crystal.positions[static_cast<size_t>(site)];
      const auto [first, last] = images_within(inverse, crystal.positions[from], to, radius);
      CellImage image{};
      for (image[0] = first[0]; image[0] <= last[0]; ++image[0]) {
        for (image[1] = first[1]; image[1] <= last[1]; ++image[1]) {
          for (image[2] = first[2]; image[2] <= last[2]; ++image[2]) {
            const double apart = distance(translation_of(crystal.lattice, image), to, crystal.positions[from]);
            if (apart > kSamePlace && apart <= radius)
              neighbors[from].push_back({.site = site, .image = image, .distance = apart});
          }
        }
      }
    }
  }
  return neighbors;
}

namespace {

double longest_edge(const Matrix3& lattice) {
  double longest = 0;
  for (const Vector3& edge : lattice) longest = std::max(longest, length(edge));
  return longest;
}

double grown(double cutoff, const Crystal& crystal, Ties ties) {
  constexpr double kStep = 1.25;  // small, because the work grows with the cube
  if (ties == Ties::kTolerant) return cutoff * kStep;
  const double longest = longest_edge(crystal.lattice);
  return cutoff < longest ? longest : 2 * cutoff;
}

}  // namespace

Result<std::vector<std::vector<Neighbor>>> nearest_neighbors(const Crystal& crystal, const NearestOptions& options) {
  const auto count = static_cast<size_t>(options.count);
  const double tolerance = options.ties == Ties::kTolerant ? kTieTolerance : 0;
  for (double cutoff = options.cutoff;; cutoff = grown(cutoff, crystal, options.ties)) {
    RETURN_IF_ERROR(check_neighbor_search(crystal, cutoff + tolerance));
    // Includes the ties of a k-th neighbor at the cutoff itself.
    auto neighbors = neighbors_within(crystal, cutoff + tolerance);
    const bool enough = std::all_of(neighbors.begin(), neighbors.end(), [&](const std::vector<Neighbor>& of_site) {
      return std::count_if(of_site.begin(), of_site.end(), [&](const Neighbor& n) { return n.distance <= cutoff; }) >=
             options.count;
    });
    if (!enough) continue;
    for (std::vector<Neighbor>& of_site : neighbors) {
      std::sort(of_site.begin(), of_site.end(), [](const Neighbor& a, const Neighbor& b) {
        return std::tie(a.distance, a.site, a.image) < std::tie(b.distance, b.site, b.image);
      });
      const double farthest = of_site[count - 1].distance + tolerance;
      std::erase_if(of_site, [&](const Neighbor& n) { return n.distance > farthest; });
    }
    return neighbors;
  }
}

namespace {

constexpr double kParallel = 1e-6;  // sine, or volume per box, below which vectors are linearly dependent
constexpr double kRightAngle = 1e-9;

// Returns the images of the first atom in the order of their distance. They include the edges of the cell.
Result<std::vector<Neighbor>> images_by_length(const Crystal& crystal, Ties ties) {
  const double radius = longest_edge(crystal.lattice) + kTieTolerance;
  const Crystal alone{.lattice = crystal.lattice, .numbers = {crystal.numbers[0]}, .positions = {crystal.positions[0]}};
  RETURN_IF_ERROR(check_neighbor_search(alone, radius));
  std::vector<Neighbor> images = neighbors_within(alone, radius)[0];
  std::sort(images.begin(), images.end(), [](const Neighbor& a, const Neighbor& b) {
    return std::tie(a.distance, a.image) < std::tie(b.distance, b.image);
  });
  if (ties == Ties::kExact) return images;
  for (auto begin = images.begin(); begin != images.end();) {
    const auto end = std::find_if(
        begin, images.end(), [&](const Neighbor& image) { return image.distance > begin->distance + kTieTolerance; });
    std::sort(begin, end, [](const Neighbor& a, const Neighbor& b) { return a.image < b.image; });
    begin = end;
  }
  return images;
}

// With kExact as the original compares the angle with 90 degrees, so that rounding decides for a right angle.
bool is_obtuse(const Vector3& a, const Vector3& b, Ties ties) {
  const double cosine = dot(a, b) / (length(a) * length(b));
  if (ties == Ties::kExact) return std::acos(cosine) / std::numbers::pi * 180.0 > 90.0;
  return cosine < -kRightAngle;
}

void reverse(CellImage& image) {
  for (int32_t& component : image) component = -component;
}

}  // namespace

Result<std::array<CellImage, 3>> lattice_vectors(const Crystal& crystal, Ties ties) {
  ASSIGN_OR_RETURN(const std::vector<Neighbor> images, images_by_length(crystal, ties));
  const Matrix3 lattice = ties == Ties::kExact ? original_lattice(crystal.lattice) : crystal.lattice;
  std::array<CellImage, 3> chosen{};
  Matrix3 vectors{};
  size_t found = 0;
  for (const Neighbor& candidate : images) {
    const Vector3 vector = translation_of(lattice, candidate.image);
    if (found == 1 && length(cross(vectors[0], vector)) <= kParallel * length(vectors[0]) * length(vector)) continue;
    if (found == 2) {
      const double box = length(vectors[0]) * length(vectors[1]) * length(vector);
      if (std::abs(signed_volume({vectors[0], vectors[1], vector})) <= kParallel * box) continue;
    }
    chosen[found] = candidate.image;
    vectors[found] = vector;
    if (found > 0 && is_obtuse(vectors[0], vector, ties)) {
      reverse(chosen[found]);
      vectors[found] = translation_of(lattice, chosen[found]);
    }
    if (++found == 3) break;
  }
  if (signed_volume(vectors) < 0) std::for_each(chosen.begin(), chosen.end(), reverse);
  return chosen;
}

namespace {

// An edge and its reverse, represented by the one with source <= destination.
struct Pair {
  int32_t source;
  int32_t destination;
  CellImage image;

  auto operator<=>(const Pair&) const = default;
};

CellImage reversed(const CellImage& image) { return {-image[0], -image[1], -image[2]}; }

Result<std::vector<Pair>> pairs_of(const Crystal& crystal, const CrystalGraphOptions& options,
                                   const std::array<CellImage, 3>& loops) {
  std::vector<Pair> pairs;
  ASSIGN_OR_RETURN(const auto nearest, nearest_neighbors(crystal, options.nearest));
  for (int32_t site = 0; site < static_cast<int32_t>(nearest.size()); ++site) {
    for (const Neighbor& neighbor : nearest[static_cast<size_t>(site)]) {
      if (site <= neighbor.site) {
        pairs.push_back({.source = site, .destination = neighbor.site, .image = neighbor.image});
      } else {
        pairs.push_back({.source = neighbor.site, .destination = site, .image = reversed(neighbor.image)});
      }
    }
    if (!options.lattice_loops) continue;
    for (const CellImage& image : loops) pairs.push_back({.source = site, .destination = site, .image = image});
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

CrystalEdge edge_of(const Crystal& crystal, int32_t source, int32_t destination, const CellImage& image) {
  CrystalEdge edge{.source = source, .destination = destination, .image = image, .vector = {}};
  const Vector3 moved = translation_of(crystal.lattice, image);
  const Vector3& from = crystal.positions[static_cast<size_t>(source)];
  const Vector3& to = crystal.positions[static_cast<size_t>(destination)];
  for (size_t axis = 0; axis < 3; ++axis) edge.vector[axis] = static_cast<float>((moved[axis] + to[axis]) - from[axis]);
  return edge;
}

}  // namespace

Result<CrystalGraph> crystal_graph(const Crystal& crystal, const CrystalGraphOptions& options) {
  CrystalGraph graph;
  graph.numbers = crystal.numbers;
  using Images = std::array<CellImage, 3>;
  ASSIGN_OR_RETURN(const Images vectors, lattice_vectors(crystal, options.nearest.ties));
  ASSIGN_OR_RETURN(const std::vector<Pair> pairs, pairs_of(crystal, options, vectors));
  Crystal placed = crystal;
  if (options.nearest.ties == Ties::kExact) placed.lattice = original_lattice(crystal.lattice);
  for (size_t i = 0; i < 3; ++i) graph.lattice_vectors[i] = translation_of(placed.lattice, vectors[i]);
  for (const Pair& pair : pairs) {
    graph.edges.push_back(edge_of(placed, pair.source, pair.destination, pair.image));
    graph.edges.push_back(edge_of(placed, pair.destination, pair.source, reversed(pair.image)));
  }
  std::sort(graph.edges.begin(), graph.edges.end(), [](const CrystalEdge& a, const CrystalEdge& b) {
    return std::tie(a.destination, a.source, a.image) < std::tie(b.destination, b.source, b.image);
  });
  return graph;
}

}  // namespace oarlock::comformer

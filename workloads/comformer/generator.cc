#include "workloads/comformer/generator.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "trainer/data/random.h"
#include "workloads/comformer/crystal_graph.h"

namespace oarlock::comformer {

namespace {

struct WeightedElement {
  const char* symbol;
  double weight;
};

constexpr std::array<WeightedElement, 5> kElementWeights{
    {{"O", 1.0}, {"Mg", 1.6}, {"Si", 2.2}, {"Ti", 2.9}, {"Ba", 3.7}}};
constexpr double kDecay = 1.2;        // angstrom
constexpr double kReach = 12;         // angstrom; atoms beyond it contribute less than 1e-3 of the label
constexpr double kMinDistance = 1.6;  // angstrom, between two atoms

double uniform(SampleRandom& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.uniform());
}

// Box-Muller transform.
double normal(SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(random.uniform())));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(random.uniform()));
}

GeneratedCrystal cubic(int64_t number, SampleRandom& random) {
  constexpr std::array<const char*, 4> kMetals{"Mg", "Ca", "Sr", "Ba"};
  const double edge = 3.5 + static_cast<double>(number % 20) * 0.05;
  const char* metal = kMetals[static_cast<size_t>(number / 20 % 4)];
  return {.crystal = {.lattice = {{{edge, 0, 0}, {0, edge, 0}, {0, 0, edge}}},
                      .numbers = {*atomic_number(metal), *atomic_number("O")},
                      .positions = {{0, 0, 0}, {edge / 2, edge / 2, edge / 2}}},
          .label = -2.5 + 0.3 * (edge - 4) + 0.1 * normal(random)};
}

Matrix3 triclinic_cell(SampleRandom& random) {
  Matrix3 cell{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) cell[i][j] = i == j ? uniform(random, 3.5, 5.5) : uniform(random, -1, 1);
  }
  return cell;
}

bool too_close(const Crystal& crystal) {
  for (const auto& of_site : neighbors_within(crystal, kMinDistance)) {
    if (!of_site.empty()) return true;
  }
  return false;
}

double pair_label(const Crystal& crystal, const std::vector<double>& weights) {
  double sum = 0;
  const auto neighbors = neighbors_within(crystal, kReach);
  for (size_t site = 0; site < neighbors.size(); ++site) {
    for (const Neighbor& n : neighbors[site])
      sum += weights[site] * weights[static_cast<size_t>(n.site)] * std::exp(-n.distance / kDecay);
  }
  return sum / static_cast<double>(neighbors.size());
}

GeneratedCrystal triclinic(SampleRandom& random) {
  GeneratedCrystal out;
  Crystal& crystal = out.crystal;
  crystal.lattice = triclinic_cell(random);
  const auto atoms = static_cast<size_t>(2 + random.below(4));
  std::vector<double> weights;
  constexpr int kMaxTries = 200;  // more are unlikely to find a free position
  for (int tries = 0; weights.size() < atoms && tries < kMaxTries; ++tries) {
    const auto& [symbol, weight] = kElementWeights[static_cast<size_t>(random.below(kElementWeights.size()))];
    Vector3 position{};
    for (const Vector3& edge : crystal.lattice) {
      const double part = uniform(random, 0, 1);
      for (size_t axis = 0; axis < 3; ++axis) position[axis] += part * edge[axis];
    }
    crystal.numbers.push_back(*atomic_number(symbol));
    crystal.positions.push_back(position);
    if (too_close(crystal)) {
      crystal.numbers.pop_back();
      crystal.positions.pop_back();
    } else {
      weights.push_back(weight);
    }
  }
  out.label = pair_label(crystal, weights);
  return out;
}

}  // namespace

GeneratedCrystal generated_crystal(CrystalFamily family, int64_t number, uint64_t seed) {
  SampleRandom random(seed, number);
  return family == CrystalFamily::kCubic ? cubic(number, random) : triclinic(random);
}

std::string extxyz_frame(const GeneratedCrystal& generated, const std::string& target_property) {
  const Crystal& crystal = generated.crystal;
  std::string text = fmt::format("{}\nLattice=\"", crystal.numbers.size());
  for (size_t i = 0; i < 9; ++i) text += fmt::format("{}{}", i == 0 ? "" : " ", crystal.lattice[i / 3][i % 3]);
  text += fmt::format("\" Properties=species:S:1:pos:R:3 {}={} pbc=\"T T T\"\n", target_property, generated.label);
  for (size_t atom = 0; atom < crystal.numbers.size(); ++atom) {
    const Vector3& p = crystal.positions[atom];
    text += fmt::format("{} {:.8f} {:.8f} {:.8f}\n", element_symbol(crystal.numbers[atom]), p[0], p[1], p[2]);
  }
  return text;
}

}  // namespace oarlock::comformer

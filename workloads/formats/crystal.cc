#include "workloads/formats/crystal.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace oarlock {

namespace {

constexpr std::array<std::string_view, kElements> kSymbols{
    "H",  "He", "Li", "Be", "B",  "C",  "N",  "O",  "F",  "Ne", "Na", "Mg", "Al", "Si", "P",  "S",  "Cl",
    "Ar", "K",  "Ca", "Sc", "Ti", "V",  "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se",
    "Br", "Kr", "Rb", "Sr", "Y",  "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb",
    "Te", "I",  "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er",
    "Tm", "Yb", "Lu", "Hf", "Ta", "W",  "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At",
    "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U",  "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No",
    "Lr", "Rf", "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og"};

}  // namespace

std::optional<uint8_t> atomic_number(std::string_view symbol) {
  const auto* const found = std::find(kSymbols.begin(), kSymbols.end(), symbol);
  if (found == kSymbols.end()) return std::nullopt;
  return static_cast<uint8_t>(found - kSymbols.begin() + 1);
}

std::string_view element_symbol(uint8_t number) { return kSymbols.at(number - 1U); }

bool spans_volume(const Matrix3& lattice) {
  constexpr double kMinVolume = 1e-6;  // relative to the cuboid with the same edge lengths
  double cuboid = 1;
  for (const Vector3& edge : lattice) cuboid *= std::sqrt(dot(edge, edge));
  return std::isfinite(cuboid) && cuboid > 0 && std::abs(signed_volume(lattice)) > kMinVolume * cuboid;
}

}  // namespace oarlock

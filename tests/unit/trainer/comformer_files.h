// Files of crystals in tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "workloads/comformer/data.h"

namespace oarlock::comformer {

inline constexpr char kProperty[] = "formation_energy_per_atom";

inline Result<std::unique_ptr<CrystalSource>> opened(const std::filesystem::path& path, int64_t targets = 1) {
  return open_crystals({.path = path, .target_property = kProperty, .targets = targets});
}

inline void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace oarlock::comformer

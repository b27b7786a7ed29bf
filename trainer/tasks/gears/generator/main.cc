// oarlock-planted-cells: writes perturbed cells whose effects are known, as AnnData.
#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "trainer/tasks/gears/generator/planted_cells.h"
#include "trainer/tasks/generator/generator_program.h"

int main(int argc, char** argv) {
  CLI::App app("Write cells.h5ad and gene2go.json, perturbed cells whose effects are known, to train gears on.",
               "oarlock-planted-cells");
  std::string folder;
  oarlock::PlantedOptions options;
  app.add_option("folder", folder, "where the two files go; it is made")->required();
  app.add_option("--seed", options.seed, "the same seed gives the same cells")->capture_default_str();
  app.footer(
      "example:\n  oarlock-planted-cells data && cd data && oarlock-trainer -c ../examples/gears/simulation.yaml "
      "data.path=cells.h5ad");
  return oarlock::run_generator(app, argc, argv, [&]() -> oarlock::Result<void> {
    try {
      std::filesystem::create_directories(folder);
      const oarlock::Planted planted = oarlock::write_planted_cells(folder, options);
      fmt::print("{}/cells.h5ad: {} conditions, {} genes\n", folder, planted.conditions.size(), planted.genes.size());
      return {};
    } catch (const std::exception& error) {  // HDF5's and the file system's
      return oarlock::fail(oarlock::ExitCode::kCantCreate, fmt::format("{}: {}", folder, error.what()));
    }
  });
}

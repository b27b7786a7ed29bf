// oarlock-planted-cells: writes synthetic perturbed cells with known effects as AnnData.
#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "workloads/gears/generator.h"
#include "workloads/generator_program.h"

int main(int argc, char** argv) {
  CLI::App app("Write cells.h5ad and gene2go.json: synthetic perturbed cells with known effects, for the task gears.",
               "oarlock-planted-cells");
  std::string directory;
  oarlock::gears::PlantedOptions options;
  app.add_option("directory", directory, "directory of the two files; created if it does not exist")->required();
  app.add_option("--seed", options.seed, "random seed")->capture_default_str();
  app.footer(
      "example:\n  oarlock-planted-cells data && cd data && oarlock-trainer -c ../examples/gears/simulation.yaml "
      "data.path=cells.h5ad");
  return oarlock::run_generator(app, argc, argv, [&]() -> oarlock::Result<void> {
    try {
      std::filesystem::create_directories(directory);
      const oarlock::gears::Planted planted = oarlock::gears::write_planted_cells(directory, options);
      fmt::print("{}/cells.h5ad: {} conditions, {} genes\n", directory, planted.conditions.size(),
                 planted.genes.size());
      return {};
    } catch (const std::exception& error) {  // HDF5's and the file system's
      return oarlock::fail(oarlock::ExitCode::kCantCreate, fmt::format("{}: {}", directory, error.what()));
    }
  });
}

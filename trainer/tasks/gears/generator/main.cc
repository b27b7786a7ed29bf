// oarlock-planted-cells: writes perturbed cells whose effects are known, as AnnData.
#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <iostream>

#include "common/error.h"
#include "trainer/tasks/gears/generator/planted_cells.h"

int main(int argc, char** argv) {
  CLI::App app("Writes cells.h5ad and gene2go.json, perturbed cells whose effects are known, to train gears on");
  std::string folder;
  oarlock::PlantedOptions options;
  app.add_option("folder", folder, "where the two files go; it is made")->required();
  app.add_option("--seed", options.seed, "the same seed gives the same cells")->capture_default_str();
  app.footer(
      "\nexample:\n  oarlock-planted-cells data && cd data && oarlock-trainer -c ../examples/gears/simulation.yaml "
      "data.path=cells.h5ad");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;
    app.exit(error);
    return oarlock::to_int(asked ? oarlock::ExitCode::kOk : oarlock::ExitCode::kUsage);
  }
  try {
    std::filesystem::create_directories(folder);
    const oarlock::Planted planted = oarlock::write_planted_cells(folder, options);
    std::cout << folder << "/cells.h5ad: " << planted.conditions.size() << " conditions, " << planted.genes.size()
              << " genes\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << folder << ": " << error.what() << "\n";
    return oarlock::to_int(oarlock::ExitCode::kCantCreate);
  }
  return 0;
}

// oarlock-planted-cells FOLDER [SEED]: writes FOLDER/cells.h5ad and FOLDER/gene2go.json, data to try gears with.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#include "tests/support/planted_cells/planted_cells.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: oarlock-planted-cells FOLDER [SEED]\n";
    return 64;
  }
  try {
    std::filesystem::create_directories(argv[1]);
    oarlock::test::PlantedOptions options;
    if (argc == 3) options.seed = std::strtoull(argv[2], nullptr, 10);
    const auto planted = oarlock::test::write_planted_cells(argv[1], options);
    std::cout << argv[1] << "/cells.h5ad: " << planted.conditions.size() << " conditions, " << planted.genes.size()
              << " genes\n";
  } catch (const std::exception& error) {
    std::cerr << argv[1] << ": " << error.what() << "\n";
    return 73;
  }
  return 0;
}

// oarlock-crystals: writes synthetic crystals with a known property as an extended XYZ file.
#include <fmt/format.h>

#include <fstream>
#include <map>

#include "workloads/comformer/generator.h"
#include "workloads/generator_program.h"

int main(int argc, char** argv) {
  using oarlock::comformer::CrystalFamily;
  CLI::App app("Write synthetic crystals with a known property as extended XYZ, for the task comformer.",
               "oarlock-crystals");
  std::string path;
  std::string target = "formation_energy_per_atom";
  CrystalFamily family = CrystalFamily::kTriclinic;
  int64_t count = 1000;
  uint64_t seed = 42;
  app.add_option("file", path, "file to write")->required();
  app.add_option("--count", count, "crystals")->check(CLI::Range(1, 100'000'000))->capture_default_str();
  app.add_option("--seed", seed, "random seed")->capture_default_str();
  app.add_option("--target-property", target, "key of the property")->capture_default_str();
  app.add_option("--family", family, "triclinic: without noise; cubic: with the noise of ComFormer's own example")
      ->transform(CLI::CheckedTransformer(std::map<std::string, CrystalFamily>{{"triclinic", CrystalFamily::kTriclinic},
                                                                               {"cubic", CrystalFamily::kCubic}}));
  app.footer("example:\n  oarlock-crystals crystals.extxyz --count 600 --seed 1");
  return oarlock::run_generator(app, argc, argv, [&]() -> oarlock::Result<void> {
    std::ofstream out(path);
    for (int64_t i = 0; i < count && out; ++i)
      out << oarlock::comformer::extxyz_frame(oarlock::comformer::generated_crystal(family, i, seed), target);
    out.close();
    if (!out) return oarlock::fail(oarlock::ExitCode::kIoErr, path + ": cannot be written");
    fmt::print("{}: {} crystals with the property {}\n", path, count, target);
    return {};
  });
}

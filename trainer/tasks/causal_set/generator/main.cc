// oarlock-causal-sets: generated causal sets to try the task causal_set with.
#include <fmt/format.h>

#include "trainer/tasks/causal_set/generator/store_writer.h"
#include "trainer/tasks/generator/generator_program.h"

namespace {

constexpr char kDescription[] =
    "Write a zarr store of generated causal sets: sprinklings into a two-dimensional diamond (manifold_like 1) and\n"
    "Kleitman-Rothschild orders (manifold_like 0), in turn. A seed gives the same store everywhere.";

constexpr double kMostElements = 255;  // the numbers of the store are bytes

}  // namespace

int main(int argc, char** argv) {
  oarlock::GeneratedStore store;
  std::string output;
  CLI::App app(kDescription, "oarlock-causal-sets");
  app.add_option("output", output, "the folder to make")->required();
  app.add_option("--samples", store.samples, "causal sets")->check(CLI::Range(1, 10'000'000))->capture_default_str();
  app.add_option("--min-elements", store.fewest_elements, "of a causal set")
      ->check(CLI::Range(4.0, kMostElements))
      ->capture_default_str();
  app.add_option("--max-elements", store.most_elements, "of a causal set")
      ->check(CLI::Range(4.0, kMostElements))
      ->capture_default_str();
  app.add_option("--seed", store.seed, "of all that is random")->capture_default_str();
  app.add_flag("--reversed", store.reversed, "write the axes in the opposite order, as Julia does");
  app.footer("example:\n  oarlock-causal-sets diamonds.zarr --samples 2000 --max-elements 96 --seed 1");
  return oarlock::run_generator(app, argc, argv, [&]() -> oarlock::Result<void> {
    if (store.fewest_elements > store.most_elements) {
      return oarlock::fail(oarlock::ExitCode::kUsage, fmt::format("--min-elements {} is above --max-elements {}",
                                                                  store.fewest_elements, store.most_elements));
    }
    return oarlock::write_generated_store(output, store);
  });
}

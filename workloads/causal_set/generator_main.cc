// oarlock-causal-sets: writes synthetic causal sets for the task causal_set.
#include <fmt/format.h>

#include "workloads/causal_set/generator.h"
#include "workloads/generator_program.h"

namespace {

constexpr char kDescription[] =
    "Write a zarr store of synthetic causal sets: sprinklings into a two-dimensional diamond (manifold_like 1) and\n"
    "Kleitman-Rothschild orders (manifold_like 0), alternating. A seed gives the same store on every machine.";

constexpr double kMaxElements = 255;  // the arrays of the store are bytes

}  // namespace

int main(int argc, char** argv) {
  oarlock::causal_set::GeneratedStore store;
  std::string output;
  CLI::App app(kDescription, "oarlock-causal-sets");
  app.add_option("output", output, "directory to create")->required();
  app.add_option("--samples", store.samples, "causal sets")->check(CLI::Range(1, 10'000'000))->capture_default_str();
  app.add_option("--min-elements", store.min_elements, "of a causal set")
      ->check(CLI::Range(4.0, kMaxElements))
      ->capture_default_str();
  app.add_option("--max-elements", store.max_elements, "of a causal set")
      ->check(CLI::Range(4.0, kMaxElements))
      ->capture_default_str();
  app.add_option("--seed", store.seed, "random seed")->capture_default_str();
  app.add_flag("--reversed", store.reversed, "write the axes in the opposite order, as Julia does");
  app.footer("example:\n  oarlock-causal-sets diamonds.zarr --samples 2000 --max-elements 96 --seed 1");
  return oarlock::run_generator(app, argc, argv, [&]() -> oarlock::Result<void> {
    if (store.min_elements > store.max_elements) {
      return oarlock::fail(oarlock::ExitCode::kUsage, fmt::format("--min-elements {} is above --max-elements {}",
                                                                  store.min_elements, store.max_elements));
    }
    return oarlock::causal_set::write_generated_store(output, store).map([&] {
      fmt::print("{}: {} causal sets of {} to {} elements\n", output, store.samples, store.min_elements,
                 store.max_elements);
    });
  });
}

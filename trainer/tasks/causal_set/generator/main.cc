// oarlock-causal-sets: generated causal sets to try the task causal_set with.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>

#include "trainer/tasks/causal_set/generator/store_writer.h"

namespace {

constexpr char kDescription[] =
    "Write a zarr store of generated causal sets: sprinklings into a two-dimensional diamond (manifold_like 1) and\n"
    "Kleitman-Rothschild orders (manifold_like 0), in turn. A seed gives the same store everywhere.";

constexpr double kMostElements = 255;  // the numbers of the store are bytes

int run(int argc, char** argv) {
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : (app.exit(error), to_int(oarlock::ExitCode::kUsage));
  }
  if (store.fewest_elements > store.most_elements) {
    fmt::print(stderr, "oarlock-causal-sets: error: --min-elements {} is above --max-elements {}\n",
               store.fewest_elements, store.most_elements);
    return to_int(oarlock::ExitCode::kUsage);
  }
  const oarlock::Result<void> written = oarlock::write_generated_store(output, store);
  if (written) return 0;
  fmt::print(stderr, "oarlock-causal-sets: error: {}\n", written.error().message);
  return to_int(written.error().code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "oarlock-causal-sets: error: {}; this is a bug, please report it\n", error.what());
    return to_int(oarlock::ExitCode::kSoftware);
  }
}

// oarlock-bench-load: the load generator of scripts/bench operator. It uses the operator's own HTTP client, so that a
// raw loop of creates and the operator differ in their requests, not in their client.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/bench/operator/burst.h"
#include "tests/bench/operator/purge.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Creates and removes objects in bulk, for scripts/bench operator.", "oarlock-bench-load");
  app.require_subcommand(1);
  std::string kubeconfig;
  app.add_option("--kubeconfig", kubeconfig)->required()->check(CLI::ExistingFile);

  std::string plan;
  CLI::App* burst = app.add_subcommand("burst", "Creates the jobs of a plan and prints the times as JSON");
  burst->add_option("PLAN", plan, "JSON: see BurstPlan")->required()->check(CLI::ExistingFile);

  std::vector<std::string> lists;
  int concurrency = 16;
  CLI::App* purge = app.add_subcommand("purge", "Empties lists, such as /api/v1/namespaces/x/pods");
  purge->add_option("LIST", lists)->required();
  purge->add_option("--concurrency", concurrency)->check(CLI::Range(1, 64))->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : oarlock::to_int(oarlock::ExitCode::kUsage);
  }

  oarlock::bench::Server server(kubeconfig, "oarlock-bench-load");
  if (burst->parsed()) {
    std::ifstream file(plan);
    const auto result = run_burst(server, oarlock::bench::burst_plan(nlohmann::json::parse(file)));
    std::printf("%s\n", to_json(result).dump().c_str());
  } else {
    oarlock::bench::purge(server, lists, concurrency);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return oarlock::to_int(oarlock::ExitCode::kFailure);
  }
}

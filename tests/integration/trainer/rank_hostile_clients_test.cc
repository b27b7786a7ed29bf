// Hostile clients of a training rank's HTTP server. A minute for each attack: OARLOCK_HOSTILE_SECONDS=60; only some of
// them: OARLOCK_HOSTILE_ATTACK="slow readers".
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/integration/trainer/run_support.h"
#include "tests/support/hostile_clients.h"

namespace oarlock::test {
namespace {

// A rank's server prefers the training to its clients: when the CPU budget of its I/O thread is used up, new
// connections wait.
constexpr double kHealthLimit = 10;
constexpr double kScrapeLimit = 20;

// More steps than any machine takes during the attacks.
constexpr char kConfig[] =
    "task: tiny\nsteps: 1000000000\nbatch: {size: 16}\neval: {every_epochs: 0}\nlog: {every_steps: 10}\n"
    "model: {hidden: 2000}\n";

int64_t step_of(int port) {
  const auto status = rank_status_from_json(http_get(port, kStatusPath));
  return status ? status->step : -1;
}

TEST(RankHostileClients, TrainingContinuesWithinTheLimits) {
  TrainerRanks ranks(1, {.config = kConfig, .arguments = {"--metrics-port", "auto"}, .environment = {}, .folder = {}});
  ASSERT_TRUE(wait_for_step(ranks, 20));
  const int port = ranks.metrics_port(0);
  const auto get = [&](const std::string& target) { return raw_get(port, target); };
  // Steps per second during a measurement with this attack.
  const auto measure = [&](const Attack& attack) {
    SCOPED_TRACE(attack.name);
    const int64_t before = step_of(port);
    const auto began = std::chrono::steady_clock::now();
    expect_unharmed(measure_attack(ranks.rank(0).pid(), port, attack, get), kHealthLimit, kScrapeLimit);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return static_cast<double>(step_of(port) - before) / seconds;
  };
  for (const Attack& attack : attacks_on_http()) {
    const double undisturbed = measure({.name = "no attack", .clients = 0});
    const double attacked = measure(attack);
    std::printf("training: %.1f steps/s, attacked %.1f (%+.1f %%)\n", undisturbed, attacked,
                100 * (attacked / undisturbed - 1));
    EXPECT_GT(attacked, 0);
  }
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.rank(0).wait(), 75);
}

}  // namespace
}  // namespace oarlock::test

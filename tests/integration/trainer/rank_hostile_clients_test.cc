// Hostile clients of a training rank's HTTP server. A minute for each attack: OARLOCK_HOSTILE_SECONDS=60; only some of
// them: OARLOCK_HOSTILE_ATTACK="slow readers".
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

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

// Seconds for which the training thread was ready to run and had no CPU. Unlike the speed of the training, their share
// does not depend on the other virtual machines of the host.
double seconds_without_cpu(pid_t rank) {
  std::istringstream schedstat(content(fmt::format("/proc/{0}/task/{0}/schedstat", rank)));
  double running = 0;
  double waiting = 0;
  schedstat >> running >> waiting;
  return waiting / 1e9;
}

// During a measurement.
struct Training {
  double steps_per_second;
  double share_without_cpu;
};

TEST(RankHostileClients, TrainingContinuesWithinTheLimits) {
  TrainerRanks ranks(1,
                     {.config = kConfig, .arguments = {"--metrics-port", "auto"}, .environment = {}, .directory = {}});
  ASSERT_TRUE(wait_for_step(ranks, 20));
  const int port = ranks.metrics_port(0);
  const auto get = [&](const std::string& target) { return raw_get(port, target); };
  const auto measure = [&](const Attack& attack) {
    SCOPED_TRACE(attack.name);
    const int64_t before = step_of(port);
    const double waited = seconds_without_cpu(ranks.rank(0).pid());
    const auto began = std::chrono::steady_clock::now();
    expect_unharmed(measure_attack(ranks.rank(0).pid(), port, attack, get), kHealthLimit, kScrapeLimit);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return Training{static_cast<double>(step_of(port) - before) / seconds,
                    (seconds_without_cpu(ranks.rank(0).pid()) - waited) / seconds};
  };
  for (const Attack& attack : attacks_on_http()) {
    const Training undisturbed = measure({.name = "no attack", .clients = 0});
    const Training attacked = measure(attack);
    std::printf(
        "training: %.1f steps/s, attacked %.1f (%+.1f %%); without a CPU for %.2f %% of the time, attacked %.2f %%\n",
        undisturbed.steps_per_second, attacked.steps_per_second,
        100 * (attacked.steps_per_second / undisturbed.steps_per_second - 1), 100 * undisturbed.share_without_cpu,
        100 * attacked.share_without_cpu);
    EXPECT_GT(attacked.steps_per_second, 0);
  }
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.rank(0).wait(), 75);
}

}  // namespace
}  // namespace oarlock::test

// oarlock-bench-telemetry: cost of metrics, progress and logging for the training thread in nanoseconds per step, with
// the calls of the training loop and a log line every 50 steps. Prints one line of JSON.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "trainer/telemetry/telemetry.h"

int main(int argc, char** argv) {
  using namespace oarlock;
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200000;
  constexpr int64_t kLogEvery = 50;
  if (steps < 1) {
    std::fprintf(stderr, "oarlock-bench-telemetry: error: STEPS must be at least 1\n");
    return 64;
  }
  const RealClock clock;
  const Logger logger(LogFormat::kJson, LogLevel::kInfo);
  TelemetryOptions options;
  options.world_size = 2;
  options.log_every_steps = kLogEvery;
  Telemetry telemetry(options, logger, clock);
  if (!telemetry.serve(0)) return 69;
  telemetry.begin(0, steps, 0, 0);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= steps; ++step) {
    for (const Phase phase : {Phase::kDataWait, Phase::kForward, Phase::kBackward, Phase::kOptimizer, Phase::kOther}) {
      telemetry.enter(phase);
    }
    telemetry.record_gradient_reduction(1, 532480);
    telemetry.record_step({.step = step,
                           .epoch = 0,
                           .local_samples = 32,
                           .global_samples = 64,
                           .seconds = 0.001,
                           .learning_rate = 0.001,
                           .collective_sequence = step,
                           .data_bytes = 8192,
                           .flops = 1e6,
                           .batches_ready = 2});
    if (step % kLogEvery == 0) telemetry.record_loss(1.5);
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  fmt::print("{{\"nanoseconds_per_step\": {}}}\n", spent.count() / static_cast<double>(steps));
  return 0;
}

// oarlock-bench-tracking: CPU time that experiment tracking takes per step, for a point after each step as the
// training loop reports it. Prints one line of JSON: the processor time of the training thread, which makes the points
// and queues them, that of all other threads of the process (writing, encoding, requests; until the points are
// delivered or the limit for this has passed), and how long the training thread was in the calls.
#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/engine/run_tracking.h"

namespace {

using namespace oarlock;

int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// The values of a step of a run without gradient clipping and loss scale.
Scalars point(int64_t step) {
  const double value = 1.0 / static_cast<double>(step);
  return {{{"loss", value},
           {"epoch", 0.01 * static_cast<double>(step)},
           {"learning_rate", 0.001},
           {"samples_per_second", 20000 + value},
           {"time/data_wait", 1e-5 + 1e-3 * value},
           {"time/forward", 1e-3 + 1e-3 * value},
           {"time/backward", 2e-3 + 1e-3 * value},
           {"time/comm", 1e-4 + 1e-3 * value},
           {"time/optimizer", 1e-4 + 1e-3 * value},
           {"time/checkpoint", 0}}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || std::atoll(argv[1]) < 1 || std::atoll(argv[2]) < 0) {
    std::fprintf(stderr,
                 "usage: oarlock-bench-tracking STEPS MICROSECONDS_PER_STEP DIRECTORY [MLFLOW_URI]\n"
                 "Reports to TensorBoard; with MLFLOW_URI to W&B and MLflow, too. Example:\n"
                 "  oarlock-bench-tracking 4000 3000 /tmp/run http://127.0.0.1:5000\n");
    return 64;
  }
  const int64_t steps = std::atoll(argv[1]);
  const std::chrono::microseconds pace(std::atoll(argv[2]));
  const std::string directory = argv[3];
  RunTrackingOptions options{.config = {}, .checkpoint_dir = directory, .run = {}};
  options.config.tensorboard.enabled = true;
  if (argc > 4) {
    options.config.wandb.enabled = true;
    options.config.mlflow.enabled = true;
    options.config.mlflow.uri = argv[4];
  }
  options.run.name = options.run.task = "bench";
  const RealClock clock;
  const Logger logger(LogFormat::kText, LogLevel::kWarn);
  auto tracking = RunTracking::open(options, logger, clock);
  if (!tracking) {
    std::fprintf(stderr, "oarlock-bench-tracking: error: %s\n", tracking.error().message.c_str());
    return 78;
  }
  (*tracking)->start(0);
  const int64_t process_begin = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
  const int64_t thread_begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  int64_t spent = 0;
  int64_t elapsed = 0;
  auto next = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= steps; ++step) {
    const int64_t spent_before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const int64_t elapsed_before = nanoseconds(CLOCK_MONOTONIC);
    (*tracking)->add_scalars(step, point(step));
    elapsed += nanoseconds(CLOCK_MONOTONIC) - elapsed_before;
    spent += nanoseconds(CLOCK_THREAD_CPUTIME_ID) - spent_before;
    std::this_thread::sleep_until(next += pace);
  }
  const StopFlag stop;
  RunFinished finished;
  finished.success = true;
  (*tracking)->finish(steps, std::move(finished), true, stop);
  const int64_t process = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - process_begin;
  const int64_t others = process - (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - thread_begin);
  fmt::print("{{\"training_thread_ns\": {}, \"other_threads_ns\": {}, \"call_ns\": {}}}\n", spent / steps,
             others / steps, elapsed / steps);
  return 0;
}

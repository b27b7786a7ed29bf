// Everything that a run tells about itself while it goes on: metrics, /statusz, log lines and the progress line. The
// training loop reports events here and knows nothing of where they go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/http/server.h"
#include "common/log.h"
#include "trainer/telemetry/metrics.h"
#include "trainer/telemetry/phase_clock.h"
#include "trainer/telemetry/progress.h"
#include "trainer/telemetry/status.h"
#include "trainer/telemetry/throughput.h"

namespace oarlock {

struct TelemetryOptions {
  int rank = 0;
  int world_size = 1;
  int attempt = 0;
  std::string uid;  // of the job; may be empty
  int64_t log_every_steps = 50;
  BuildInfo build;
  RunInfo run;
  ProgressLine::Writer progress;  // empty: no progress line
};

// The server's threads read what the training thread writes; the methods belong to the training thread.
class Telemetry {
 public:
  // The clock must outlive the telemetry.
  Telemetry(TelemetryOptions options, const Logger& logger, const Clock& clock);
  ~Telemetry();  // stops the server

  // Serves /metrics, /statusz and /healthz on all addresses; port 0 picks one. kUnavailable when the port is taken.
  // /statusz?uid=U is 404 for a job of another uid: on the host's network another job may have the port that the
  // operator expects.
  Result<int> serve(int port);

  void enter(Phase phase);  // what the time from now on is spent on
  void rendezvous_done(double seconds);
  void begin(int64_t step, int64_t target_steps, int64_t epoch, int64_t epochs);  // epochs 0: the length is in steps
  void step_done(const StepReport& report);
  void loss_known(double loss);  // mean over the ranks, of the last step
  void evaluated(const std::map<std::string, double>& metrics);
  void pass_done(const std::string& name, const std::map<std::string, double>& metrics);  // besides the evaluation
  void checkpoint_saved(int64_t step, const std::string& folder, int64_t bytes, double seconds);
  // lost_steps: done before the crash, beyond the checkpoint.
  void checkpoint_restored(int64_t step, const std::string& folder, double seconds, int64_t lost_steps);
  void checkpoint_known(int64_t step);  // on the ranks that neither write nor read it
  void checkpoint_failed(bool save);
  // Steps since the last call, at least one, and the first of them: not taken, as loss or gradient was not finite; and
  // with a loss that was not finite.
  void steps_skipped(int64_t steps, int64_t first_step);
  void losses_not_finite(int64_t steps, int64_t first_step);
  void gradient_norm_known(double norm) { metrics_.set_gradient_norm(norm); }  // of the last step
  void peer_lost();
  void parameters_checked(bool equal) { metrics_.parameters_checked(equal); }
  void gradients_reduced(int64_t buckets, int64_t bytes) { metrics_.gradients_reduced(buckets, bytes); }
  void data_queue(int64_t capacity) { metrics_.set_data_queue_capacity(capacity); }
  void data_failed() { metrics_.data_failed(); }
  void device(double peak_flops) { metrics_.set_peak_flops(peak_flops); }  // a second
  void device_memory(const DeviceMemoryReport& memory) { metrics_.set_device_memory(memory); }
  void finished(bool success);

  const Logger& logger() {
    progress_.clear();
    return logger_;
  }
  RankStatus status() const { return status_.get(); }
  std::string_view phase() const { return kPhaseNames[static_cast<size_t>(phases_.phase())]; }  // any thread
  double samples_per_second() const { return throughput_.samples_per_second(); }

 private:
  void warn_of_nonfinite(const char* message, int64_t steps, int64_t first_step);

  TelemetryOptions options_;
  Logger logger_;
  const Clock& clock_;
  PhaseClock phases_;
  TrainerMetrics metrics_;
  StatusBoard status_;
  ProgressLine progress_;
  Throughput throughput_;
  ProgressView view_;
  std::string_view status_phase_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace oarlock

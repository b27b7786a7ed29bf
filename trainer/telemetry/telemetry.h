// Everything that a run reports while it is in progress: metrics, /statusz, log lines and the progress line. The
// training loop reports events here and does not depend on their destinations.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/log.h"
#include "common/status_query.h"
#include "http/server.h"
#include "trainer/telemetry/metrics.h"
#include "trainer/telemetry/progress.h"

namespace oarlock {

// The document behind /statusz. Thread-safe: the training thread writes it, and the server's threads read it.
class StatusBoard {
 public:
  // The clock must outlive the board.
  StatusBoard(RankStatus initial, const Clock& clock) : status_(std::move(initial)), clock_(clock) {
    status_.updated_at = to_rfc3339(clock_.now());
  }

  // Calls change(RankStatus&) under the lock, and sets the time of the update.
  template <typename Change>
  void update(Change&& change) {
    const SystemTime now = clock_.now();
    const std::lock_guard lock(mutex_);
    change(status_);
    updated_ = now;
  }

  RankStatus get() const {
    const std::lock_guard lock(mutex_);
    RankStatus copy = status_;
    if (updated_ != SystemTime{}) copy.updated_at = to_rfc3339(updated_);  // formatted on read, not in every step
    return copy;
  }

 private:
  mutable std::mutex mutex_;
  RankStatus status_;
  SystemTime updated_;  // the epoch if there was no update
  const Clock& clock_;
};

struct TelemetryOptions {
  int rank = 0;
  int world_size = 1;
  int attempt = 0;
  std::string uid;  // of the job; may be empty
  std::optional<InPodRestarts> in_pod_restarts{};
  int64_t log_every_steps = 50;
  BuildInfo build;
  RunInfo run;
  ProgressOutput progress;            // empty: no progress line, and all results go to the log
  std::string monitor;                // the metric that is shown first; may be empty
  std::optional<SteadyTime> begin{};  // of the first phase; otherwise it begins with the telemetry
};

// All methods except phase(), status() and print() must be called on the training thread.
class Telemetry {
 public:
  // The clock must outlive the telemetry.
  Telemetry(TelemetryOptions options, const Logger& logger, const Clock& clock);
  ~Telemetry();  // stops the server

  // Serves /metrics, /statusz and /healthz on all addresses and returns the port. Port 0 selects a free port.
  // kUnavailable if the port is in use. /statusz?uid=U returns 404 if U is the uid of another job, because on the
  // host's network another job may listen on the port that the operator expects. It also accepts requests for a
  // checkpoint.
  Result<int> serve(int port);

  // Returns whether a request for a checkpoint has been accepted since the last call. Thread-safe.
  bool take_checkpoint_request() { return is_checkpoint_requested_.exchange(false); }

  // From now on time is attributed to `phase`.
  void enter(Phase phase);

  // ---- training ----
  void record_rendezvous(double seconds);
  // `epochs` is 0 if the length of the run is given in steps.
  void begin(int64_t step, int64_t target_steps, int64_t epoch, int64_t epochs);
  void record_step(const StepReport& report);
  void record_loss(double loss);                                                // mean over the ranks, of the last step
  void record_gradient_norm(double norm) { metrics_.set_gradient_norm(norm); }  // of the last step
  void record_gradient_reduction(int64_t buckets, int64_t bytes) { metrics_.record_gradient_reduction(buckets, bytes); }
  void record_parameter_check(bool equal) { metrics_.record_parameter_check(equal); }
  // Record steps since the last call, at least one: those that were skipped because the loss or a gradient was not
  // finite, and those whose loss was not finite. `first_step` is the first of them.
  void record_skipped_steps(int64_t steps, int64_t first_step);
  void record_nonfinite_losses(int64_t steps, int64_t first_step);
  void record_peer_lost();
  // The number of ranks of the group that this rank is in.
  void set_world_size(int world_size);
  // A recovery without a checkpoint, after which `ranks` are new processes. It is logged on one rank.
  void record_recovery(const std::string& ranks, const std::string& reason, double seconds, bool log);
  // As record_recovery(), after which the group has another number of ranks.
  void record_resize(int before, int world_size, const std::string& reason, double seconds, bool log);
  // On a rank that replaces a lost one: the recoveries before it was started.
  void set_earlier_recoveries(int64_t recoveries, double seconds);
  // Ends the last phase: the phases have the same seconds from then on, in the report and in /metrics.
  void finish(bool success);

  // ---- evaluation ----
  void record_evaluation(const std::map<std::string, double>& metrics);
  void record_pass(const std::string& name, const std::map<std::string, double>& metrics);  // any other pass

  // ---- checkpoints ----
  void record_checkpoint_saved(int64_t step, const std::string& directory, int64_t bytes, double seconds);
  // `lost_steps` were done after the checkpoint by an earlier attempt.
  void record_checkpoint_restored(int64_t step, const std::string& directory, double seconds, int64_t lost_steps);
  void record_known_checkpoint(int64_t step);  // on ranks that neither write nor read the checkpoint
  void record_checkpoint_failure(bool save);   // `save` is false for a restore

  // ---- data and device ----
  void set_data_queue_capacity(int64_t capacity) { metrics_.set_data_queue_capacity(capacity); }
  void record_data_error() { metrics_.record_data_error(); }
  void set_peak_flops(double peak_flops) { metrics_.set_peak_flops(peak_flops); }  // per second
  void set_device_memory(const DeviceMemoryReport& memory) { metrics_.set_device_memory(memory); }

  // ---- terminal ----
  // Returns whether results are printed as text for a person at a terminal; otherwise they are logged.
  bool is_watched() const { return progress_.is_enabled(); }
  // Prints lines above the progress line. Does nothing unless is_watched().
  void print(const std::vector<std::string>& lines) { progress_.print(lines); }

  // Erases the progress line before the caller logs.
  const Logger& logger() {
    progress_.clear();
    return logger_;
  }
  RankStatus status() const { return status_.get(); }
  std::string_view phase() const { return kPhaseNames[static_cast<size_t>(phases_.phase())]; }
  // Seconds of this process in each phase, indexed as kPhaseNames; together the time from TelemetryOptions::begin to
  // now, or to finish().
  std::array<double, kPhaseNames.size()> phase_seconds() const { return phases_.seconds(); }
  double samples_per_second() const { return throughput_.samples_per_second(); }

 private:
  RankStatus status_with_usage() const;  // called by the server's threads
  void show_activity(const std::stop_token& stop);
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
  mutable std::mutex setup_mutex_;
  std::optional<std::array<double, kPhaseNames.size()>> setup_seconds_;  // phase_seconds() before the first step
  CheckpointRequests checkpoint_requests_;
  std::atomic<bool> is_checkpoint_requested_ = false;
  std::unique_ptr<HttpServer> server_;
  std::jthread activity_;  // last member: joined before the others are destroyed
};

}  // namespace oarlock

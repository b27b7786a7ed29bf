#include "trainer/telemetry/telemetry.h"

#include <fmt/format.h>

#include <cmath>
#include <condition_variable>
#include <optional>

#include "common/contract.h"
#include "common/work_progress.h"
#include "http/metrics.h"

namespace oarlock {
namespace {

std::string_view status_phase(Phase phase) {
  switch (phase) {
    case Phase::kStartup:
    case Phase::kRendezvous:
      return "rendezvous";
    case Phase::kRestore:
      return "restore";
    case Phase::kEval:
      return "eval";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kDataWait:
    case Phase::kForward:
    case Phase::kBackward:
    case Phase::kComm:
    case Phase::kOptimizer:
    case Phase::kOther:
      return "train";
  }
  return "train";
}

constexpr auto kActivityInterval = std::chrono::milliseconds(250);
constexpr auto kShortActivity = std::chrono::milliseconds(500);  // not worth a line
constexpr size_t kMaxMetrics = 6;                                // in a line for people

// Returns the text for users about a phase that is not part of a training step; empty for other phases.
std::string_view activity_name(Phase phase) {
  switch (phase) {
    case Phase::kStartup:
      return "starting";
    case Phase::kRendezvous:
      return "connecting the ranks";
    case Phase::kRestore:
      return "preparing data and model";
    case Phase::kEval:
      return "evaluation";
    case Phase::kCheckpoint:
      return "saving the checkpoint";
    default:
      return "";
  }
}

WorkProgress work_of(Phase phase) {
  if (phase == Phase::kRestore) return work_progress(LongWork::kPrepareData);
  if (phase == Phase::kEval) return work_progress(LongWork::kEvaluate);
  return phase == Phase::kCheckpoint ? work_progress(LongWork::kSave) : WorkProgress{};
}

RankStatus initial_status(const TelemetryOptions& options) {
  RankStatus status;
  status.rank = options.rank;
  status.world_size = options.world_size;
  status.attempt = options.attempt;
  status.phase = "rendezvous";
  status.in_pod_restarts = options.in_pod_restarts;
  return status;
}

// Ranks that have trained connect to each other and exchange their state again after the loss of a rank: `setup` is the
// time of both before.
UsageSeconds usage_of(const std::array<double, kPhaseNames.size()>& seconds,
                      const std::array<double, kPhaseNames.size()>& setup) {
  UsageSeconds out;
  for (size_t i = 0; i < seconds.size(); ++i) {
    switch (static_cast<Phase>(i)) {
      case Phase::kStartup:
        out[UsageClass::kStarting] += seconds[i];
        break;
      case Phase::kRendezvous:
      case Phase::kRestore: {
        const bool is_restore = static_cast<Phase>(i) == Phase::kRestore;
        out[is_restore ? UsageClass::kRestore : UsageClass::kRendezvous] += setup[i];
        out[UsageClass::kRecovery] += seconds[i] - setup[i];
        break;
      }
      case Phase::kEval:
        out[UsageClass::kEvaluation] += seconds[i];
        break;
      case Phase::kCheckpoint:
        out[UsageClass::kCheckpoint] += seconds[i];
        break;
      case Phase::kDataWait:
      case Phase::kForward:
      case Phase::kBackward:
      case Phase::kComm:
      case Phase::kOptimizer:
      case Phase::kOther:
        out[UsageClass::kProductive] += seconds[i];
        break;
    }
  }
  return out;
}

}  // namespace

Telemetry::Telemetry(TelemetryOptions options, const Logger& logger, const Clock& clock)
    : options_(std::move(options)),
      logger_(logger),
      clock_(clock),
      phases_(clock, options_.begin.value_or(clock.steady())),
      metrics_(options_.rank, options_.world_size, options_.build, options_.run),
      status_(initial_status(options_), clock),
      progress_(options_.progress, clock),
      status_phase_("rendezvous"),
      checkpoint_requests_(options_.uid, clock) {
  if (is_watched()) activity_ = std::jthread([this](const std::stop_token& stop) { show_activity(stop); });
}

Telemetry::~Telemetry() = default;

Result<int> Telemetry::serve(int port) {
  const HttpHandler exposition = metrics_handler(metrics_.registry());
  HttpRoutes routes;
  routes.emplace(kMetricsPath, [this, exposition](const std::string& query) {
    metrics_.set_phases(phases_.seconds());
    return exposition(query);
  });
  const HttpHandler status = [this](const std::string& text) {
    const StatusQuery query = parse_status_query(text);
    if (!query.uid.empty() && query.uid != options_.uid)
      return HttpResponse{404, "text/plain; charset=utf-8", "this server belongs to another job\n"};
    if (checkpoint_requests_.add(query)) is_checkpoint_requested_ = true;
    return HttpResponse{200, "application/json", to_json(status_with_usage()) + "\n"};
  };
  const HttpHandler health = [](const std::string&) { return HttpResponse{200, "text/plain; charset=utf-8", "ok\n"}; };
  routes.emplace(kStatusPath, HttpRoute(status, HandlerKind::kImmediate));
  routes.emplace("/healthz", HttpRoute(health, HandlerKind::kImmediate));
  const HttpServerOptions server_options{.limits = {.has_lowest_priority = true}};  // the training precedes its clients
  return HttpServer::start("::", port, routes, server_options).map([this](std::unique_ptr<HttpServer> server) {
    server_ = std::move(server);
    return server_->port();
  });
}

RankStatus Telemetry::status_with_usage() const {
  RankStatus out = status_.get();
  const auto seconds = phases_.seconds();
  const std::lock_guard lock(setup_mutex_);
  out.usage_seconds = usage_of(seconds, setup_seconds_.value_or(seconds));
  return out;
}

void Telemetry::enter(Phase phase) {
  phases_.enter(phase);
  const std::string_view name = status_phase(phase);
  if (name == status_phase_) return;  // most transitions are within a step
  status_phase_ = name;
  status_.update([&](RankStatus& status) { status.phase = name; });
}

// Runs on a separate thread, because the training thread waits during such work.
void Telemetry::show_activity(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  std::optional<Phase> shown;
  SteadyTime begin = clock_.steady();
  while (!stop.stop_requested()) {
    const Phase phase = phases_.phase();
    const SteadyTime now = clock_.steady();
    if (phase != shown) begin = now;
    shown = phase;
    const std::string_view name = activity_name(phase);
    if (!name.empty() && now - begin >= kShortActivity) {
      const WorkProgress work = work_of(phase);
      // Work that is complete is that of an earlier phase, or the rest has no measure.
      const bool is_measured = work.done < work.total;
      progress_.show(ActivityView{.name = name,
                                  .done = is_measured ? work.done : 0,
                                  .total = is_measured ? work.total : 0,
                                  .seconds = std::chrono::duration<double>(now - begin).count()});
    }
    wake.wait_for(lock, stop, kActivityInterval, [] { return false; });
  }
}

void Telemetry::record_rendezvous(double seconds) { metrics_.record_rendezvous(seconds); }

void Telemetry::begin(int64_t step, int64_t target_steps, int64_t epoch, int64_t epochs) {
  {
    const std::lock_guard lock(setup_mutex_);
    if (!setup_seconds_) setup_seconds_ = phases_.seconds();
  }
  view_.epoch = epoch;
  view_.step = step;
  view_.target_steps = target_steps;
  view_.epochs = epochs;
  metrics_.set_step(step);
  metrics_.set_target_steps(target_steps);
  status_.update([&](RankStatus& status) {
    status.step = step;
    status.target_steps = target_steps;
  });
}

void Telemetry::record_step(const StepReport& report) {
  throughput_.add_step(report.global_samples, report.seconds);
  metrics_.record_step(report, clock_.now());
  status_.update([&](RankStatus& status) {
    status.step = report.step;
    status.last_step_seconds = report.seconds;
    status.samples_per_second = throughput_.samples_per_second();
    status.collective_sequence = report.collective_sequence;
  });
  view_.step = report.step;
  view_.epoch = report.epoch;
  view_.learning_rate = report.learning_rate;
  view_.samples_per_second = throughput_.samples_per_second();
  view_.seconds_per_step = throughput_.seconds_per_step();
  if (is_watched()) progress_.show(view_);
}

void Telemetry::record_loss(double loss) {
  view_.loss = loss;
  metrics_.set_loss(loss);
  status_.update(
      [&](RankStatus& status) { status.loss = std::isfinite(loss) ? std::optional<double>(loss) : std::nullopt; });
  if (is_watched()) return;  // the progress line shows the loss
  logger_.info("step", {{"step", view_.step},
                        {"target_steps", view_.target_steps},
                        {"epoch", shown_epoch(view_)},
                        {"loss", loss},
                        {"learning_rate", view_.learning_rate},
                        {"samples_per_second", view_.samples_per_second}});
}

void Telemetry::record_evaluation(const std::map<std::string, double>& metrics) {
  if (const auto loss = metrics.find("loss"); loss != metrics.end()) metrics_.set_validation_loss(loss->second);
  record_pass("evaluation", metrics);
}

void Telemetry::record_pass(const std::string& name, const std::map<std::string, double>& metrics) {
  if (is_watched()) {
    logger().info(
        fmt::format("{} after step {}: {}", name, view_.step, metrics_text(metrics, options_.monitor, kMaxMetrics)));
    return;
  }
  Logger with_metrics = logger();
  for (const auto& [metric, value] : metrics) with_metrics = with_metrics.with({{metric, value}});
  with_metrics.info(name, {{"epoch", shown_epoch(view_)}, {"step", view_.step}});
}

void Telemetry::record_checkpoint_saved(int64_t step, const std::string& directory, int64_t bytes, double seconds) {
  metrics_.record_checkpoint(true, true, bytes, seconds);
  metrics_.set_last_checkpoint(step, clock_.now());
  status_.update([&](RankStatus& status) { status.checkpoint_step = step; });
  logger().info("checkpoint saved", {{"step", step}, {"directory", directory}, {"bytes", bytes}, {"seconds", seconds}});
}

void Telemetry::record_checkpoint_restored(int64_t step, const std::string& directory, double seconds,
                                           int64_t lost_steps) {
  metrics_.record_checkpoint(false, true, 0, seconds);
  metrics_.record_recomputed_steps(lost_steps);
  metrics_.set_last_checkpoint(step, clock_.now());
  status_.update([&](RankStatus& status) { status.checkpoint_step = step; });
  logger().info("resuming from a checkpoint",
                {{"resumed_from_step", step}, {"lost_steps", lost_steps}, {"directory", directory}});
}

void Telemetry::record_known_checkpoint(int64_t step) {
  metrics_.set_last_checkpoint(step, clock_.now());
  status_.update([&](RankStatus& status) { status.checkpoint_step = step; });
}

void Telemetry::record_checkpoint_failure(bool save) { metrics_.record_checkpoint(save, false, 0, 0); }
void Telemetry::record_skipped_steps(int64_t steps, int64_t first_step) {
  metrics_.record_nonfinite_gradients(steps);
  warn_of_nonfinite("skipped steps with a non-finite loss or gradient", steps, first_step);
}

void Telemetry::record_nonfinite_losses(int64_t steps, int64_t first_step) {
  metrics_.record_nonfinite_losses(steps);
  warn_of_nonfinite("non-finite training loss", steps, first_step);
}

void Telemetry::warn_of_nonfinite(const char* message, int64_t steps, int64_t first_step) {
  if (options_.rank != 0) return;
  logger().warn(message, {{"steps", steps}, {"first_step", first_step}, {"step", view_.step}});
}

void Telemetry::record_peer_lost() { metrics_.record_communication_error(); }

void Telemetry::set_earlier_recoveries(int64_t recoveries, double seconds) {
  status_.update([&](RankStatus& status) {
    status.recoveries = recoveries;
    status.recovery_seconds = seconds;
  });
}

void Telemetry::record_recovery(const std::string& ranks, const std::string& reason, double seconds, bool log) {
  metrics_.record_recovery(seconds);
  status_.update([&](RankStatus& status) {
    ++status.recoveries;
    status.recovery_seconds += seconds;
    status.recovered_ranks = ranks;
    status.recovery_reason = reason;
  });
  if (!log) return;
  logger().warn("recovered from the loss of a rank without a checkpoint",
                {{"ranks", ranks}, {"step", view_.step}, {"seconds", seconds}, {"reason", reason}});
}

void Telemetry::set_world_size(int world_size) {
  metrics_.set_world_size(world_size);
  status_.update([&](RankStatus& status) { status.world_size = world_size; });
}

void Telemetry::record_resize(int before, int world_size, const std::string& reason, double seconds, bool log) {
  set_world_size(world_size);
  if (world_size < before) record_recovery("", reason, seconds, /*log=*/false);
  if (!log) return;
  const char* message = world_size < before ? "training continues with fewer ranks, without a checkpoint"
                                            : "training continues with more ranks, without a checkpoint";
  logger().warn(
      message,
      {{"world_size", world_size}, {"before", before}, {"step", view_.step}, {"seconds", seconds}, {"reason", reason}});
}

void Telemetry::finish(bool success) {
  phases_.stop();
  activity_.request_stop();
  progress_.close();
  status_.update([&](RankStatus& status) { status.phase = success ? "done" : "failed"; });
}

}  // namespace oarlock

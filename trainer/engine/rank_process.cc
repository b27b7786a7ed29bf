#include "trainer/engine/rank_process.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "trainer/device/device.h"
#include "trainer/distributed/failure.h"
#include "trainer/engine/configured.h"
#include "trainer/engine/randomness.h"
#include "trainer/process/cpu_count.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

RankProcess::RankProcess(RunOptions options, RankEnvironment environment, const TaskTable& tasks, const StopFlag& stop,
                         const Clock& clock, const Logger& logger)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      tasks_(tasks),
      stop_(stop),
      clock_(clock),
      logger_(logger) {}

Outcome RankProcess::run() {
  const SteadyTime begin = clock_.steady();
  const Result<TrainSummary> summary = catch_errors([&] { return train(); });
  const bool success = summary && !summary->interrupted;
  if (telemetry_) telemetry_->finished(success);
  if (!summary) {
    if (telemetry_ && summary.error().code == ExitCode::kPeerLost) telemetry_->peer_lost();
    return {summary.error().code, reason_for(summary.error()), summary.error().message};
  }
  if (summary->interrupted) {
    return {ExitCode::kTempFail, "Interrupted",
            checkpointer_
                ? fmt::format("interrupted by a signal at step {}; saved, a new start resumes there",
                              summary->position.step)
                : fmt::format("interrupted by a signal at step {}; nothing was saved, as checkpoint.dir is not set",
                              summary->position.step)};
  }
  report(*summary, std::chrono::duration<double>(clock_.steady() - begin).count());
  if (!summary->parameters_equal) {
    return {ExitCode::kSoftware, "ParametersDiverged",
            "the parameters are not the same on all ranks at the end of the run"};
  }
  return {ExitCode::kOk, reason_of(ExitCode::kOk), fmt::format("trained to step {}", summary->position.step)};
}

Result<TrainSummary> RankProcess::train() {
  Result<void> ready = configure()
                           .and_then([&] { return start_telemetry(); })
                           .and_then([&] { return meet_ranks(); })
                           .and_then([&] { return build(); })
                           .and_then([&] { return open_checkpoints(); });
  if (!ready) return tl::make_unexpected(ready.error());
  Result<TrainLoop> loop = TrainLoop::create(
      {config_, group_, *task_, *model_, *optimizer_, checkpointer_.get(), *telemetry_, stop_, clock_});
  if (!loop) return tl::make_unexpected(loop.error());
  loop_.emplace(std::move(*loop));
  if (!checkpointer_ && environment_.rank == 0)
    telemetry_->logger().warn("checkpoint.dir is not set: nothing will be saved");
  return loop_->run();
}

Result<void> RankProcess::configure() {
  Result<Configured> configured = load_run(options_.config, tasks_);
  if (!configured) return tl::make_unexpected(configured.error());
  config_ = std::move(configured->config);
  task_ = std::move(configured->task);
  if (options_.checkpoint_dir) {
    config_.checkpoint.dir = *options_.checkpoint_dir;
  } else if (config_.checkpoint.dir.empty()) {
    config_.checkpoint.dir = environment_.checkpoint_dir.value_or("");
  }
  if (const auto fits = batch_size_per_rank(config_.batch, environment_.world_size); !fits)
    return tl::make_unexpected(fits.error());
  const int threads =
      config_.threads > 0 ? config_.threads : std::max(1, usable_cpus() / environment_.local_world_size);
  at::set_num_threads(threads);
  const Result<c10::Device> device =
      select_device(config_.device, environment_.local_rank, environment_.local_world_size);
  if (!device) return tl::make_unexpected(device.error());
  device_ = *device;
  return {};
}

Result<void> RankProcess::start_telemetry() {
  const DeviceVersions versions = device_versions();
  TelemetryOptions options;
  options.rank = environment_.rank;
  options.world_size = environment_.world_size;
  options.attempt = environment_.attempt;
  options.log_every_steps = config_.log_every_steps;
  options.build = {options_.version, options_.revision, TORCH_VERSION, versions.cuda, versions.nccl};
  options.run = {environment_.uid.empty() ? environment_.job : environment_.uid, config_.task,
                 environment_.world_size > 1 ? "ddp" : "single", "fp32"};
  if (environment_.rank == 0) options.progress = terminal_writer();
  telemetry_ = std::make_unique<Telemetry>(std::move(options), logger_, clock_);
  if (options_.metrics_port == 0 && !options_.any_metrics_port) return {};
  const Result<int> port = telemetry_->serve(options_.any_metrics_port ? 0 : options_.metrics_port);
  if (!port) return tl::make_unexpected(port.error());
  telemetry_->logger().info("metrics are served", {{"port", *port}});
  return {};
}

Result<void> RankProcess::meet_ranks() {
  if (environment_.world_size == 1) {
    group_ = RankGroup(nullptr, device_);
    return {};
  }
  telemetry_->enter(Phase::kRendezvous);
  const SteadyTime begin = clock_.steady();
  const auto timeout = milliseconds_of(config_.distributed.rendezvous_timeout_seconds);
  const RendezvousOptions options = {environment_.rank,
                                     environment_.world_size,
                                     environment_.master_addr,
                                     environment_.master_port,
                                     environment_.uid,
                                     environment_.attempt,
                                     timeout};
  Result<Meeting> meeting = meet(options, stop_, clock_, logger_);
  if (!meeting) return tl::make_unexpected(meeting.error());
  store_ = meeting->store;
  GroupOptions group;
  group.rank = environment_.rank;
  group.world_size = environment_.world_size;
  group.device = device_;
  group.timeout = milliseconds_of(config_.distributed.timeout_seconds);
  group.connect_timeout = timeout;
  group.address = meeting->address;
  const BackendKind backend = config_.distributed.backend;
  if (backend == BackendKind::kNccl || (backend == BackendKind::kAuto && device_.is_cuda())) {
    Result<RankGroup> made = make_nccl_group(store_, group);
    if (!made) return tl::make_unexpected(made.error());
    group_ = std::move(*made);
  } else {
    group_ = make_gloo_group(store_, group);
  }
  const double seconds = std::chrono::duration<double>(clock_.steady() - begin).count();
  telemetry_->rendezvous_done(seconds);
  telemetry_->logger().info("all ranks have met", {{"world_size", environment_.world_size}, {"seconds", seconds}});
  return {};
}

Result<void> RankProcess::build() {
  telemetry_->enter(Phase::kRestore);
  if (const Result<void> prepared = task_->prepare(); !prepared) return prepared;
  seed_model(config_.seed);
  std::shared_ptr<torch::nn::Module> module = task_->build_model();
  module->to(device_);
  module->train();
  Result<std::unique_ptr<DistributedModel>> model = DistributedModel::create(std::move(module), group_, config_.ddp);
  if (!model) return tl::make_unexpected(model.error());
  model_ = std::move(*model);
  optimizer_ = make_optimizer(config_.optimizer, model_->parameters());
  return {};
}

Result<void> RankProcess::open_checkpoints() {
  if (config_.checkpoint.dir.empty()) return {};
  const StoreOptions options = {
      config_.checkpoint.dir, {environment_.uid, environment_.attempt}, config_.checkpoint.keep};
  Result<std::unique_ptr<Checkpointer>> opened =
      Checkpointer::open(options, {config_.task, config_.seed}, group_, *telemetry_, clock_);
  if (!opened) return tl::make_unexpected(opened.error());
  checkpointer_ = std::move(*opened);
  return {};
}

std::string RankProcess::reason_for(const Error& error) const {
  if (error.code == ExitCode::kTempFail && !model_) return stop_.raised() ? "Interrupted" : "RendezvousTimeout";
  if (error.code == ExitCode::kTempFail) return "Replaced";  // the checkpoints' fence
  if (loop_ && !loop_->loss_is_finite()) return "NonFiniteLoss";
  return reason_of(error.code);
}

void RankProcess::report(const TrainSummary& summary, double seconds) {
  if (environment_.rank != 0) return;
  Logger with_metrics = telemetry_->logger();
  for (const auto& [name, value] : summary.metrics) with_metrics = with_metrics.with({{name, value}});
  const double rate = summary.train_seconds > 0 ? static_cast<double>(summary.samples) / summary.train_seconds : 0;
  with_metrics.info(summary.was_complete
                        ? "training was complete already: evaluated the checkpoint; raise epochs or steps, or use "
                          "another checkpoint.dir, to train more"
                        : "training is complete",
                    {{"step", summary.position.step},
                     {"samples_per_second", rate},
                     {"seconds", seconds},
                     {"world_size", environment_.world_size},
                     {"checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint},
                     {"parameters_bitwise_equal", summary.parameters_equal}});
}

TerminationMessage RankProcess::termination_message(const Outcome& outcome) const {
  const RankStatus status = telemetry_ ? telemetry_->status() : RankStatus{};
  return {environment_.rank, status.step, status.checkpoint_step, outcome.reason, outcome.message};
}

}  // namespace oarlock

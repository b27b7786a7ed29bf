#include "trainer/engine/rank_process.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "common/cpu_count.h"
#include "common/device_failed.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/device/device.h"
#include "trainer/device/peak_flops.h"
#include "trainer/distributed/failure.h"
#include "trainer/distributed/socket.h"
#include "trainer/engine/prepare_data.h"
#include "trainer/engine/pretrained.h"
#include "trainer/engine/randomness.h"
#include "trainer/engine/run_on_all_ranks.h"
#include "trainer/nn/memory_format.h"
#include "trainer/process/interruptible.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

// For a save under way when the run fails: it may be the newest checkpoint, but nobody waits for a disk that hangs.
constexpr std::chrono::milliseconds kSettlePatience{5000};
constexpr std::chrono::milliseconds kStopGrace{500};  // until the reading of the configuration is given up

std::string precision_of(const AmpConfig& amp) {
  if (!amp.enabled) return "fp32";
  return amp.dtype == AmpType::kFp16 ? "fp16" : "bf16";
}

MatmulPrecision matmul_precision(const TrainerConfig& config) {
  if (config.amp.enabled) return MatmulPrecision::kHalf;
  return config.cuda.tf32 ? MatmulPrecision::kTf32 : MatmulPrecision::kFloat32;
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
  const Error error = summary ? Error{} : explained(located(summary.error()), watch_.get());
  if (!summary && checkpointer_) checkpointer_->settle(kSettlePatience);
  if (telemetry_) telemetry_->finished(success);
  if (!summary) {
    if (telemetry_ && error.code == ExitCode::kPeerLost) telemetry_->peer_lost();
    return {error.code, reason_for(error), error.message};
  }
  if (!summary->not_saved.empty()) {
    return {ExitCode::kTempFail, "Interrupted",
            fmt::format("interrupted by a signal at step {}; a new start resumes from an older checkpoint, as it could "
                        "not be saved: {}",
                        summary->position.step, summary->not_saved)};
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
  const std::string early = summary->stopped_early.empty() ? "" : "; stopped early: " + summary->stopped_early;
  return {ExitCode::kOk, reason_of(ExitCode::kOk), fmt::format("trained to step {}{}", summary->position.step, early)};
}

Result<TrainSummary> RankProcess::train() {
  Result<void> ready = configure()
                           .and_then([&] { return start_telemetry(); })
                           .and_then([&] { return meet_ranks(); })
                           .and_then([&] { return build(); })
                           .and_then([&] { return open_checkpoints(); });
  if (!ready) return tl::make_unexpected(ready.error());
  Result<TrainLoop> loop = TrainLoop::create(
      {config_, plan_, group_, *task_, *model_, *step_, checkpointer_.get(), *telemetry_, *stops_, clock_});
  if (!loop) return tl::make_unexpected(loop.error());
  loop_.emplace(std::move(*loop));
  log_plan();
  if (!checkpointer_ && environment_.rank == 0)
    telemetry_->logger().warn("checkpoint.dir is not set: nothing will be saved");
  return loop_->run();
}

// On another thread, because a file server may not answer.
Result<Configured> RankProcess::load_configuration() const {
  std::optional<Result<Configured>> configured = run_interruptibly<Result<Configured>>(
      [config = options_.config, &tasks = tasks_] { return load_run(config, tasks); }, stop_, kStopGrace,
      std::chrono::milliseconds::max());
  if (configured) return std::move(*configured);
  return fail(ExitCode::kTempFail,
              fmt::format("interrupted by signal {} while the configuration was read", stop_.signal_number()));
}

Result<void> RankProcess::configure() {
  Result<Configured> configured = load_configuration();
  if (!configured) return tl::make_unexpected(configured.error());
  config_ = std::move(configured->config);
  task_ = std::move(configured->task);
  if (options_.checkpoint_dir) {
    config_.checkpoint.dir = *options_.checkpoint_dir;
  } else if (config_.checkpoint.dir.empty()) {
    config_.checkpoint.dir = environment_.checkpoint_dir.value_or("");
  }
  const Result<BatchPlan> plan = plan_batches(config_, environment_.world_size);
  if (!plan) return tl::make_unexpected(plan.error());
  plan_ = *plan;
  if (environment_.local_world_size < environment_.world_size) config_.ddp.shared_memory = false;  // several nodes
  const int threads =
      config_.threads > 0 ? config_.threads : std::max(1, usable_cpus() / environment_.local_world_size);
  at::set_num_threads(threads);
  config_.loader.threads = loader_threads(config_.loader, usable_cpus(), environment_.local_world_size);
  const Result<SelectedDevice> device =
      select_device({config_.device, config_.gpu_ids, config_.distributed.fallback},
                    {environment_.local_rank, environment_.local_world_size, environment_.has_own_devices});
  if (!device) return tl::make_unexpected(device.error());
  device_ = device->device;
  if (!device->warning.empty()) logger_.warn(device->warning);
  return configure_device(config_.cuda, device_);
}

Result<void> RankProcess::start_telemetry() {
  const DeviceVersions versions = device_versions();
  TelemetryOptions options;
  options.rank = environment_.rank;
  options.world_size = environment_.world_size;
  options.attempt = environment_.attempt;
  options.uid = environment_.uid;
  options.log_every_steps = config_.log_every_steps;
  options.build = {options_.version, options_.revision, TORCH_VERSION, versions.cuda, versions.nccl};
  options.run = {environment_.uid.empty() ? environment_.job : environment_.uid, config_.task,
                 environment_.world_size > 1 ? "ddp" : "single", precision_of(config_.amp)};
  if (environment_.rank == 0) options.progress = terminal_writer();
  telemetry_ = std::make_unique<Telemetry>(std::move(options), logger_, clock_);
  if (const auto peak = peak_flops(device_name(device_), matmul_precision(config_))) telemetry_->device(*peak);
  serve_metrics();
  return {};
}

// Metrics never end a run: where the port is in use, as by another job on the host's network, any free port will do.
void RankProcess::serve_metrics() {
  const int wanted = options_.any_metrics_port ? 0 : options_.metrics_port;
  if (wanted == 0 && !options_.any_metrics_port) return;
  Result<int> port = telemetry_->serve(wanted);
  if (!port && wanted != 0) {
    const std::string reason = port.error().message;
    port = telemetry_->serve(0);
    if (port) telemetry_->logger().warn("metrics are served on another port", {{"port", *port}, {"reason", reason}});
  }
  if (!port) {
    telemetry_->logger().warn("metrics are not served", {{"reason", port.error().message}});
    return;
  }
  telemetry_->logger().info("metrics are served", {{"port", *port}});
}

Result<void> RankProcess::meet_ranks() {
  telemetry_->enter(Phase::kRendezvous);
  const SteadyTime begin = clock_.steady();
  ConnectionOptions options;
  options.rendezvous.rank = environment_.rank;
  options.rendezvous.world_size = environment_.world_size;
  options.rendezvous.master_addr = environment_.master_addr;
  options.rendezvous.master_port = environment_.master_port;
  options.rendezvous.master_fallback = environment_.master_fallback;
  options.rendezvous.uid = environment_.uid;
  options.rendezvous.attempt = environment_.attempt;
  options.config = config_.distributed;
  options.device = device_;
  Result<Connection> connection = connect_ranks(options, [this] { return activity(); }, stop_, clock_, logger_);
  if (!connection) return tl::make_unexpected(connection.error());
  store_ = std::move(connection->store);
  group_ = std::move(connection->group);
  watch_ = std::move(connection->watch);
  collectives_ = std::move(connection->collectives);
  stops_.emplace(stop_, group_, clock_);
  if (environment_.world_size == 1) return {};
  const double seconds = std::chrono::duration<double>(clock_.steady() - begin).count();
  telemetry_->rendezvous_done(seconds);
  telemetry_->logger().info("all ranks have met", {{"world_size", environment_.world_size}, {"seconds", seconds}});
  return {};
}

Activity RankProcess::activity() const { return {std::string(telemetry_->phase()), telemetry_->status().step, 0}; }

LastWord RankProcess::explain(const std::exception_ptr& exception) const {
  const Error error = explained(located(to_error(exception)), watch_.get());
  return {error.code, termination_message({error.code, reason_for(error), error.message})};
}

Result<void> RankProcess::build() {
  telemetry_->enter(Phase::kRestore);
  const Result<void> prepared =
      prepare_data(*task_, group_, environment_.local_rank, *stops_, telemetry_->logger()).and_then([&] {
        return open_data(*task_, group_, *stops_);
      });
  if (!prepared) return prepared;
  if (const Result<void> fitted = fit_batches(); !fitted) return fitted;
  seed_model(config_.seed);
  std::shared_ptr<torch::nn::Module> module = task_->build_model();
  if (const Result<void> loaded = load_pretrained_weights(*module); !loaded) return loaded;
  module->to(device_);
  if (config_.cuda.channels_last) to_channels_last(*module);
  module->train();
  Result<std::unique_ptr<DistributedModel>> model =
      DistributedModel::create(std::move(module), group_, config_.ddp, [this] { telemetry_->enter(Phase::kComm); });
  if (!model) return tl::make_unexpected(model.error());
  model_ = std::move(*model);
  if (environment_.world_size > 1 && environment_.rank == 0)
    telemetry_->logger().info("gradients are averaged",
                              {{"through", model_->shares_memory() ? "shared memory" : "the process group"}});
  Result<std::unique_ptr<TrainStep>> step =
      TrainStep::create(config_, *task_, *model_, group_, [this](Phase phase) { telemetry_->enter(phase); });
  if (!step) return tl::make_unexpected(step.error());
  step_ = std::move(*step);
  if (config_.cuda.graphs) {
    Result<std::unique_ptr<StepGraph>> graph = make_step_graph(device_, telemetry_->logger());
    if (!graph) return tl::make_unexpected(graph.error());
    step_->replay_with(std::move(*graph));
  }
  return {};
}

// The plan of configure(), which knew nothing of the data, once more with their size.
Result<void> RankProcess::fit_batches() {
  const int64_t samples = task_->train_data().size();
  const Result<BatchPlan> plan = plan_batches(config_, environment_.world_size, samples);
  if (!plan) return tl::make_unexpected(plan.error());
  if (plan->effective_batch < plan_.effective_batch && environment_.rank == 0) {
    telemetry_->logger().warn(
        "the batch is larger than the training data: every step takes all of them; lower batch.size",
        {{"batch", plan_.effective_batch}, {"samples", samples}});
  }
  plan_ = *plan;
  config_ = scaled(std::move(config_), plan_);
  return {};
}

// On rank 0, from which the model's first broadcast takes them to the others.
Result<void> RankProcess::load_pretrained_weights(const torch::nn::Module& module) {
  if (config_.pretrained.path.empty()) return {};
  Result<SafetensorsFile> file =
      read_on_rank_0<SafetensorsFile>([path = config_.pretrained.path] { return read_safetensors(path); }, group_,
                                      *stops_, "the pretrained weights were read; a new start reads them again");
  if (stops_->agreed()) return file.map([](const auto&) {});
  Result<void> loaded;
  if (environment_.rank == 0) {
    const Result<PretrainedReport> report = file.and_then(
        [&](SafetensorsFile& read) { return load_pretrained(config_.pretrained, std::move(read.tensors), module); });
    if (report) {
      telemetry_->logger().info("pretrained weights are loaded",
                                {{"path", config_.pretrained.path}, {"tensors", report->loaded}});
      if (!report->fits()) telemetry_->logger().warn("not everything was taken", {{"why", report->misfit()}});
    } else {
      loaded = tl::make_unexpected(report.error());
    }
  }
  return group_.agree(loaded);
}

Result<void> RankProcess::open_checkpoints() {
  if (config_.checkpoint.dir.empty()) return {};
  Result<std::unique_ptr<Checkpointer>> opened =
      Checkpointer::open(checkpointer_options(config_.checkpoint, {environment_.uid, environment_.attempt},
                                              {config_.task, config_.seed}, task_->monitor()),
                         group_, *stops_, *telemetry_, clock_);
  if (!opened) return tl::make_unexpected(opened.error());
  checkpointer_ = std::move(*opened);
  step_->before_update([this] { checkpointer_->wait_for_copy(); });
  return {};
}

Error RankProcess::located(Error error) const {
  if (error.code == kDeviceFailed)
    error.message = fmt::format("host {}, {}: {}", host_name(), device_.str(), error.message);
  return error;
}

std::string RankProcess::reason_for(const Error& error) const {
  if (is_fenced_off(error)) return "Replaced";
  const bool interrupted = stop_.raised() || (stops_ && stops_->agreed());
  if (error.code == ExitCode::kTempFail && interrupted) return "Interrupted";
  if (error.code == ExitCode::kTempFail && !stops_) return "RendezvousTimeout";
  if (loop_ && loop_->diverged()) return "ParametersDiverged";
  if (loop_ && !loop_->nonfinite().empty()) return loop_->nonfinite();
  return reason_of(error.code);
}

// What follows from the number of ranks, once and on rank 0.
void RankProcess::log_plan() {
  telemetry_->logger().info("batches and learning rate", {{"effective_batch", plan_.effective_batch},
                                                          {"batch_per_rank", plan_.micro_batch},
                                                          {"accumulation_steps", config_.gradient.accumulation_steps},
                                                          {"world_size", environment_.world_size},
                                                          {"learning_rate", config_.optimizer.lr},
                                                          {"learning_rate_factor", plan_.lr_factor},
                                                          {"warmup_steps", plan_.warmup_steps}});
}

void RankProcess::report(const TrainSummary& summary, double seconds) {
  if (environment_.rank != 0) return;
  Logger with_metrics = telemetry_->logger();
  for (const auto& [name, value] : summary.metrics) with_metrics = with_metrics.with({{name, value}});
  if (!summary.stopped_early.empty()) with_metrics = with_metrics.with({{"stopped_early", summary.stopped_early}});
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

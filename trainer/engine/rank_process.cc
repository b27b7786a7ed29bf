#include "trainer/engine/rank_process.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract.h"
#include "common/cpu.h"
#include "common/host_name.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "ddp/library_errors.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/device/backend.h"
#include "trainer/engine/option_names.h"
#include "trainer/engine/run_output.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task_setup.h"
#include "trainer/engine/train_step.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

// Limits the wait for a save in flight when the run fails: it may be the newest checkpoint, but the disk may hang.
constexpr std::chrono::milliseconds kDrainTimeout{5000};
constexpr std::chrono::milliseconds kStopGrace{500};  // until reading the configuration is abandoned

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Whether a new start would fail again (docs/exit-codes.md).
bool is_permanent(ExitCode code) {
  return to_int(code) >= to_int(ExitCode::kUsage) && to_int(code) <= to_int(ExitCode::kConfig) &&
         code != ExitCode::kTempFail && code != ExitCode::kPeerLost;
}

MatmulPrecision matmul_precision(const TrainerConfig& config) {
  if (config.amp.enabled) return MatmulPrecision::kHalf;
  return config.cuda.tf32 ? MatmulPrecision::kTf32 : MatmulPrecision::kFloat32;
}

}  // namespace

LocalRank local_rank_of(const JobEnvironment& environment) {
  return {environment.local_rank, environment.local_world_size, environment.has_own_devices};
}

RankProcess::RankProcess(RunOptions options, JobEnvironment environment, const TaskTable& tasks, const StopFlag& stop,
                         const Clock& clock, const Logger& logger)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      tasks_(tasks),
      stop_(stop),
      clock_(clock),
      logger_(logger),
      membership_({.rank = environment_.rank,
                   .world_size = environment_.world_size,
                   .connect_options = [this] { return connect_options(); },
                   .accept = [this](const Assignment& assignment) { return accept_assignment(assignment); },
                   .activity = [this] { return activity(); },
                   .report = [logger](std::string_view message, LogFields details) { logger.warn(message, details); }},
                  stop, clock),
      group_(membership_.group()) {}

Outcome RankProcess::run() {
  begin_ = clock_.steady();
  const Result<TrainSummary> summary = catch_errors([&] { return train(); });
  const Outcome outcome = outcome_of(summary);
  if (loop_) report_times();
  if (outcome.code == ExitCode::kOk) report(*summary, std::chrono::duration<double>(clock_.steady() - begin_).count());
  if (tracking_) finish_tracking(outcome, summary);
  return outcome;
}

Outcome RankProcess::outcome_of(const Result<TrainSummary>& summary) {
  const bool success = summary && !summary->interrupted;
  const Error error = summary ? Error{} : with_peer_diagnosis(located(summary.error()), membership_.peers());
  if (!summary && checkpointer_) checkpointer_->drain(kDrainTimeout);
  if (telemetry_) telemetry_->finish(success);
  if (!summary) {
    if (telemetry_ && error.code == ExitCode::kPeerLost) telemetry_->record_peer_lost();
    const std::string reason = reason_for(error);
    return {error.code, reason, error.message, /*is_graceful=*/reason == kReasonInterrupted, /*is_alone=*/!stops_};
  }
  if (!summary->save_error.empty()) {
    return {ExitCode::kTempFail, kReasonInterrupted,
            fmt::format("interrupted by a signal at step {}; a new start resumes from an older checkpoint, as it could "
                        "not be saved: {}",
                        summary->position.step, summary->save_error)};
  }
  if (summary->interrupted) {
    return {ExitCode::kTempFail, kReasonInterrupted,
            checkpointer_
                ? fmt::format("interrupted by a signal at step {}; saved, a new start resumes there",
                              summary->position.step)
                : fmt::format("interrupted by a signal at step {}; nothing was saved, as checkpoint.dir is not set",
                              summary->position.step),
            /*is_graceful=*/true};
  }
  const std::string early = summary->stopped_early.empty() ? "" : "; stopped early: " + summary->stopped_early;
  return {ExitCode::kOk, exit_reason(ExitCode::kOk),
          fmt::format("trained to step {}{}", summary->position.step, early)};
}

Result<TrainSummary> RankProcess::train() {
  RETURN_IF_ERROR(configure());
  RETURN_IF_ERROR(start_telemetry());
  RETURN_IF_ERROR(connect());
  RETURN_IF_ERROR(build());
  RETURN_IF_ERROR(open_checkpoints());
  RETURN_IF_ERROR(open_tracking());  // its files are in the checkpoint directory, which now belongs to this attempt
  const TrainParts parts{config_,     plan_,   group_, *task_,          *model_,        *step_, checkpointer_.get(),
                         *telemetry_, *stops_, clock_, tracking_.get(), profiler_.get()};
  ASSIGN_OR_RETURN(TrainLoop loop, TrainLoop::create(parts));
  loop_.emplace(std::move(loop));
  if (telemetry_->is_watched()) {
    loop_->on_start([this](int64_t step, int64_t target_steps) { show_header(step, target_steps); });
  } else {
    log_plan(run_header(config_, plan_, *task_, *model_, group_), plan_, group_, telemetry_->logger());
    if (!checkpointer_ && environment_.rank == 0)
      telemetry_->logger().warn("checkpoint.dir is not set: nothing will be saved");
  }
  return run_loop();
}

// Reads on another thread, because a file server may not respond.
Result<ConfiguredTask> RankProcess::load_configuration() const {
  std::optional<Result<ConfiguredTask>> configured = run_interruptibly<Result<ConfiguredTask>>(
      [config = options_.config, &tasks = tasks_] { return load_task(config, tasks); }, stop_, kStopGrace,
      std::chrono::milliseconds::max());
  if (configured) return std::move(*configured);
  return fail(ExitCode::kTempFail,
              fmt::format("interrupted by signal {} while the configuration was read", stop_.signal_number()));
}

Result<void> RankProcess::configure() {
  ASSIGN_OR_RETURN(ConfiguredTask configured, load_configuration());
  config_ = std::move(configured.config);
  task_ = std::move(configured.task);
  printed_config_ = std::move(configured.printed);
  settings_ = std::move(configured.agreed);
  if (options_.checkpoint_dir) {
    config_.checkpoint.dir = *options_.checkpoint_dir;
  } else if (config_.checkpoint.dir.empty()) {
    config_.checkpoint.dir = environment_.checkpoint_dir.value_or("");
  }
  settings_["checkpoint.dir"] = presence(config_.checkpoint.dir);
  settings_[kVersionKey] = options_.version;
  settings_[kRevisionKey] = options_.revision;
  ASSIGN_OR_RETURN(plan_, plan_batches(config_, environment_.world_size));
  const int sharers = options_.cpu_sharers > 0 ? options_.cpu_sharers : environment_.local_world_size;
  const int threads = config_.threads > 0 ? config_.threads : std::max(1, usable_cpus() / sharers);
  at::set_num_threads(threads);
  config_.loader.threads = loader_threads(config_.loader, usable_cpus(), sharers);
  ASSIGN_OR_RETURN(
      const SelectedDevice selected,
      select_device({config_.device, config_.gpu_ids, config_.distributed.fallback}, local_rank_of(environment_)));
  device_ = selected.device;
  has_lost_gpu_ = selected.has_lost_gpu;
  if (!selected.warning.empty()) logger_.warn(selected.warning);
  configured_ = config_;
  return configure_device(config_.cuda, device_);
}

Result<void> RankProcess::start_telemetry() {
  const DeviceVersions versions = device_versions();
  TelemetryOptions options;
  options.rank = environment_.rank;
  options.world_size = environment_.world_size;
  options.attempt = environment_.attempt;
  options.uid = environment_.uid;
  options.in_pod_restarts = options_.in_pod_restarts;
  options.log_every_steps = config_.log_every_steps;
  options.build = {options_.version, options_.revision, TORCH_VERSION, versions.cuda, versions.nccl};
  options.run = {environment_.uid.empty() ? environment_.job : environment_.uid, config_.task,
                 environment_.world_size > 1 ? "ddp" : "single", precision_name(config_.amp)};
  if (environment_.rank == 0) options.progress = progress_output();
  options.monitor = monitored_metric();
  options.begin = begin_;
  telemetry_ = std::make_unique<Telemetry>(std::move(options), logger_, clock_);
  if (const auto peak = peak_flops(device_name(device_), matmul_precision(config_))) telemetry_->set_peak_flops(*peak);
  serve_metrics();
  return {};
}

// A failure to serve metrics does not end a run. If the port is in use, as by another job on the host's network, a free
// port is used.
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

Result<void> RankProcess::connect() {
  telemetry_->enter(Phase::kRendezvous);
  const SteadyTime begin = clock_.steady();
  std::unique_ptr<RegroupChannel> channel;
  if (options_.open_channel && environment_.world_size > 1) {
    ASSIGN_OR_RETURN(channel, options_.open_channel());
  }
  const int64_t fence = channel ? read_fence() : -1;
  RETURN_IF_ERROR(membership_.connect(std::move(channel), {.completed_step = -1, .digest = {}, .fence = fence}));
  stops_.emplace(stop_, group_, clock_);
  stops_->watch_save_requests([this] { return telemetry_->take_checkpoint_request(); });
  telemetry_->set_world_size(world_size());
  if (world_size() == 1) return {};
  const double seconds = std::chrono::duration<double>(clock_.steady() - begin).count();
  telemetry_->record_rendezvous(seconds);
  telemetry_->logger().info(
      "all ranks are connected",
      {{"world_size", world_size()}, {"backend", membership_.backend_name()}, {"seconds", seconds}});
  return {};
}

// For the current group.
Result<DistributedOptions> RankProcess::connect_options() const {
  ASSIGN_OR_RETURN(const BackendChoice backend,
                   choose_backend(config_.distributed, device_.is_cuda(), is_nccl_in_build()));
  if (world_size() > 1 && !backend.warning.empty()) logger_.warn(backend.warning);
  DistributedOptions options;
  options.nccl = backend.nccl;
  options.timeout = to_milliseconds(config_.distributed.timeout_seconds);
  options.rendezvous.timeout = to_milliseconds(config_.distributed.rendezvous_timeout_seconds);
  options.rendezvous.master_addr = environment_.master_addr;
  options.rendezvous.master_port = environment_.master_port;
  options.rendezvous.master_fallback = environment_.master_fallback;
  options.rendezvous.uid = environment_.uid;
  options.rendezvous.attempt = environment_.attempt;
  options.device = device_;
  options.rendezvous.has_lost_gpu = has_lost_gpu_;
  options.rendezvous.settings = settings_;
  options.rendezvous.settings["LOCAL_WORLD_SIZE"] = is_on_one_node() ? "WORLD_SIZE" : "less than WORLD_SIZE";
  return options;
}

bool RankProcess::is_on_one_node() const { return environment_.local_world_size >= world_size(); }

bool RankProcess::shares_memory() const { return configured_.ddp.shared_memory && is_on_one_node(); }

PeerActivity RankProcess::activity() const { return {std::string(telemetry_->phase()), telemetry_->status().step, 0}; }

ProcessExit RankProcess::explain(const std::exception_ptr& exception) const {
  const Error error = with_peer_diagnosis(located(to_error(exception)), membership_.peers());
  return {error.code, termination_message({error.code, reason_for(error), error.message})};
}

Result<void> RankProcess::build() {
  telemetry_->enter(Phase::kRestore);
  RETURN_IF_ERROR(prepare_data(*task_, group_, environment_.local_rank, *stops_, telemetry_->logger()));
  ASSIGN_OR_RETURN(data_, open_data(*task_, group_, *stops_));
  RETURN_IF_ERROR(fit_batches());
  seed_model(config_.seed);
  std::shared_ptr<torch::nn::Module> module = task_->build_model();
  RETURN_IF_ERROR(load_pretrained_weights(*module));
  module->to(device_);
  if (config_.cuda.channels_last) to_channels_last(*module);
  module->train();
  config_.ddp.shared_memory = shares_memory();
  ASSIGN_OR_RETURN(model_, DistributedDataParallelBase::create(std::move(module), group_, config_.ddp,
                                                               [this] { telemetry_->enter(Phase::kComm); }));
  if (world_size() > 1 && environment_.rank == 0)
    telemetry_->logger().info("gradients are averaged",
                              {{"through", model_->uses_shared_memory() ? "shared memory" : "the process group"}});
  ASSIGN_OR_RETURN(
      step_, TrainStep::create(config_, *task_, *model_, group_, [this](Phase phase) { telemetry_->enter(phase); }));
  if (config_.cuda.graphs) {
    ASSIGN_OR_RETURN(std::unique_ptr<StepGraph> graph, make_step_graph(device_, telemetry_->logger()));
    step_->replay_with(std::move(graph));
  }
  enable_recovery();
  return check_smallest_batches();
}

// Fails with kConfig if an epoch has a batch of one sample, with this number of ranks or with one that the group may
// have later, and the model cannot train with it.
Result<void> RankProcess::check_smallest_batches() {
  if (membership_.is_replacement()) return {};  // the other ranks have checked
  const int64_t samples = task_->train_data().size();
  const auto has_single = [&](int ranks) {
    const Result<BatchPlan> plan = plan_batches(configured_, ranks, samples);
    return plan && plan->smallest_batch == 1;
  };
  int ranks = world_size();
  for (int fewer = membership_.channel() != nullptr ? 1 : ranks; fewer < ranks && !has_single(ranks); ++fewer) {
    if (has_single(fewer)) ranks = fewer;
  }
  if (!has_single(ranks)) return {};
  return try_single_sample(*task_, model_->module(), device_).map_error([&](Error error) {
    error.message = fmt::format(
        "batch: with {}, an epoch of {} samples has a batch of one sample, with which the model "
        "cannot train ({}); set batch.drop_last: true, or choose another batch.size",
        counted(ranks, "rank"), samples, error.message);
    return error;
  });
}

// Repeats the batch plan of configure() with the size of the data.
Result<void> RankProcess::fit_batches() {
  const int64_t samples = task_->train_data().size();
  ASSIGN_OR_RETURN(const BatchPlan plan, plan_batches(config_, world_size(), samples));
  if (plan.effective_batch < plan_.effective_batch && environment_.rank == 0) {
    telemetry_->logger().warn(
        "the batch is larger than the training data: every step takes all of them; lower batch.size",
        {{"batch", plan_.effective_batch}, {"samples", samples}});
  }
  plan_ = plan;
  config_ = apply_plan(std::move(config_), plan_);
  return {};
}

// Loads them on rank 0; the model's first broadcast copies them to the other ranks.
Result<void> RankProcess::load_pretrained_weights(const torch::nn::Module& module) {
  if (config_.pretrained.path.empty()) return {};
  Result<SafetensorsFile> file =
      read_on_rank_0<SafetensorsFile>([config = config_.pretrained] { return read_pretrained(config); }, group_,
                                      *stops_, "the pretrained weights were read; a new start reads them again");
  if (stops_->agreed()) return file.map([](const auto&) {});
  Result<void> loaded;
  if (environment_.rank == 0) {
    const Result<PretrainedReport> report = file.and_then(
        [&](SafetensorsFile& read) { return load_pretrained(config_.pretrained, std::move(read.tensors), module); });
    if (report) {
      telemetry_->logger().info("pretrained weights are loaded",
                                {{"path", config_.pretrained.path}, {"tensors", report->loaded}});
      if (!report->fits())
        telemetry_->logger().warn("some pretrained tensors were not loaded", {{"why", report->misfit()}});
    } else {
      loaded = tl::make_unexpected(report.error());
    }
  }
  return group_.agree(loaded);
}

Result<void> RankProcess::open_checkpoints() {
  if (config_.checkpoint.dir.empty()) return {};
  const Assignment& assignment = membership_.assignment();
  const CheckpointOwner owner{environment_.uid, environment_.attempt, std::max<int64_t>(assignment.generation, 0),
                              assignment.store_prefix};
  CheckpointerOptions options = checkpointer_options(config_.checkpoint, owner,
                                                     {.task = config_.task,
                                                      .seed = config_.seed,
                                                      .settings = settings_,
                                                      .data = data_,
                                                      .train_samples = task_->train_data().size()},
                                                     task_->monitor());
  for (const std::string& file : {config_.report.history, config_.report.curves})
    if (!file.empty()) options.store.other_files.emplace_back(file);
  if (!config_.eval.rows_file.empty())
    options.store.other_files.push_back(std::filesystem::absolute(config_.eval.rows_file));
  options.is_replacement = membership_.is_replacement();
  if (const std::string inference = task_->inference_settings(); !inference.empty()) {
    options.model_metadata["inference"] = inference;
    if (environment_.rank == 0) telemetry_->logger().info("settings of inference", {{"json", abridged(inference)}});
  }
  Result<std::unique_ptr<Checkpointer>> opened = Checkpointer::open(options, group_, *stops_, *telemetry_, clock_);
  if (!opened) return report_fenced_off(std::move(opened.error()));
  checkpointer_ = std::move(*opened);
  step_->before_update([this] { checkpointer_->wait_for_copy(); });
  return {};
}

Result<void> RankProcess::open_tracking() {
  if (config_.profile.steps > 0) {
    profiler_ = std::make_unique<StepProfiler>(
        config_.profile, profile_directory(config_.profile, config_.tracking, config_.checkpoint.dir),
        environment_.rank, environment_.attempt, device_, telemetry_->logger());
  }
  Result<void> opened;
  if (environment_.rank == 0) {
    const DeviceVersions versions = device_versions();
    RunStarted run;
    run.name = config_.tracking.name;
    if (run.name.empty()) run.name = environment_.job.empty() ? config_.task : environment_.job;
    run.task = config_.task;
    run.job = environment_.job;
    run.job_namespace = environment_.job_namespace;
    run.uid = environment_.uid;
    run.attempt = environment_.attempt;
    run.monitor = "eval/" + monitored_metric();
    run.config = printed_config_;
    run.derived = {{"ddp/world_size", world_size()},
                   {"ddp/effective_batch_size", static_cast<double>(plan_.effective_batch)},
                   {"ddp/scaled_lr", config_.optimizer.lr}};
    run.versions = {{"oarlock", options_.version}, {"revision", options_.revision}, {"libtorch", TORCH_VERSION}};
    if (!versions.cuda.empty()) run.versions["cuda"] = versions.cuda;
    if (!versions.nccl.empty()) run.versions["nccl"] = versions.nccl;
    Result<std::unique_ptr<RunTracking>> tracking =
        RunTracking::open({config_.tracking, config_.checkpoint.dir, run, membership_.channel() != nullptr},
                          telemetry_->logger(), clock_);
    if (tracking) {
      tracking_ = std::move(*tracking);
      if (tracking_ && checkpointer_) checkpointer_->before_commit([this] { tracking_->persist(); });
    } else {
      opened = tl::make_unexpected(tracking.error());
    }
  }
  return group_.agree(opened);
}

// Waits for deliveries: after the other ranks need this one, and within the grace period if the process must end soon.
void RankProcess::finish_tracking(const Outcome& outcome, const Result<TrainSummary>& summary) {
  RunFinished finished;
  finished.success = outcome.code == ExitCode::kOk;
  finished.resumes = !finished.success && !is_permanent(outcome.code);
  finished.reason = outcome.reason;
  finished.message = outcome.message;
  if (summary) {
    for (const auto& [name, value] : summary->metrics) finished.summary["eval/" + name] = value;
  }
  const TimeTable table = time_table(telemetry_->phase_seconds());
  for (const auto& [name, seconds] : table.rows) finished.summary["time/" + std::string(name) + "_seconds"] = seconds;
  finished.summary["time/total_seconds"] = table.total;
  finished.time_table = to_markdown(table);
  const bool is_hurried = !finished.success;
  tracking_->finish(telemetry_->status().step, std::move(finished), is_hurried, stop_);
}

// Logs where the time of this rank was spent. The rows are those of the metric trainer_phase_seconds_total.
void RankProcess::report_times() const {
  if (environment_.rank != 0 || telemetry_->is_watched()) return;  // a person reads them in the summary
  const TimeTable table = time_table(telemetry_->phase_seconds());
  telemetry_->logger().info(fmt::format("time of this process: {}", to_line(table)));
}

Error RankProcess::located(Error error) const {
  return with_location(with_configuration_keys(std::move(error)), host_name(), device_);
}

std::string RankProcess::reason_for(const Error& error) const {
  if (is_fenced_off(error)) return "Replaced";
  const bool interrupted = stop_.is_raised() || (stops_ && stops_->agreed());
  if (error.code == ExitCode::kTempFail && interrupted) return kReasonInterrupted;
  if (error.code == ExitCode::kTempFail && !stops_) return "RendezvousTimeout";
  if (loop_ && loop_->diverged()) return "ParametersDiverged";
  if (loop_ && !loop_->nonfinite_reason().empty()) return loop_->nonfinite_reason();
  return exit_reason(error.code);
}

std::string RankProcess::monitored_metric() const {
  return config_.checkpoint.best.metric.empty() ? task_->monitor().metric : config_.checkpoint.best.metric;
}

void RankProcess::show_header(int64_t step, int64_t target_steps) {
  RunHeader header = run_header(config_, plan_, *task_, *model_, group_);
  header.first_step = step;
  header.target_steps = target_steps;
  telemetry_->print(header_lines(header));
}

void RankProcess::report(const TrainSummary& summary, double seconds) {
  if (environment_.rank != 0) return;
  const RunSummary out = run_summary(summary, monitored_metric(), seconds, world_size(), *telemetry_);
  if (telemetry_->is_watched()) return telemetry_->print(summary_lines(out));
  log_summary(out, telemetry_->logger());
}

TerminationMessage RankProcess::termination_message(const Outcome& outcome) const {
  const RankStatus status = telemetry_ ? telemetry_->status() : RankStatus{};
  return {environment_.rank, status.step, status.checkpoint_step, outcome.reason, outcome.message};
}

}  // namespace oarlock

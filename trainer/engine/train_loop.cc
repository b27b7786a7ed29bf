#include "trainer/engine/train_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "common/status_macros.h"
#include "ddp/library_errors.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/device/device.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/train_step.h"

namespace oarlock {
namespace {

int64_t bytes_of(const Batch& batch) {
  int64_t out = 0;
  for (const auto& [name, tensor] : batch.tensors) out += static_cast<int64_t>(tensor.nbytes());
  return out;
}

// Tasks with sequences have a tensor of this name.
int64_t tokens_of(const Batch& batch) {
  const auto tokens = batch.tensors.find("tokens");
  return tokens == batch.tensors.end() ? 0 : tokens->second.numel();
}

}  // namespace

Result<DistributedSampler> TrainLoop::make_sampler(const TrainParts& parts) {
  return DistributedSampler::create({.size = parts.task.train_data().size(),
                                     .rank = parts.group.rank(),
                                     .world_size = parts.group.world_size(),
                                     .seed = parts.config.seed,
                                     .shuffle = true,
                                     .drop_last = parts.config.batch.drop_last});
}

Result<TrainLoop> TrainLoop::create(const TrainParts& parts) {
  ASSIGN_OR_RETURN(DistributedSampler sampler, make_sampler(parts));
  TrainLoop loop(parts, sampler);
  RETURN_IF_ERROR(loop.check_length());
  return loop;
}

Result<void> TrainLoop::check_length() const {
  if (steps_in_epoch(0) > 0) return {};
  return fail(ExitCode::kConfig,
              fmt::format("batch: {} samples on {} ranks are less than one step of {}; lower batch.size or set "
                          "batch.drop_last: false",
                          parts_.task.train_data().size(), parts_.group.world_size(), parts_.plan.effective_batch));
}

TrainLoop::TrainLoop(const TrainParts& parts, DistributedSampler sampler)
    : parts_(parts),
      sampler_(sampler),
      world_size_(parts.group.world_size()),
      pace_(parts.stop),
      scheduler_(parts.config.schedule),
      evaluator_(parts),
      losses_(parts),
      report_(parts.config.report, parts.config.checkpoint.dir, parts.group, parts.clock) {}

Result<TrainSummary> TrainLoop::run() {
  RETURN_IF_ERROR(restore());
  state_.was_complete = is_finished();
  has_state_ = has_joined_ = true;
  return resume();
}

Result<TrainSummary> TrainLoop::resume() {
  if (state_.due == Due::kCatchUp) {
    RETURN_IF_ERROR(catch_up());
    state_.due = Due::kNothing;
  }
  // The save after this step was lost with rank 0, and the next step will change the weights.
  if (state_.save_due && state_.due == Due::kNothing && !summary_.interrupted && !state_.completed) {
    RETURN_IF_ERROR(save(SaveUntil::kStarted));
    state_.save_due = false;
  }
  while (!summary_.interrupted && (state_.due != Due::kNothing || !is_finished())) {
    if (state_.due == Due::kNothing || state_.due == Due::kAfterStep) RETURN_IF_ERROR(train_epoch());
    if (!summary_.interrupted) RETURN_IF_ERROR(end_epoch());
  }
  if (!summary_.interrupted && !state_.completed) {
    RETURN_IF_ERROR(complete());
    state_.completed = true;
  }
  RETURN_IF_ERROR(finish());
  return summary_;
}

// ---- the run -------------------------------------------------------------------------------------------------------

void TrainLoop::collect_stateful() {
  stateful_ = parts_.step.stateful();
  if (scheduler_.has_state()) stateful_.push_back(&scheduler_);
  for (Stateful* part : evaluator_.stateful()) stateful_.push_back(part);
  if (report_.is_enabled()) stateful_.push_back(&report_);
}

Result<void> TrainLoop::restore() {
  collect_stateful();
  if (parts_.checkpointer != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<TrainingPosition> restored,
                     parts_.checkpointer->restore(parts_.model, stateful_));
    state_.position = restored.value_or(TrainingPosition{});
  }
  state_.target_steps = target_steps();
  parts_.telemetry.begin(state_.position.step, state_.target_steps, state_.position.epoch,
                         parts_.config.epochs.value_or(0));
  parts_.telemetry.enter(Phase::kOther);
  start_tracking();
  return {};
}

// Called once by each process, when its position is known.
void TrainLoop::start_tracking() {
  if (on_start_) on_start_(state_.position.step, state_.target_steps);
  losses_.start_tracking(state_.position.step);
  if (parts_.tracking == nullptr) return;
  parts_.tracking->start(state_.position.step);
  parts_.step.on_gradients([this] {
    const int64_t step = state_.position.step + 1;
    if (!parts_.tracking->are_histograms_due(step)) return;
    std::vector<NamedTensor> gradients = parts_.model.parameters();
    for (NamedTensor& item : gradients) item.tensor = item.tensor.grad();
    parts_.tracking->add_histograms(step, "gradients", gradients);
  });
}

// Repeats the evaluation and the passes of the restored step if the earlier process was stopped before they completed.
Result<void> TrainLoop::catch_up() {
  if (evaluator_.is_due_after_step(state_.position.step)) {
    ASSIGN_OR_RETURN(state_.is_best, evaluate());
  }
  if (!parts_.stop.agreed() && evaluator_.is_pass_due_after_step(state_.position.step)) {
    RETURN_IF_ERROR(evaluator_.run_due_passes(state_.position.step));
  }
  if (parts_.stop.agreed()) return stop();
  if (state_.is_best) RETURN_IF_ERROR(save(SaveUntil::kStarted));
  state_.is_best = false;
  return {};
}

// Begins with the rest of after_step() if a rank was lost meanwhile.
Result<void> TrainLoop::train_epoch() {
  if (state_.due == Due::kAfterStep) RETURN_IF_ERROR(after_step());
  if (summary_.interrupted) return {};
  begin_epoch();
  const std::unique_ptr<DevicePrefetcher> feed =
      make_device_prefetcher([this] { return loader_->next(); }, parts_.group.device(),
                             feed_options(parts_.config, parts_.group.world_size()));
  while (!is_finished() && !summary_.interrupted) {
    ASSIGN_OR_RETURN(const bool is_complete, train_step(*feed));
    if (!is_complete) break;
    RETURN_IF_ERROR(after_step());
  }
  parts_.telemetry.enter(Phase::kOther);
  if (!summary_.interrupted) state_.due = Due::kEpochEnd;
  return {};
}

// Creates the loader in the first epoch; its threads and memory are reused in the others.
void TrainLoop::begin_epoch() {
  std::vector<int64_t> indices = sampler_.indices(state_.position.epoch, state_.position.epoch_samples);
  if (parts_.config.batch.drop_last) {
    indices.resize(static_cast<size_t>(steps_in_epoch(state_.position.epoch_samples) * parts_.plan.per_rank));
  }
  const uint64_t seed = epoch_seed(parts_.config.seed, state_.position.epoch);
  if (loader_) {
    loader_->reset(std::move(indices), seed);
  } else {
    loader_ = std::make_unique<DataLoader>(
        parts_.task.train_data(), std::move(indices),
        loader_options(parts_.config, parts_.group.device(), parts_.plan.micro_batch, seed));
    parts_.telemetry.set_data_queue_capacity(loader_->prefetch_capacity());
  }
}

// Returns false at the end of the epoch, and if the ranks have stopped between two micro-batches, which undoes the
// step.
Result<bool> TrainLoop::train_step(DevicePrefetcher& feed) {
  const SteadyTime begin = parts_.clock.steady();
  const int64_t samples = samples_of_next_step();
  if (samples == 0) return false;
  if (parts_.profiler != nullptr) parts_.profiler->before_step(state_.position.step);
  schedule_step();
  parts_.step.begin(state_.position.step, samples);
  StepReport report;
  bool is_stopped = false;
  while (!is_stopped && !parts_.step.complete()) {
    const Batch batch = next_batch(feed);
    report.data_bytes += bytes_of(batch);
    report.tokens += tokens_of(batch);
    parts_.step.add(batch);
    is_stopped = !parts_.step.complete() && pace_.after_unit();
  }
  if (!is_stopped) step_done(samples, begin, report);
  if (parts_.profiler != nullptr) parts_.profiler->after_step();
  if (!is_stopped) return true;
  parts_.step.undo();
  if (state_.position.step == 0)
    return fail(ExitCode::kTempFail, "interrupted by a signal during the first step; a new start repeats it");
  RETURN_IF_ERROR(stop());
  return false;
}

// Sets the learning rates and the momentum of the next step.
void TrainLoop::schedule_step() {
  const int64_t per_epoch = steps_in_epoch(0);
  const int64_t epochs = parts_.config.epochs.value_or((state_.target_steps + per_epoch - 1) / per_epoch);
  scheduler_.set_progress({.step = state_.position.step,
                           .epoch = state_.position.epoch,
                           .total_steps = state_.target_steps,
                           .total_epochs = epochs});
  scheduler_.apply(parts_.step.optimizer());
}

Batch TrainLoop::next_batch(DevicePrefetcher& feed) {
  parts_.telemetry.enter(Phase::kDataWait);
  try {
    if (std::optional<Batch> batch = feed.next()) return std::move(*batch);
  } catch (...) {
    parts_.telemetry.record_data_error();
    throw;
  }
  throw std::logic_error("the loader has fewer samples than the epoch");
}

void TrainLoop::step_done(int64_t samples, SteadyTime begin, StepReport report) {
  const double learning_rate = scheduler_.learning_rate(parts_.config.optimizer.lr);
  const int64_t global_samples = samples * parts_.group.world_size();  // the sampler gives all ranks the same number
  state_.position.step += 1;
  state_.position.epoch_samples += global_samples;
  state_.due = Due::kAfterStep;
  state_.has_stepped = true;
  report_.add_step(parts_.step.loss(), samples, learning_rate);
  const double seconds = std::chrono::duration<double>(parts_.clock.steady() - begin).count();
  summary_.samples += global_samples;
  summary_.train_seconds += seconds;
  const GradientTraffic traffic = parts_.model.traffic();
  parts_.telemetry.record_gradient_reduction(traffic.buckets, traffic.bytes);
  report.step = state_.position.step;
  report.epoch = state_.position.epoch;
  report.local_samples = samples;
  report.global_samples = global_samples;
  report.seconds = seconds;
  report.learning_rate = learning_rate;
  report.collective_sequence = parts_.group.sequence_number();
  report.flops = parts_.step.flops_per_sample() * static_cast<double>(samples);
  report.batches_ready = loader_->prefetched();
  parts_.telemetry.record_step(report);
  if (parts_.tracking != nullptr && parts_.tracking->are_histograms_due(state_.position.step))
    parts_.tracking->add_histograms(state_.position.step, "parameters", parts_.model.parameters());
}

// May be called again for the same step: a recovery repeats the parts that the donor did not complete.
Result<void> TrainLoop::after_step() {
  if (losses_.is_first(state_.position.step, state_.reported)) losses_.show(state_.position.step, state_.reported);
  if (state_.position.step % parts_.config.log_every_steps == 0) RETURN_IF_ERROR(sync_loss());
  const int64_t check = parts_.config.distributed.check_parameters_every;
  if (check > 0 && state_.position.step % check == 0) RETURN_IF_ERROR(check_parameters());
  const bool save_failed = parts_.checkpointer != nullptr && parts_.checkpointer->poll(state_.position.step);
  if (pace_.after_unit(save_failed)) return stop();
  if (parts_.stop.grows()) throw ErrorException(peer_lost_error("other ranks join the group"));
  if (evaluator_.is_due_after_step(state_.position.step)) {
    ASSIGN_OR_RETURN(state_.is_best, evaluate());
    if (parts_.stop.agreed()) return stop();
  }
  if (!evaluator_.has_run_passes(state_.position.step))
    RETURN_IF_ERROR(evaluator_.run_due_passes(state_.position.step));
  if (parts_.stop.agreed()) return stop();
  take_save_request();
  const int64_t every = parts_.config.checkpoint.every_steps;
  if (state_.is_best || state_.save_due || (every > 0 && state_.position.step % every == 0))
    RETURN_IF_ERROR(save(SaveUntil::kStarted));
  state_.is_best = state_.save_due = false;
  state_.due = Due::kNothing;
  return {};
}

// As after_step().
Result<void> TrainLoop::end_epoch() {
  if (state_.due == Due::kEpochEnd) {
    if (steps_in_epoch(state_.position.epoch_samples) > 0) {  // the run ends inside the epoch
      state_.due = Due::kNothing;
      return {};
    }
    const int64_t epochs_completed = state_.position.epoch + 1;
    if (evaluator_.is_due_after_epoch(epochs_completed, state_.position.step)) {
      ASSIGN_OR_RETURN(state_.is_best, evaluate());
      // The position remains before the end of the epoch, so that a new process repeats the evaluation.
      if (!evaluator_.has_evaluated(state_.position.step)) return stop();
    }
    state_.position = {state_.position.step, epochs_completed, 0};
    state_.due = Due::kEpochSave;
    if (parts_.stop.agreed()) return stop();
  }
  take_save_request();
  const int64_t every = parts_.config.checkpoint.every_epochs;
  if (state_.is_best || state_.save_due || (every > 0 && state_.position.epoch % every == 0))
    RETURN_IF_ERROR(save(SaveUntil::kStarted));
  state_.is_best = state_.save_due = false;
  state_.due = Due::kNothing;
  return {};
}

// Runs the last evaluation and the passes, and saves the checkpoint of the complete run. If the ranks agree to stop in
// between, the state is saved, and a new process repeats the evaluation and the passes.
Result<void> TrainLoop::complete() {
  RETURN_IF_ERROR(sync_loss());
  RETURN_IF_ERROR(
      end_by(check_share(parts_.config.nonfinite, state_.position.step, parts_.step.skipped_in_run(), /*ended=*/true)));
  if (!evaluator_.has_evaluated(state_.position.step)) {
    RETURN_IF_ERROR(evaluate());
    if (parts_.stop.agreed()) return stop();
  }
  RETURN_IF_ERROR(evaluator_.run_final_passes(state_.position.step));
  if (parts_.stop.agreed()) return stop();
  RETURN_IF_ERROR(save(SaveUntil::kOnDisk));
  if (!evaluator_.has_best_passes()) return {};  // the run is complete
  if (!parts_.stop.agreed()) {
    is_final_ = true;
    RETURN_IF_ERROR(evaluator_.run_best_passes(state_.position.step));
  }
  // The model may have the best weights now, so nothing is saved.
  summary_.interrupted = parts_.stop.agreed();
  return {};
}

Result<void> TrainLoop::finish() {
  summarize();
  RETURN_IF_ERROR(check_parameters());
  summary_.parameters_equal = true;
  parts_.group.barrier();  // rank 0's store must outlive its last use
  return {};
}

void TrainLoop::summarize() {
  if (parts_.profiler != nullptr) parts_.profiler->finish();
  summary_.position = state_.position;
  summary_.was_complete = state_.was_complete;
  summary_.metrics = evaluator_.metrics();
  if (evaluator_.has_stopped_early() && !has_reached_length()) summary_.stopped_early = evaluator_.stop_reason();
  if (parts_.checkpointer != nullptr) {
    summary_.checkpoint = parts_.checkpointer->directory();
    summary_.best = parts_.checkpointer->best();
  }
}

// ---- evaluating, saving and stopping -------------------------------------------------------------------------------

// Returns whether the model is the best so far. The ranks may have agreed to stop before the end (parts_.stop).
Result<bool> TrainLoop::evaluate() {
  RETURN_IF_ERROR(sync_loss());
  if (parts_.step.can_undo()) before_evaluation_ = host_state();
  ASSIGN_OR_RETURN(const bool is_best, evaluator_.evaluate(state_.position.step));
  if (evaluator_.has_evaluated(state_.position.step)) {
    RETURN_IF_ERROR(scheduler_.observe(evaluator_.metrics()));
    RETURN_IF_ERROR(write_history());
  }
  before_evaluation_ = nullptr;
  return is_best;
}

// Rank 0 writes on another thread, because a file server may not respond. If the ranks agree to stop meanwhile, the
// evaluation is complete nevertheless. Fails if another process has replaced rank 0.
Result<void> TrainLoop::write_history() {
  std::vector<ReportFile> files = report_.add_evaluation(state_.position.step, epochs_done(), evaluator_.metrics());
  if (!report_.is_enabled()) return {};
  const Result<void> written = run_on_all_ranks(
      [files = std::move(files), logger = parts_.telemetry.logger(),
       may_write = writer_check(parts_)]() -> Result<void> {
        if (!files.empty() && may_write) RETURN_IF_ERROR(may_write());
        write_report(files, logger);
        return {};
      },
      parts_.group, parts_.stop, "the history of the run was written");
  if (parts_.stop.agreed()) return {};
  return parts_.group.agree(!written && is_fenced_off(written.error()) ? written : Result<void>());
}

Result<void> TrainLoop::save(SaveUntil until) {
  if (parts_.checkpointer == nullptr) return {};
  RETURN_IF_ERROR(sync_loss());  // never save weights that are not finite
  RETURN_IF_ERROR(check_weights());
  report_.reduce_losses();
  const Result<void> saved = parts_.checkpointer->save(state_.position, parts_.model, stateful_, until);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
}

// A node is about to be drained or removed (common/status_query.h). The ranks have agreed on the request.
void TrainLoop::take_save_request() {
  if (!parts_.stop.take_save_request()) return;
  state_.save_due = true;
  if (parts_.group.rank() == 0 && parts_.checkpointer != nullptr)
    parts_.telemetry.logger().info("a checkpoint was requested", {{"step", state_.position.step}});
}

// Called by all ranks after a signal, or after a failed save that ends the run.
Result<void> TrainLoop::stop() {
  if (parts_.checkpointer != nullptr) RETURN_IF_ERROR(parts_.checkpointer->agree_on_failure());
  summary_.interrupted = true;
  const Result<void> saved = save(SaveUntil::kOnDisk);
  const bool may_be_unsaved = parts_.config.checkpoint.on_error == CheckpointErrors::kContinue;
  if (saved || !may_be_unsaved || saved.error().code == ExitCode::kTempFail || !nonfinite_reason_.empty()) return saved;
  summary_.save_error = saved.error().message;  // a new process resumes from an older checkpoint
  return {};
}

// ---- positions -----------------------------------------------------------------------------------------------------

bool TrainLoop::has_reached_length() const {
  if (parts_.config.steps) return state_.position.step >= *parts_.config.steps;
  return state_.position.epoch >= *parts_.config.epochs;
}

int64_t TrainLoop::steps_in_epoch(int64_t samples_done) const {
  return batch_count(sampler_.samples_per_rank(samples_done), parts_.plan.per_rank, parts_.config.batch.drop_last);
}

// Includes the completed fraction of the current epoch.
double TrainLoop::epochs_done() const {
  const double left = static_cast<double>(steps_in_epoch(state_.position.epoch_samples));
  return static_cast<double>(state_.position.epoch) + 1 - left / static_cast<double>(steps_in_epoch(0));
}

// Returns the samples of this rank; 0 at the end of the epoch.
int64_t TrainLoop::samples_of_next_step() const {
  const int64_t left = sampler_.samples_per_rank(state_.position.epoch_samples);
  if (left >= parts_.plan.per_rank) return parts_.plan.per_rank;
  return parts_.config.batch.drop_last ? 0 : left;
}

int64_t TrainLoop::target_steps() const {
  if (parts_.config.steps) return *parts_.config.steps;
  const int64_t epochs_after = std::max<int64_t>(*parts_.config.epochs - state_.position.epoch - 1, 0);
  return state_.position.step +
         (is_finished() ? 0 : steps_in_epoch(state_.position.epoch_samples) + epochs_after * steps_in_epoch(0));
}

}  // namespace oarlock

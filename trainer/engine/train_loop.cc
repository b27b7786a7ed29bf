#include "trainer/engine/train_loop.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "common/status_macros.h"
#include "trainer/device/device.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/randomness.h"

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

Result<TrainLoop> TrainLoop::create(const TrainParts& parts) {
  const int world_size = parts.group.world_size();
  const int64_t size = parts.task.train_data().size();
  const SamplerOptions options{.size = size,
                               .rank = parts.group.rank(),
                               .world_size = world_size,
                               .seed = parts.config.seed,
                               .shuffle = true,
                               .drop_last = parts.config.batch.drop_last};
  ASSIGN_OR_RETURN(DistributedSampler sampler, DistributedSampler::create(options));
  TrainLoop loop(parts, std::move(sampler));
  if (loop.steps_in_epoch(0) == 0) {
    return fail(ExitCode::kConfig,
                fmt::format("batch: {} samples on {} ranks are less than one step of {}; lower batch.size or set "
                            "batch.drop_last: false",
                            size, world_size, parts.plan.effective_batch));
  }
  return loop;
}

TrainLoop::TrainLoop(const TrainParts& parts, DistributedSampler sampler)
    : parts_(parts),
      sampler_(sampler),
      pace_(parts.stop),
      scheduler_(parts.config.schedule),
      evaluator_(parts),
      report_(parts.config.report, parts.config.checkpoint.dir, parts.group, parts.telemetry, parts.clock) {}

Result<TrainSummary> TrainLoop::run() {
  RETURN_IF_ERROR(restore());
  summary_.was_complete = is_finished();
  RETURN_IF_ERROR(catch_up());
  while (!is_finished() && !summary_.interrupted) {
    RETURN_IF_ERROR(train_epoch());
    if (!summary_.interrupted) RETURN_IF_ERROR(end_epoch());
  }
  if (!summary_.interrupted) RETURN_IF_ERROR(complete());
  RETURN_IF_ERROR(finish());
  return summary_;
}

// ---- the run -------------------------------------------------------------------------------------------------------

Result<void> TrainLoop::restore() {
  stateful_ = parts_.step.stateful();
  if (scheduler_.has_state()) stateful_.push_back(&scheduler_);
  for (Stateful* part : evaluator_.stateful()) stateful_.push_back(part);
  if (report_.is_enabled()) stateful_.push_back(&report_);
  if (parts_.checkpointer != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<Position> restored, parts_.checkpointer->restore(parts_.model, stateful_));
    position_ = restored.value_or(Position{});
  }
  summary_.target_steps = target_steps();
  parts_.telemetry.begin(position_.step, summary_.target_steps, position_.epoch, parts_.config.epochs.value_or(0));
  parts_.telemetry.enter(Phase::kOther);
  start_tracking();
  tracked_step_ = position_.step;
  tracked_phases_ = parts_.telemetry.phase_seconds();
  return {};
}

void TrainLoop::start_tracking() {
  if (parts_.tracking == nullptr) return;
  parts_.tracking->start(position_.step);
  parts_.step.on_gradients([this] {
    const int64_t step = position_.step + 1;
    if (!parts_.tracking->are_histograms_due(step)) return;
    std::vector<NamedTensor> gradients = parts_.model.parameters();
    for (NamedTensor& item : gradients) item.tensor = item.tensor.grad();
    parts_.tracking->add_histograms(step, "gradients", gradients);
  });
}

// Repeats the evaluation and the passes of the restored step if the earlier process was stopped before they completed.
Result<void> TrainLoop::catch_up() {
  bool is_best = false;
  if (evaluator_.is_due_after_step(position_.step)) {
    ASSIGN_OR_RETURN(is_best, evaluate());
  }
  if (!parts_.stop.agreed() && evaluator_.is_pass_due_after_step(position_.step)) {
    RETURN_IF_ERROR(evaluator_.run_due_passes(position_.step));
  }
  if (parts_.stop.agreed()) return stop();
  return is_best ? save(SaveUntil::kStarted) : Result<void>();
}

Result<void> TrainLoop::train_epoch() {
  begin_epoch();
  const std::unique_ptr<DevicePrefetcher> feed =
      make_device_prefetcher([this] { return loader_->next(); }, parts_.group.device(),
                             feed_options(parts_.config, parts_.group.world_size()));
  while (!is_finished() && !summary_.interrupted && train_step(*feed)) {
    RETURN_IF_ERROR(after_step());
  }
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

// Creates the loader in the first epoch; its threads and memory are reused in the others.
void TrainLoop::begin_epoch() {
  std::vector<int64_t> indices = sampler_.indices(position_.epoch, position_.epoch_samples);
  if (parts_.config.batch.drop_last) {
    indices.resize(static_cast<size_t>(steps_in_epoch(position_.epoch_samples) * parts_.plan.per_rank));
  }
  const uint64_t seed = epoch_seed(parts_.config.seed, position_.epoch);
  if (loader_) {
    loader_->reset(std::move(indices), seed);
  } else {
    loader_ = std::make_unique<DataLoader>(
        parts_.task.train_data(), std::move(indices),
        loader_options(parts_.config, parts_.group.device(), parts_.plan.micro_batch, seed));
    parts_.telemetry.set_data_queue_capacity(loader_->prefetch_capacity());
  }
}

// Returns false at the end of the epoch.
bool TrainLoop::train_step(DevicePrefetcher& feed) {
  const SteadyTime begin = parts_.clock.steady();
  const int64_t samples = samples_of_next_step();
  if (samples == 0) return false;
  if (parts_.profiler != nullptr) parts_.profiler->before_step(position_.step);
  schedule_step();
  parts_.step.begin(position_.step, samples);
  StepReport report;
  while (!parts_.step.complete()) {
    const Batch batch = next_batch(feed);
    report.data_bytes += bytes_of(batch);
    report.tokens += tokens_of(batch);
    parts_.step.add(batch);
  }
  step_done(samples, begin, report);
  if (parts_.profiler != nullptr) parts_.profiler->after_step();
  return true;
}

// Sets the learning rates and the momentum of the next step.
void TrainLoop::schedule_step() {
  const int64_t per_epoch = steps_in_epoch(0);
  const int64_t epochs = parts_.config.epochs.value_or((summary_.target_steps + per_epoch - 1) / per_epoch);
  scheduler_.set_progress(
      {.step = position_.step, .epoch = position_.epoch, .total_steps = summary_.target_steps, .total_epochs = epochs});
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
  position_.step += 1;
  position_.epoch_samples += global_samples;
  report_.add_step(parts_.step.loss(), samples, learning_rate);
  const double seconds = std::chrono::duration<double>(parts_.clock.steady() - begin).count();
  summary_.samples += global_samples;
  summary_.train_seconds += seconds;
  const GradientTraffic traffic = parts_.model.traffic();
  parts_.telemetry.record_gradient_reduction(traffic.buckets, traffic.bytes);
  report.step = position_.step;
  report.epoch = position_.epoch;
  report.local_samples = samples;
  report.global_samples = global_samples;
  report.seconds = seconds;
  report.learning_rate = learning_rate;
  report.collective_sequence = parts_.group.sequence_number();
  report.flops = parts_.step.flops_per_sample() * static_cast<double>(samples);
  report.batches_ready = loader_->prefetched();
  parts_.telemetry.record_step(report);
  if (parts_.tracking != nullptr && parts_.tracking->are_histograms_due(position_.step))
    parts_.tracking->add_histograms(position_.step, "parameters", parts_.model.parameters());
}

Result<void> TrainLoop::after_step() {
  if (position_.step % parts_.config.log_every_steps == 0) RETURN_IF_ERROR(sync_loss());
  const int64_t check = parts_.config.distributed.check_parameters_every;
  if (check > 0 && position_.step % check == 0) RETURN_IF_ERROR(check_parameters());
  const bool save_failed = parts_.checkpointer != nullptr && parts_.checkpointer->poll(position_.step);
  if (pace_.after_unit(save_failed)) return stop();
  bool is_best = false;
  if (evaluator_.is_due_after_step(position_.step)) {
    ASSIGN_OR_RETURN(is_best, evaluate());
    if (parts_.stop.agreed()) return stop();
  }
  RETURN_IF_ERROR(evaluator_.run_due_passes(position_.step));
  if (parts_.stop.agreed()) return stop();
  const int64_t every = parts_.config.checkpoint.every_steps;
  if (is_best || (every > 0 && position_.step % every == 0)) return save(SaveUntil::kStarted);
  return {};
}

Result<void> TrainLoop::end_epoch() {
  if (steps_in_epoch(position_.epoch_samples) > 0) return {};  // the run ends inside the epoch
  const int64_t epochs_completed = position_.epoch + 1;
  bool is_best = false;
  if (evaluator_.is_due_after_epoch(epochs_completed, position_.step)) {
    ASSIGN_OR_RETURN(is_best, evaluate());
    if (parts_.stop.agreed()) return stop();  // the position remains before the end of the epoch
  }
  position_ = {position_.step, epochs_completed, 0};
  const int64_t every = parts_.config.checkpoint.every_epochs;
  if (is_best || (every > 0 && epochs_completed % every == 0)) return save(SaveUntil::kStarted);
  return {};
}

// Runs the last evaluation and the passes, and saves the checkpoint of the complete run. If the ranks agree to stop in
// between, the state is saved, and a new process repeats the evaluation and the passes.
Result<void> TrainLoop::complete() {
  RETURN_IF_ERROR(sync_loss());
  RETURN_IF_ERROR(
      end_by(check_share(parts_.config.nonfinite, position_.step, parts_.step.skipped_in_run(), /*ended=*/true)));
  if (!evaluator_.has_evaluated(position_.step)) {
    RETURN_IF_ERROR(evaluate());
    if (parts_.stop.agreed()) return stop();
  }
  RETURN_IF_ERROR(evaluator_.run_final_passes(position_.step));
  if (parts_.stop.agreed()) return stop();
  RETURN_IF_ERROR(save(SaveUntil::kOnDisk));
  RETURN_IF_ERROR(evaluator_.run_best_passes(position_.step));
  summary_.interrupted = parts_.stop.agreed();  // the model may have the best weights now, so nothing is saved
  return {};
}

Result<void> TrainLoop::finish() {
  if (parts_.profiler != nullptr) parts_.profiler->finish();
  summary_.position = position_;
  summary_.metrics = evaluator_.metrics();
  if (evaluator_.has_stopped_early() && !has_reached_length()) summary_.stopped_early = evaluator_.stop_reason();
  if (parts_.checkpointer != nullptr) summary_.checkpoint = parts_.checkpointer->folder();
  RETURN_IF_ERROR(check_parameters());
  summary_.parameters_equal = true;
  parts_.group.barrier();  // rank 0's store must outlive its last use
  return {};
}

// ---- checks --------------------------------------------------------------------------------------------------------

// Reads the results of the last steps from the device and reports them. A NaN of one rank reaches all ranks through the
// averaged gradient and the averaged loss, so all ranks fail together.
Result<void> TrainLoop::sync_loss() {
  if (!parts_.step.loss().defined() || synced_step_ == position_.step) return {};
  synced_step_ = position_.step;
  StepReading reading = parts_.step.read();
  std::array<double, 2> sums = {reading.loss / parts_.group.world_size(),
                                static_cast<double>(reading.nonfinite_losses - nonfinite_losses_seen_)};
  nonfinite_losses_seen_ = reading.nonfinite_losses;
  const double own_losses = sums[1];
  parts_.group.all_reduce_sum(sums);
  double loss = sums[0];
  if (std::isnan(loss)) loss = std::abs(loss);  // the sign of a NaN has no meaning, but would be printed
  parts_.telemetry.record_loss(loss);
  // Only at steps that do not depend on when the run is interrupted.
  if (parts_.tracking != nullptr && (position_.step % parts_.config.log_every_steps == 0 || is_finished()))
    track_step(loss, reading);
  if (sums[1] > 0) report_nonfinite_losses(own_losses, reading);
  report_device_memory();
  if (reading.gradient_norm) parts_.telemetry.record_gradient_norm(*reading.gradient_norm);
  if (reading.skipped > skipped_seen_) {
    parts_.telemetry.record_skipped_steps(reading.skipped - skipped_seen_,
                                          reading.first_skipped.value_or(position_.step));
  }
  skipped_seen_ = reading.skipped;
  std::optional<NonfiniteStop> stop = check_finite(parts_.config.nonfinite, position_.step, loss, reading);
  if (!stop) stop = check_share(parts_.config.nonfinite, position_.step, parts_.step.skipped_in_run(), /*ended=*/false);
  return end_by(stop);
}

// Times are seconds per step since the last point.
void TrainLoop::track_step(double loss, const StepReading& reading) {
  const std::array<double, kPhaseNames.size()> phases = parts_.telemetry.phase_seconds();
  const auto steps = static_cast<double>(std::max<int64_t>(position_.step - tracked_step_, 1));
  Scalars out{{{"loss", loss},
               {"epoch", static_cast<double>(position_.epoch)},
               {"learning_rate", scheduler_.learning_rate(parts_.config.optimizer.lr)},
               {"samples_per_second", parts_.telemetry.samples_per_second()}}};
  if (reading.gradient_norm) out.values.emplace_back("gradient_norm", *reading.gradient_norm);
  if (reading.loss_scale) out.values.emplace_back("loss_scale", *reading.loss_scale);
  for (const Phase phase :
       {Phase::kDataWait, Phase::kForward, Phase::kBackward, Phase::kComm, Phase::kOptimizer, Phase::kCheckpoint}) {
    const auto index = static_cast<size_t>(phase);
    out.values.emplace_back(fmt::format("time/{}", kPhaseNames[index]),
                            (phases[index] - tracked_phases_[index]) / steps);
  }
  parts_.tracking->add_scalars(position_.step, std::move(out));
  tracked_step_ = position_.step;
  tracked_phases_ = phases;
}

// Called by all ranks. The loss of a step may be non-finite on several ranks, which do not know of each other, so the
// largest count of a rank is reported.
void TrainLoop::report_nonfinite_losses(double own_losses, StepReading& reading) {
  const auto own_first = static_cast<double>(reading.first_nonfinite_loss.value_or(position_.step));
  std::array<double, 2> largest = {own_losses, -own_first};
  parts_.group.all_reduce_max(largest);
  reading.first_nonfinite_loss = static_cast<int64_t>(-largest[1]);
  parts_.telemetry.record_nonfinite_losses(static_cast<int64_t>(largest[0]), *reading.first_nonfinite_loss);
}

Result<void> TrainLoop::end_by(const std::optional<NonfiniteStop>& stop) {
  if (!stop) return {};
  nonfinite_reason_ = stop->reason;
  return tl::make_unexpected(stop->error);
}

void TrainLoop::report_device_memory() {
  const std::optional<DeviceMemory> memory = device_memory(parts_.group.device());
  if (!memory) return;
  parts_.telemetry.set_device_memory({memory->allocated_bytes, memory->reserved_bytes, memory->peak_bytes,
                                      memory->limit_bytes, memory->retries, memory->out_of_memory});
}

// Verifies what DDP guarantees, also against causes that DDP does not see: faulty memory, and state that a rank changes
// by itself.
Result<void> TrainLoop::check_parameters() {
  const Result<void> equal = check_equal_on_all_ranks(parts_.model.parameters(), parts_.group);
  parts_.telemetry.record_parameter_check(equal.has_value());
  diverged_ = !equal;
  return equal;
}

// ---- evaluating, saving and stopping -------------------------------------------------------------------------------

// Returns whether the model is the best so far. The ranks may have agreed to stop before the end (parts_.stop).
Result<bool> TrainLoop::evaluate() {
  RETURN_IF_ERROR(sync_loss());
  ASSIGN_OR_RETURN(const bool is_best, evaluator_.evaluate(position_.step));
  if (parts_.stop.agreed()) return is_best;
  RETURN_IF_ERROR(scheduler_.observe(evaluator_.metrics()));
  report_.add_evaluation(position_.step, epochs_done(), evaluator_.metrics());
  return is_best;
}

Result<void> TrainLoop::save(SaveUntil until) {
  if (parts_.checkpointer == nullptr) return {};
  RETURN_IF_ERROR(sync_loss());  // never save weights that are not finite
  report_.reduce_losses();
  const Result<void> saved = parts_.checkpointer->save(position_, parts_.model, stateful_, until);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
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
  if (parts_.config.steps) return position_.step >= *parts_.config.steps;
  return position_.epoch >= *parts_.config.epochs;
}

int64_t TrainLoop::steps_in_epoch(int64_t samples_done) const {
  return batch_count(sampler_.samples_per_rank(samples_done), parts_.plan.per_rank, parts_.config.batch.drop_last);
}

// Includes the completed fraction of the current epoch.
double TrainLoop::epochs_done() const {
  const double left = static_cast<double>(steps_in_epoch(position_.epoch_samples));
  return static_cast<double>(position_.epoch) + 1 - left / static_cast<double>(steps_in_epoch(0));
}

// Of this rank; 0 at the end of the epoch.
int64_t TrainLoop::samples_of_next_step() const {
  const int64_t left = sampler_.samples_per_rank(position_.epoch_samples);
  if (left >= parts_.plan.per_rank) return parts_.plan.per_rank;
  return parts_.config.batch.drop_last ? 0 : left;
}

int64_t TrainLoop::target_steps() const {
  if (parts_.config.steps) return *parts_.config.steps;
  const int64_t epochs_after = std::max<int64_t>(*parts_.config.epochs - position_.epoch - 1, 0);
  return position_.step +
         (is_finished() ? 0 : steps_in_epoch(position_.epoch_samples) + epochs_after * steps_in_epoch(0));
}

}  // namespace oarlock

#include "trainer/engine/train_loop.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "common/status_macros.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/device/device.h"
#include "trainer/distributed/library_errors.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/train_step.h"

namespace oarlock {
namespace {

int64_t bytes_of(const Batch& batch) {
  int64_t out = 0;
  for (const auto& [name, tensor] : batch.tensors) out += static_cast<int64_t>(tensor.nbytes());
  return out;
}

Result<DistributedSampler> make_sampler(const TrainParts& parts) {
  return DistributedSampler::create({.size = parts.task.train_data().size(),
                                     .rank = parts.group.rank(),
                                     .world_size = parts.group.world_size(),
                                     .seed = parts.config.seed,
                                     .shuffle = true,
                                     .drop_last = parts.config.batch.drop_last});
}

// Whether the parameters that are trained are finite. Waits for the device once, and copies no parameter.
bool are_finite(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> extremes;
  for (const NamedTensor& item : parameters) {
    if (!item.tensor.requires_grad() || item.tensor.numel() == 0) continue;
    const auto [smallest, largest] = at::aminmax(item.tensor.detach());
    extremes.push_back(smallest.to(at::kDouble));
    extremes.push_back(largest.to(at::kDouble));
  }
  return extremes.empty() || at::stack(extremes).isfinite().all().item<bool>();
}

// Tasks with sequences have a tensor of this name.
int64_t tokens_of(const Batch& batch) {
  const auto tokens = batch.tensors.find("tokens");
  return tokens == batch.tensors.end() ? 0 : tokens->second.numel();
}

}  // namespace

Result<TrainLoop> TrainLoop::create(const TrainParts& parts) {
  ASSIGN_OR_RETURN(DistributedSampler sampler, make_sampler(parts));
  TrainLoop loop(parts, std::move(sampler));
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
      report_(parts.config.report, parts.config.checkpoint.dir, parts.group, parts.clock) {}

Result<TrainSummary> TrainLoop::run() {
  RETURN_IF_ERROR(restore());
  summary_.was_complete = is_finished();
  has_state_ = has_joined_ = true;
  return resume();
}

Result<TrainSummary> TrainLoop::resume() {
  if (due_ == Due::kCatchUp) {
    RETURN_IF_ERROR(catch_up());
    due_ = Due::kNothing;
  }
  // The save after this step was lost with rank 0, and the next step will change the weights.
  if (save_due_ && due_ == Due::kNothing && !summary_.interrupted && !completed_) {
    RETURN_IF_ERROR(save(SaveUntil::kStarted));
    save_due_ = false;
  }
  while (!summary_.interrupted && (due_ != Due::kNothing || !is_finished())) {
    if (due_ == Due::kNothing || due_ == Due::kAfterStep) RETURN_IF_ERROR(train_epoch());
    if (!summary_.interrupted) RETURN_IF_ERROR(end_epoch());
  }
  if (!summary_.interrupted && !completed_) {
    RETURN_IF_ERROR(complete());
    completed_ = true;
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
    ASSIGN_OR_RETURN(const std::optional<Position> restored, parts_.checkpointer->restore(parts_.model, stateful_));
    position_ = restored.value_or(Position{});
  }
  summary_.target_steps = target_steps();
  parts_.telemetry.begin(position_.step, summary_.target_steps, position_.epoch, parts_.config.epochs.value_or(0));
  parts_.telemetry.enter(Phase::kOther);
  start_tracking();
  return {};
}

// Called once by each process, when its position is known.
void TrainLoop::start_tracking() {
  if (on_start_) on_start_(position_.step, summary_.target_steps);
  tracked_step_ = position_.step;
  tracked_phases_ = parts_.telemetry.phase_seconds();
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
  if (evaluator_.is_due_after_step(position_.step)) {
    ASSIGN_OR_RETURN(is_best_, evaluate());
  }
  if (!parts_.stop.agreed() && evaluator_.is_pass_due_after_step(position_.step)) {
    RETURN_IF_ERROR(evaluator_.run_due_passes(position_.step));
  }
  if (parts_.stop.agreed()) return stop();
  if (is_best_) RETURN_IF_ERROR(save(SaveUntil::kStarted));
  is_best_ = false;
  return {};
}

// Begins with the rest of after_step() if a rank was lost meanwhile.
Result<void> TrainLoop::train_epoch() {
  if (due_ == Due::kAfterStep) RETURN_IF_ERROR(after_step());
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
  if (!summary_.interrupted) due_ = Due::kEpochEnd;
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

// Returns false at the end of the epoch, and if the ranks have stopped between two micro-batches, which undoes the
// step.
Result<bool> TrainLoop::train_step(DevicePrefetcher& feed) {
  const SteadyTime begin = parts_.clock.steady();
  const int64_t samples = samples_of_next_step();
  if (samples == 0) return false;
  if (parts_.profiler != nullptr) parts_.profiler->before_step(position_.step);
  schedule_step();
  parts_.step.begin(position_.step, samples);
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
  if (position_.step == 0)
    return fail(ExitCode::kTempFail, "interrupted by a signal during the first step; a new start repeats it");
  RETURN_IF_ERROR(stop());
  return false;
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
  due_ = Due::kAfterStep;
  has_stepped_ = true;
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

// May be called again for the same step: a recovery repeats the parts that the donor did not complete.
Result<void> TrainLoop::after_step() {
  if (is_first_loss()) show_loss();
  if (position_.step % parts_.config.log_every_steps == 0) RETURN_IF_ERROR(sync_loss());
  const int64_t check = parts_.config.distributed.check_parameters_every;
  if (check > 0 && position_.step % check == 0) RETURN_IF_ERROR(check_parameters());
  const bool save_failed = parts_.checkpointer != nullptr && parts_.checkpointer->poll(position_.step);
  if (pace_.after_unit(save_failed)) return stop();
  if (parts_.stop.grows()) throw ErrorException(peer_lost_error("other ranks join the group"));
  if (evaluator_.is_due_after_step(position_.step)) {
    ASSIGN_OR_RETURN(is_best_, evaluate());
    if (parts_.stop.agreed()) return stop();
  }
  if (!evaluator_.has_run_passes(position_.step)) RETURN_IF_ERROR(evaluator_.run_due_passes(position_.step));
  if (parts_.stop.agreed()) return stop();
  const int64_t every = parts_.config.checkpoint.every_steps;
  if (is_best_ || save_due_ || (every > 0 && position_.step % every == 0)) RETURN_IF_ERROR(save(SaveUntil::kStarted));
  is_best_ = save_due_ = false;
  due_ = Due::kNothing;
  return {};
}

// As after_step().
Result<void> TrainLoop::end_epoch() {
  if (due_ == Due::kEpochEnd) {
    if (steps_in_epoch(position_.epoch_samples) > 0) {  // the run ends inside the epoch
      due_ = Due::kNothing;
      return {};
    }
    const int64_t epochs_completed = position_.epoch + 1;
    if (evaluator_.is_due_after_epoch(epochs_completed, position_.step)) {
      ASSIGN_OR_RETURN(is_best_, evaluate());
      // The position remains before the end of the epoch, so that a new process repeats the evaluation.
      if (!evaluator_.has_evaluated(position_.step)) return stop();
    }
    position_ = {position_.step, epochs_completed, 0};
    due_ = Due::kEpochSave;
    if (parts_.stop.agreed()) return stop();
  }
  const int64_t every = parts_.config.checkpoint.every_epochs;
  if (is_best_ || save_due_ || (every > 0 && position_.epoch % every == 0)) RETURN_IF_ERROR(save(SaveUntil::kStarted));
  is_best_ = save_due_ = false;
  due_ = Due::kNothing;
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
  if (!evaluator_.has_best_passes()) return {};  // the run is complete
  if (!parts_.stop.agreed()) {
    is_final_ = true;
    RETURN_IF_ERROR(evaluator_.run_best_passes(position_.step));
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
  summary_.position = position_;
  summary_.metrics = evaluator_.metrics();
  if (evaluator_.has_stopped_early() && !has_reached_length()) summary_.stopped_early = evaluator_.stop_reason();
  if (parts_.checkpointer != nullptr) {
    summary_.checkpoint = parts_.checkpointer->folder();
    summary_.best = parts_.checkpointer->best();
  }
}

// ---- checks --------------------------------------------------------------------------------------------------------

// Reads the results of the last steps from the device and reports them. A NaN of one rank reaches all ranks through the
// averaged gradient and the averaged loss, so all ranks fail together.
Result<void> TrainLoop::sync_loss() {
  if (!has_stepped_ || synced_step_ == position_.step) return {};
  // Not on a rank that has received the state of a step that it did not complete.
  const bool has_loss = parts_.step.loss().defined();
  StepReading reading = has_loss ? parts_.step.read() : StepReading{};
  std::array<double, 3> sums = {reading.loss / parts_.group.world_size(),
                                has_loss ? static_cast<double>(reading.nonfinite_losses - nonfinite_losses_seen_) : 0.0,
                                has_loss ? 1.0 : 0.0};
  const double own_losses = sums[1];
  parts_.group.all_reduce_sum(sums);
  synced_step_ = position_.step;
  if (has_loss) nonfinite_losses_seen_ = reading.nonfinite_losses;
  if (sums[2] == 0) return {};
  double loss = sums[0];
  if (sums[2] < parts_.group.world_size()) loss *= parts_.group.world_size() / sums[2];
  if (std::isnan(loss)) loss = std::abs(loss);  // the sign of a NaN has no meaning, but would be printed
  if (shown_step_ != position_.step) parts_.telemetry.record_loss(loss);
  shown_step_ = position_.step;
  // Only at steps that do not depend on when the run is interrupted. In the last evaluation the epoch has not ended
  // yet.
  const bool is_last = position_.step == summary_.target_steps || is_finished();
  if (parts_.tracking != nullptr && (position_.step % parts_.config.log_every_steps == 0 || is_last))
    track_step(loss, reading);
  if (sums[1] > 0) report_nonfinite_losses(own_losses, reading);
  report_device_memory();
  if (reading.gradient_norm) parts_.telemetry.record_gradient_norm(*reading.gradient_norm);
  if (reading.skipped > skipped_seen_) {
    parts_.telemetry.record_skipped_steps(reading.skipped - skipped_seen_,
                                          reading.first_skipped.value_or(position_.step));
  }
  if (has_loss) skipped_seen_ = reading.skipped;
  std::optional<NonfiniteStop> stop = check_finite(parts_.config.nonfinite, position_.step, loss, reading);
  if (!stop) stop = check_share(parts_.config.nonfinite, position_.step, parts_.step.skipped_in_run(), /*ended=*/false);
  return end_by(stop);
}

// Whether the loss is reported between the steps of log.every_steps: after the first step of this process, and after
// the steps 1, 2, 4 ... of the run, so that the first values appear soon.
bool TrainLoop::is_first_loss() const {
  const int64_t every = parts_.config.log_every_steps;
  if (shown_step_ == position_.step || position_.step % every == 0) return false;
  return shown_step_ < 0 || (position_.step < every && std::has_single_bit(static_cast<uint64_t>(position_.step)));
}

// Only reports the loss: the checks of sync_loss() count on the steps between its calls.
void TrainLoop::show_loss() {
  synchronize_device(parts_.group.device(), feed_options(parts_.config, parts_.group.world_size()).timeout);
  const at::Tensor& loss = parts_.step.loss();
  // A rank that was replaced after its last step has none.
  std::array<double, 2> sums = {loss.defined() ? loss.item<double>() : 0, loss.defined() ? 1.0 : 0.0};
  parts_.group.all_reduce_sum(sums);
  shown_step_ = position_.step;
  const double loss_of_all = sums[0] / sums[1];
  if (sums[1] > 0) parts_.telemetry.record_loss(std::isnan(loss_of_all) ? std::abs(loss_of_all) : loss_of_all);
}

// Times are seconds per step since the last point.
void TrainLoop::track_step(double loss, const StepReading& reading) {
  const std::array<double, kPhaseNames.size()> phases = parts_.telemetry.phase_seconds();
  const auto steps = static_cast<double>(std::max<int64_t>(position_.step - tracked_step_, 1));
  Scalars out{{{"loss", loss},
               {"epoch", epochs_done()},
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

// Called by all ranks. The loss of a step may be non-finite on several ranks, which are not informed of each other, so
// the largest count of a rank is reported.
void TrainLoop::report_nonfinite_losses(double own_losses, StepReading& reading) {
  const auto own_first = static_cast<double>(reading.first_nonfinite_loss.value_or(position_.step));
  std::array<double, 2> largest = {own_losses, -own_first};
  parts_.group.all_reduce_max(largest);
  reading.first_nonfinite_loss = static_cast<int64_t>(-largest[1]);
  parts_.telemetry.record_nonfinite_losses(static_cast<int64_t>(largest[0]), *reading.first_nonfinite_loss);
}

// The loss of a step is that of the weights before its update. The ranks have equal weights.
Result<void> TrainLoop::check_weights() {
  if (!has_stepped_ || are_finite(parts_.model.parameters())) return {};
  return end_by(NonfiniteStop{
      "NonFiniteGradient",
      {ExitCode::kDataErr,
       fmt::format("the weights are not finite after step {}, because its gradient was not, or its update was too "
                   "large; lower optimizer.lr, or set nonfinite.gradient: skip; the newest checkpoint is from before",
                   position_.step)}});
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
  if (parts_.step.can_undo()) before_evaluation_ = host_state();
  ASSIGN_OR_RETURN(const bool is_best, evaluator_.evaluate(position_.step));
  if (evaluator_.has_evaluated(position_.step)) {
    RETURN_IF_ERROR(scheduler_.observe(evaluator_.metrics()));
    RETURN_IF_ERROR(write_history());
  }
  before_evaluation_ = nullptr;
  return is_best;
}

// Rank 0 writes on another thread, because a file server may not respond. If the ranks agree to stop meanwhile, the
// evaluation is complete nevertheless. Fails if another process has replaced rank 0.
Result<void> TrainLoop::write_history() {
  std::vector<ReportFile> files = report_.add_evaluation(position_.step, epochs_done(), evaluator_.metrics());
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

// ---- recovery without a checkpoint ---------------------------------------------------------------------------------

// The state that an evaluation changes.
nlohmann::json TrainLoop::host_state() const {
  nlohmann::json sections = nlohmann::json::object();
  for (const Stateful* part : stateful_) sections[std::string(part->section())] = part->values();
  nlohmann::json out = {{"sections", std::move(sections)}, {"evaluator", evaluator_.state_for_joining()}};
  if (parts_.checkpointer != nullptr) out["checkpoints"] = parts_.checkpointer->state_for_joining();
  return out;
}

Result<void> TrainLoop::restore_host_state(const nlohmann::json& state) {
  for (Stateful* part : stateful_)
    RETURN_IF_ERROR(part->restored(state.at("sections").at(std::string(part->section()))));
  evaluator_.join(state.at("evaluator"));
  return {};
}

void TrainLoop::leave() {
  parts_.step.undo();
  parts_.model.leave(parts_.step.steps_completed() > steps_before_join_);
  if (before_evaluation_.is_null()) return;
  const nlohmann::json before = std::exchange(before_evaluation_, nullptr);
  if (!restore_host_state(before)) has_state_ = false;
  if (parts_.checkpointer != nullptr) parts_.checkpointer->undo_evaluation(before.at("checkpoints"));
}

RecoveryState TrainLoop::recovery_state() const {
  if (!has_state_) return {};
  // Copying the parameters from a device would take longer than it is worth.
  const bool on_cpu = parts_.group.device().is_cpu();
  return {position_.step, on_cpu ? digest_of(parts_.model.parameters()) : ""};
}

// The finite loss of this rank does not imply those of the others, unlike in sync_loss(), but a step with a gradient
// that is not finite was skipped, or has changed the parameters.
bool TrainLoop::can_stop_alone() const {
  if (!has_state_ || is_final_ || position_.step == 0 || parts_.checkpointer == nullptr) return false;
  if (parts_.group.world_size() != world_size_ || !parts_.model.is_reduction_state_known()) return false;
  return are_finite(parts_.model.parameters());
}

// The collectives of a group that is not connected are those of a group of one rank.
Result<TrainSummary> TrainLoop::stop_alone() {
  parts_.stop.agree();
  RETURN_IF_ERROR(stop());
  summarize();
  return summary_;
}

nlohmann::json TrainLoop::state_for_joining() const {
  const RankStatus status = parts_.telemetry.status();
  nlohmann::json out = host_state();
  out["position"] = {position_.step, position_.epoch, position_.epoch_samples};
  out["world_size"] = world_size_;
  out["target_steps"] = summary_.target_steps;
  out["was_complete"] = summary_.was_complete;
  out["due"] = static_cast<int>(due_);
  out["is_best"] = is_best_;
  out["save_due"] = save_due_;
  out["completed"] = completed_;
  out["has_stepped"] = has_stepped_;
  out["synced_step"] = synced_step_;
  out["shown_step"] = shown_step_;
  out["reduction"] = parts_.model.state_for_joining();
  out["recoveries"] = status.recoveries;
  out["recovery_seconds"] = status.recovery_seconds;
  return out;
}

Result<void> TrainLoop::take_state(const nlohmann::json& state) {
  RETURN_IF_ERROR(restore_host_state(state));
  if (parts_.checkpointer != nullptr) parts_.checkpointer->take_state(state.at("checkpoints"));
  world_size_ = state.at("world_size");
  const nlohmann::json& position = state.at("position");
  if (position.at(0).get<int64_t>() != position_.step) parts_.step.forget_loss();
  position_ = Position{position.at(0).get<int64_t>(), position.at(1).get<int64_t>(), position.at(2).get<int64_t>()};
  summary_.target_steps = state.at("target_steps");
  summary_.was_complete = state.at("was_complete");
  due_ = static_cast<Due>(state.at("due").get<int>());
  is_best_ = state.at("is_best");
  save_due_ = state.at("save_due");
  completed_ = state.at("completed");
  has_stepped_ = state.at("has_stepped");
  synced_step_ = state.at("synced_step");
  shown_step_ = state.at("shown_step");
  return {};
}

Result<void> TrainLoop::receive_tensors(int donor) {
  if (parts_.checkpointer != nullptr) parts_.checkpointer->wait_for_copy();
  parts_.model.broadcast_state(donor);
  for (const Stateful* part : stateful_) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : part->tensors()) tensors.push_back(tensor);
    parts_.group.broadcast(tensors, donor);
  }
  return {};
}

bool TrainLoop::fits_group() const {
  const SamplerOptions& options = sampler_.options();
  return options.rank == parts_.group.rank() && options.world_size == parts_.group.world_size();
}

Result<void> TrainLoop::resize() {
  ASSIGN_OR_RETURN(sampler_, make_sampler(parts_));
  RETURN_IF_ERROR(check_length());
  loader_.reset();  // the next one has the new size of a batch
  scheduler_.set_config(parts_.config.schedule);
  return parts_.step.update_learning_rates();
}

Result<std::vector<int>> TrainLoop::join(int donor) {
  parts_.telemetry.enter(Phase::kRestore);
  const bool is_donor = parts_.group.rank() == donor;
  const bool is_new = !has_joined_;
  if (stateful_.empty()) collect_stateful();
  const std::vector<int64_t> steps = parts_.group.all_gather(has_state_ ? position_.step : -1);
  const nlohmann::json state =
      nlohmann::json::parse(parts_.group.broadcast(is_donor ? state_for_joining().dump() : std::string(), donor));
  // The tensors of the donor have the same bits on the ranks that completed the same step, so that a transfer that
  // fails in the middle leaves the state of these ranks consistent.
  has_state_ = has_state_ && position_.step == state.at("position").at(0).get<int64_t>();
  RETURN_IF_ERROR(receive_tensors(donor));
  if (!is_donor) RETURN_IF_ERROR(take_state(state));
  has_state_ = true;
  // From here on this rank may be the next donor: if another rank is lost before this group is complete, it has left
  // the group that this donor had left.
  steps_before_join_ = parts_.step.steps_completed();
  if (is_new && !is_donor)
    parts_.telemetry.set_earlier_recoveries(state.at("recoveries").get<int64_t>(),
                                            state.at("recovery_seconds").get<double>());
  RETURN_IF_ERROR(parts_.model.join(state.at("reduction").get<std::string>()));
  bool save_lost = false;
  if (parts_.checkpointer != nullptr) {
    ASSIGN_OR_RETURN(save_lost, parts_.checkpointer->join(is_new, parts_.model, stateful_));
  }
  for (const int64_t lost : parts_.group.all_gather(int64_t{save_lost})) save_due_ |= lost != 0;
  has_joined_ = true;
  if (world_size_ != parts_.group.world_size()) summary_.target_steps = target_steps();
  world_size_ = parts_.group.world_size();
  summary_.interrupted = false;
  parts_.stop.restart();
  pace_ = StopPace(parts_.stop);
  parts_.telemetry.begin(position_.step, summary_.target_steps, position_.epoch, parts_.config.epochs.value_or(0));
  if (is_new) start_tracking();  // a rank 0 that replaces a lost one reports from here on
  std::vector<int> replaced;
  for (size_t rank = 0; rank < steps.size(); ++rank)
    if (steps[rank] < 0) replaced.push_back(static_cast<int>(rank));
  return replaced;
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

// Returns the samples of this rank; 0 at the end of the epoch.
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

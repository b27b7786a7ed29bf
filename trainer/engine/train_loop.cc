#include "trainer/engine/train_loop.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "trainer/device/device.h"
#include "trainer/engine/data_options.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/randomness.h"

namespace oarlock {
namespace {

int64_t bytes_of(const Batch& batch) {
  int64_t out = 0;
  for (const auto& [name, tensor] : batch.tensors) out += static_cast<int64_t>(tensor.nbytes());
  return out;
}

// By the name that tasks with sequences give them.
int64_t tokens_of(const Batch& batch) {
  const auto tokens = batch.tensors.find("tokens");
  return tokens == batch.tensors.end() ? 0 : tokens->second.numel();
}

}  // namespace

Result<TrainLoop> TrainLoop::create(const TrainParts& parts) {
  const int world_size = parts.group.world_size();
  const int64_t size = parts.task.train_data().size();
  Result<DistributedSampler> sampler = DistributedSampler::create({.size = size,
                                                                   .rank = parts.group.rank(),
                                                                   .world_size = world_size,
                                                                   .seed = parts.config.seed,
                                                                   .shuffle = true,
                                                                   .drop_last = parts.config.batch.drop_last});
  if (!sampler) return tl::make_unexpected(sampler.error());
  TrainLoop loop(parts, std::move(*sampler));
  if (loop.steps_in_epoch(0) == 0) {
    return fail(ExitCode::kConfig,
                fmt::format("batch: {} samples on {} ranks give no full step of {}; lower batch.size or set "
                            "batch.drop_last: false",
                            size, world_size, parts.plan.effective_batch));
  }
  return loop;
}

TrainLoop::TrainLoop(const TrainParts& parts, DistributedSampler sampler)
    : parts_(parts),
      sampler_(sampler),
      pace_(parts.stop),
      evals_(parts),
      report_(parts.config.report, parts.config.checkpoint.dir, parts.group, parts.telemetry, parts.clock),
      passes_(parts) {}

Result<TrainSummary> TrainLoop::run() {
  if (const Result<void> restored = restore(); !restored) return tl::make_unexpected(restored.error());
  summary_.was_complete = finished();
  if (const Result<void> done = catch_up(); !done) return tl::make_unexpected(done.error());
  while (!finished() && !summary_.interrupted) {
    Result<void> done = train_epoch();
    if (done && !summary_.interrupted) done = end_epoch();
    if (!done) return tl::make_unexpected(done.error());
  }
  if (const Result<void> done = summary_.interrupted ? Result<void>() : complete(); !done)
    return tl::make_unexpected(done.error());
  if (const Result<void> done = finish(); !done) return tl::make_unexpected(done.error());
  return summary_;
}

Result<void> TrainLoop::restore() {
  stateful_ = parts_.step.stateful();
  for (Stateful* part : evals_.stateful()) stateful_.push_back(part);
  if (report_.wanted()) stateful_.push_back(&report_);
  if (passes_.has_state()) stateful_.push_back(&passes_);
  if (parts_.checkpointer != nullptr) {
    const Result<std::optional<Position>> restored = parts_.checkpointer->restore(parts_.model, stateful_);
    if (!restored) return tl::make_unexpected(restored.error());
    position_ = restored->value_or(Position{});
  }
  summary_.target_steps = target_steps();
  parts_.telemetry.begin(position_.step, summary_.target_steps, position_.epoch, parts_.config.epochs.value_or(0));
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

// What an earlier process owes the last step: it was stopped between the step and its evaluation or passes, or in them.
Result<void> TrainLoop::catch_up() {
  bool best = false;
  if (evals_.due_after_step(position_.step)) {
    const Result<bool> evaluated = evaluate();
    if (!evaluated) return tl::make_unexpected(evaluated.error());
    best = *evaluated;
  }
  if (!parts_.stop.agreed() && passes_.due_after_step(position_.step)) {
    if (const Result<void> passed = passes_.run_due(position_.step); !passed) return passed;
  }
  if (parts_.stop.agreed()) return stop();
  return best ? save(SaveUntil::kBegun) : Result<void>();
}

Result<void> TrainLoop::train_epoch() {
  begin_epoch();
  const std::unique_ptr<BatchFeed> feed = make_batch_feed([this] { return loader_->next(); }, parts_.group.device(),
                                                          feed_options(parts_.config, parts_.group.world_size()));
  while (!finished() && !summary_.interrupted && train_step(*feed)) {
    if (const Result<void> done = after_step(); !done) return done;
  }
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

// The loader's threads and memory serve all epochs.
void TrainLoop::begin_epoch() {
  std::vector<int64_t> indices = sampler_.indices(position_.epoch, position_.epoch_samples);
  if (parts_.config.batch.drop_last) {
    indices.resize(static_cast<size_t>(steps_in_epoch(position_.epoch_samples) * parts_.plan.per_rank));
  }
  const uint64_t seed = epoch_seed(parts_.config.seed, position_.epoch);
  if (loader_) {
    loader_->begin(std::move(indices), seed);
  } else {
    loader_ =
        std::make_unique<Loader>(parts_.task.train_data(), std::move(indices),
                                 loader_options(parts_.config, parts_.group.device(), parts_.plan.micro_batch, seed));
    parts_.telemetry.data_queue(loader_->capacity());
  }
}

// False where the epoch is over.
bool TrainLoop::train_step(BatchFeed& feed) {
  const SteadyTime begin = parts_.clock.steady();
  const int64_t samples = samples_of_next_step();
  if (samples == 0) return false;
  parts_.step.begin(
      position_.step, samples, [this](double lr) { return rate(lr); },
      cycled_momentum(parts_.config.schedule, schedule_time()));
  StepReport report;
  while (!parts_.step.complete()) {
    const Batch batch = next_batch(feed);
    report.data_bytes += bytes_of(batch);
    report.tokens += tokens_of(batch);
    parts_.step.add(batch);
  }
  step_done(samples, begin, report);
  return true;
}

Batch TrainLoop::next_batch(BatchFeed& feed) {
  parts_.telemetry.enter(Phase::kDataWait);
  try {
    if (std::optional<Batch> batch = feed.next()) return std::move(*batch);
  } catch (...) {
    parts_.telemetry.data_failed();
    throw;
  }
  throw std::logic_error("the loader has fewer samples than the epoch");
}

void TrainLoop::step_done(int64_t samples, SteadyTime begin, StepReport report) {
  const double learning_rate = rate(parts_.config.optimizer.lr);
  const int64_t global_samples = samples * parts_.group.world_size();  // the sampler gives all ranks as many
  position_.step += 1;
  position_.epoch_samples += global_samples;
  report_.trained(parts_.step.loss(), samples, learning_rate);
  const double seconds = std::chrono::duration<double>(parts_.clock.steady() - begin).count();
  summary_.samples += global_samples;
  summary_.train_seconds += seconds;
  const GradientTraffic traffic = parts_.model.traffic();
  parts_.telemetry.gradients_reduced(traffic.buckets, traffic.bytes);
  report.step = position_.step;
  report.epoch = position_.epoch;
  report.local_samples = samples;
  report.global_samples = global_samples;
  report.seconds = seconds;
  report.learning_rate = learning_rate;
  report.collective_sequence = parts_.group.sequence();
  report.flops = parts_.step.flops_per_sample() * static_cast<double>(samples);
  report.batches_ready = loader_->ready();
  parts_.telemetry.step_done(report);
}

Result<void> TrainLoop::after_step() {
  if (position_.step % parts_.config.log_every_steps == 0) {
    if (const Result<void> looked = look(); !looked) return looked;
  }
  const int64_t check = parts_.config.distributed.check_parameters_every;
  if (check > 0 && position_.step % check == 0) {
    if (const Result<void> equal = check_parameters(); !equal) return equal;
  }
  const bool save_failed = parts_.checkpointer != nullptr && parts_.checkpointer->poll(position_.step);
  if (pace_.after_unit(save_failed)) return stop();
  bool best = false;
  if (evals_.due_after_step(position_.step)) {
    const Result<bool> evaluated = evaluate();
    if (!evaluated) return tl::make_unexpected(evaluated.error());
    if (parts_.stop.agreed()) return stop();
    best = *evaluated;
  }
  if (const Result<void> passed = passes_.run_due(position_.step); !passed) return passed;
  if (parts_.stop.agreed()) return stop();
  const int64_t every = parts_.config.checkpoint.every_steps;
  if (best || (every > 0 && position_.step % every == 0)) return save(SaveUntil::kBegun);
  return {};
}

// Reads what the last steps left on the device, and reports it. One rank's NaN is everybody's, through the averaged
// gradient and the averaged loss, so all ranks stop together.
Result<void> TrainLoop::look() {
  if (!parts_.step.loss().defined() || looked_at_step_ == position_.step) return {};
  looked_at_step_ = position_.step;
  StepReading reading = parts_.step.read();
  std::array<double, 2> sums = {reading.loss / parts_.group.world_size(),
                                static_cast<double>(reading.nonfinite_losses - nonfinite_losses_seen_)};
  nonfinite_losses_seen_ = reading.nonfinite_losses;
  const double own_losses = sums[1];
  parts_.group.sum(sums);
  double loss = sums[0];
  if (std::isnan(loss)) loss = std::abs(loss);  // the sign of NaN means nothing and would be printed
  parts_.telemetry.loss_known(loss);
  if (sums[1] > 0) report_nonfinite_losses(own_losses, reading);
  tell_device_memory();
  if (reading.gradient_norm) parts_.telemetry.gradient_norm_known(*reading.gradient_norm);
  if (reading.skipped > skipped_seen_)
    parts_.telemetry.steps_skipped(reading.skipped - skipped_seen_, reading.first_skipped.value_or(position_.step));
  skipped_seen_ = reading.skipped;
  std::optional<NonfiniteStop> stop = check_finite(parts_.config.nonfinite, position_.step, loss, reading);
  if (!stop) stop = check_share(parts_.config.nonfinite, position_.step, parts_.step.skipped_in_run(), /*ended=*/false);
  return end_by(stop);
}

// Called by all ranks. A step may be bad on several of them, which do not know of each other: what counts is the most
// that one rank has.
void TrainLoop::report_nonfinite_losses(double own_losses, StepReading& reading) {
  const auto own_first = static_cast<double>(reading.first_nonfinite_loss.value_or(position_.step));
  std::array<double, 2> largest = {own_losses, -own_first};
  parts_.group.max(largest);
  reading.first_nonfinite_loss = static_cast<int64_t>(-largest[1]);
  parts_.telemetry.losses_not_finite(static_cast<int64_t>(largest[0]), *reading.first_nonfinite_loss);
}

Result<void> TrainLoop::end_by(const std::optional<NonfiniteStop>& stop) {
  if (!stop) return {};
  nonfinite_ = stop->reason;
  return tl::make_unexpected(stop->error);
}

void TrainLoop::tell_device_memory() {
  const std::optional<DeviceMemory> memory = device_memory(parts_.group.device());
  if (!memory) return;
  parts_.telemetry.device_memory({memory->allocated_bytes, memory->reserved_bytes, memory->peak_bytes,
                                  memory->limit_bytes, memory->retries, memory->out_of_memory});
}

Result<void> TrainLoop::end_epoch() {
  if (steps_in_epoch(position_.epoch_samples) > 0) return {};  // the run ends inside the epoch
  const int64_t epochs_done = position_.epoch + 1;
  bool best = false;
  if (evals_.due_after_epoch(epochs_done, position_.step)) {
    const Result<bool> evaluated = evaluate();
    if (!evaluated) return tl::make_unexpected(evaluated.error());
    if (parts_.stop.agreed()) return stop();  // the position stays before the end of the epoch
    best = *evaluated;
  }
  position_ = {position_.step, epochs_done, 0};
  const int64_t every = parts_.config.checkpoint.every_epochs;
  if (best || (every > 0 && epochs_done % every == 0)) return save(SaveUntil::kBegun);
  return {};
}

// The last evaluation, the passes, and the checkpoint of the complete run. A stop saves what is not saved yet; a new
// start then repeats the evaluation and the passes.
Result<void> TrainLoop::complete() {
  if (const Result<void> finite = look(); !finite) return finite;
  const Result<void> trained =
      end_by(check_share(parts_.config.nonfinite, position_.step, parts_.step.skipped_in_run(), /*ended=*/true));
  if (!trained) return trained;
  if (!evals_.ran_at(position_.step)) {
    if (const Result<bool> evaluated = evaluate(); !evaluated) return tl::make_unexpected(evaluated.error());
    if (parts_.stop.agreed()) return stop();
  }
  if (const Result<void> passed = passes_.run_all(position_.step); !passed) return passed;
  if (parts_.stop.agreed()) return stop();
  if (const Result<void> saved = save(SaveUntil::kOnDisk); !saved) return saved;
  if (const Result<void> passed = passes_.run_with_best_weights(position_.step); !passed) return passed;
  summary_.interrupted = parts_.stop.agreed();  // the model may have the best weights now: there is nothing to save
  return {};
}

Result<void> TrainLoop::finish() {
  summary_.position = position_;
  summary_.metrics = evals_.metrics();
  if (evals_.stopped() && !length_reached()) summary_.stopped_early = evals_.stop_reason();
  if (parts_.checkpointer != nullptr) summary_.checkpoint = parts_.checkpointer->folder();
  if (const Result<void> equal = check_parameters(); !equal) return equal;
  summary_.parameters_equal = true;
  parts_.group.barrier();  // rank 0's store outlives every use of it
  return {};
}

// DDP's promise, also of what it does not see: faulty memory, state that a rank changes on its own.
Result<void> TrainLoop::check_parameters() {
  const Result<void> equal = check_equal_on_all_ranks(parts_.model.parameters(), parts_.group);
  parts_.telemetry.parameters_checked(equal.has_value());
  diverged_ = !equal;
  return equal;
}

// At the end of the run, or of this process's part of it, until the position is on disk.
Result<void> TrainLoop::save(SaveUntil until) {
  if (parts_.checkpointer == nullptr) return {};
  if (const Result<void> finite = look(); !finite) return finite;  // never save what is not a number
  report_.settle();
  const Result<void> saved = parts_.checkpointer->save(position_, parts_.model, stateful_, until);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
}

// All ranks are here: because of a signal, or because a save has failed and the run must not go on.
Result<void> TrainLoop::stop() {
  if (parts_.checkpointer != nullptr) {
    if (const Result<void> failed = parts_.checkpointer->agree_on_failure(); !failed) return failed;
  }
  summary_.interrupted = true;
  const Result<void> saved = save(SaveUntil::kOnDisk);
  const bool may_go_unsaved = parts_.config.checkpoint.on_error == CheckpointErrors::kContinue;
  if (saved || !may_go_unsaved || saved.error().code == ExitCode::kTempFail || !nonfinite_.empty()) return saved;
  summary_.not_saved = saved.error().message;  // a new start resumes from an older checkpoint
  return {};
}

// True when the model is the best so far. A stop may have interrupted it (parts_.stop).
Result<bool> TrainLoop::evaluate() {
  if (const Result<void> finite = look(); !finite) return tl::make_unexpected(finite.error());
  const Result<bool> best = evals_.run(position_.step);
  if (best && !parts_.stop.agreed()) report_.evaluated(position_.step, epochs_done(), evals_.metrics());
  return best;
}

bool TrainLoop::length_reached() const {
  if (parts_.config.steps) return position_.step >= *parts_.config.steps;
  return position_.epoch >= *parts_.config.epochs;
}

int64_t TrainLoop::steps_in_epoch(int64_t samples_done) const {
  return batch_count(sampler_.samples_per_rank(samples_done), parts_.plan.per_rank, parts_.config.batch.drop_last);
}

// With the part of the epoch under way.
double TrainLoop::epochs_done() const {
  const double left = static_cast<double>(steps_in_epoch(position_.epoch_samples));
  return static_cast<double>(position_.epoch) + 1 - left / static_cast<double>(steps_in_epoch(0));
}

// Of this rank; 0 where the epoch is over.
int64_t TrainLoop::samples_of_next_step() const {
  const int64_t left = sampler_.samples_per_rank(position_.epoch_samples);
  if (left >= parts_.plan.per_rank) return parts_.plan.per_rank;
  return parts_.config.batch.drop_last ? 0 : left;
}

ScheduleTime TrainLoop::schedule_time() const {
  const int64_t per_epoch = steps_in_epoch(0);
  const int64_t epochs = parts_.config.epochs.value_or((summary_.target_steps + per_epoch - 1) / per_epoch);
  return {position_.step, position_.epoch, summary_.target_steps, epochs};
}

double TrainLoop::rate(double lr) const {
  return learning_rate(parts_.config.schedule, evals_.rate(lr), schedule_time());
}

int64_t TrainLoop::target_steps() const {
  if (parts_.config.steps) return *parts_.config.steps;
  const int64_t epochs_after = std::max<int64_t>(*parts_.config.epochs - position_.epoch - 1, 0);
  return position_.step + (finished() ? 0 : steps_in_epoch(position_.epoch_samples) + epochs_after * steps_in_epoch(0));
}

}  // namespace oarlock

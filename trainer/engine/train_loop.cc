#include "trainer/engine/train_loop.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "trainer/engine/eval_rows.h"
#include "trainer/engine/randomness.h"
#include "trainer/optim/autocast.h"

namespace oarlock {
namespace {

std::string names_of(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += (out.empty() ? "'" : ", '") + name + "'";
  return out;
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
      stop_(parts.stop, parts.group),
      early_stopping_(parts.config.early_stopping, parts.task.monitor()) {
  if (parts.config.schedule.kind == ScheduleKind::kPlateau) plateau_.emplace(parts.config.schedule.plateau);
}

Result<TrainSummary> TrainLoop::run() {
  if (const Result<void> restored = restore(); !restored) return tl::make_unexpected(restored.error());
  summary_.was_complete = finished();
  while (!finished() && !summary_.interrupted) {
    Result<void> done = train_epoch();
    if (done && !summary_.interrupted) done = end_epoch();
    if (!done) return tl::make_unexpected(done.error());
  }
  if (const Result<void> done = finish(); !done) return tl::make_unexpected(done.error());
  return summary_;
}

Result<void> TrainLoop::restore() {
  stateful_ = parts_.step.stateful();
  if (plateau_) stateful_.push_back(&*plateau_);
  if (parts_.config.early_stopping.patience) stateful_.push_back(&early_stopping_);
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

Result<void> TrainLoop::train_epoch() {
  std::vector<int64_t> indices = sampler_.indices(position_.epoch, position_.epoch_samples);
  if (parts_.config.batch.drop_last) {
    indices.resize(static_cast<size_t>(steps_in_epoch(position_.epoch_samples) * parts_.plan.per_rank));
  }
  Loader loader(parts_.task.train_data(), std::move(indices),
                {.batch_size = parts_.plan.micro_batch,
                 .drop_last = false,
                 .threads = static_cast<int>(parts_.config.loader.threads.value_or(1)),
                 .prefetch = parts_.config.loader.prefetch,
                 .pin_memory = parts_.config.loader.pin_memory && parts_.group.device().is_cuda(),
                 .seed = epoch_seed(parts_.config.seed, position_.epoch)});
  BatchFeedOptions feeding{.channels_last = parts_.config.cuda.channels_last};
  if (parts_.group.world_size() > 1) {
    feeding.patience =
        std::chrono::milliseconds(static_cast<int64_t>(parts_.config.distributed.timeout_seconds * 1000));
  }
  const std::unique_ptr<BatchFeed> feed =
      make_batch_feed([&loader] { return loader.next(); }, parts_.group.device(), feeding);
  while (!finished() && !summary_.interrupted && train_step(*feed)) {
    if (const Result<void> done = after_step(); !done) return done;
  }
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

// False where the epoch is over.
bool TrainLoop::train_step(BatchFeed& feed) {
  const SteadyTime begin = parts_.clock.steady();
  const int64_t samples = samples_of_next_step();
  if (samples == 0) return false;
  parts_.step.begin(position_.step, samples, [this](double lr) { return rate(lr); });
  while (!parts_.step.complete()) {
    parts_.telemetry.enter(Phase::kDataWait);
    const std::optional<Batch> batch = feed.next();
    if (!batch) throw std::logic_error("the loader has fewer samples than the epoch");
    parts_.step.add(*batch);
  }
  step_done(samples, begin);
  return true;
}

void TrainLoop::step_done(int64_t samples, SteadyTime begin) {
  const double learning_rate = rate(parts_.config.optimizer.lr);
  const int64_t global_samples = samples * parts_.group.world_size();  // the sampler gives all ranks as many
  position_.step += 1;
  position_.epoch_samples += global_samples;
  step_seconds_ = std::chrono::duration<double>(parts_.clock.steady() - begin).count();
  summary_.samples += global_samples;
  summary_.train_seconds += step_seconds_;
  const GradientTraffic traffic = parts_.model.traffic();
  parts_.telemetry.collective(Collective::kAllReduce, traffic.buckets, traffic.bytes);
  parts_.telemetry.step_done({position_.step, position_.epoch, samples, global_samples, step_seconds_, learning_rate,
                              parts_.group.sequence()});
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
  if (stop_.reached(position_.step, step_seconds_, save_failed)) return stop();
  const int64_t every = parts_.config.checkpoint.every_steps;
  if (every > 0 && position_.step % every == 0) return save();
  return {};
}

// Reads what the last step left on the device, and tells. One rank's NaN is everybody's, through the averaged gradient
// and the averaged loss, so all ranks stop together.
Result<void> TrainLoop::look() {
  if (!parts_.step.loss().defined() || looked_at_step_ == position_.step) return {};
  looked_at_step_ = position_.step;
  const StepReading reading = parts_.step.read();
  std::array<double, 1> mean = {reading.loss / parts_.group.world_size()};
  parts_.group.sum(mean);
  if (std::isnan(mean[0])) mean[0] = std::abs(mean[0]);  // the sign of NaN means nothing and would be printed
  parts_.telemetry.loss_known(mean[0]);
  if (reading.gradient_norm) parts_.telemetry.gradient_norm_known(*reading.gradient_norm);
  parts_.telemetry.skipped(reading.skipped - skipped_seen_);
  skipped_seen_ = reading.skipped;
  return check_finite(mean[0], reading);
}

Result<void> TrainLoop::check_finite(double loss, const StepReading& reading) {
  const NonfiniteConfig& policy = parts_.config.nonfinite;
  if (!std::isfinite(loss)) {
    parts_.telemetry.nonfinite_loss();
    if (policy.loss == NonfiniteLoss::kStop) {
      nonfinite_ = "NonFiniteLoss";
      return fail(ExitCode::kDataErr,
                  fmt::format("the training loss is {} at step {}; lower optimizer.lr, or look for values in the data "
                              "that are not finite; the newest checkpoint is from before",
                              loss, position_.step));
    }
  }
  if (policy.gradient == NonfiniteGradient::kStop && reading.skipped > 0) {
    nonfinite_ = "NonFiniteGradient";
    return fail(ExitCode::kDataErr,
                fmt::format("a gradient was not finite in {} of the steps up to {}, which were not taken; lower "
                            "optimizer.lr, set gradient.clip_norm, or set nonfinite.gradient: skip",
                            reading.skipped, position_.step));
  }
  if (reading.skipped_in_a_row >= policy.max_consecutive) {
    nonfinite_ = "NonFiniteGradient";
    return fail(ExitCode::kDataErr,
                fmt::format("the last {} steps up to {} were skipped, as loss or gradient was not finite "
                            "(nonfinite.max_consecutive is {}); lower optimizer.lr, or look for values in the data "
                            "that are not finite",
                            reading.skipped_in_a_row, position_.step, policy.max_consecutive));
  }
  return {};
}

Result<void> TrainLoop::end_epoch() {
  if (steps_in_epoch(position_.epoch_samples) > 0) return {};  // the run ends inside the epoch
  const int64_t epochs_done = position_.epoch + 1;
  is_best_ = false;
  const EvalConfig& eval = parts_.config.eval;
  if (eval.every_epochs > 0 && epochs_done % eval.every_epochs == 0) {
    if (const Result<void> evaluated = run_evaluation(); !evaluated) return evaluated;
  }
  position_ = {position_.step, epochs_done, 0};
  const int64_t every = parts_.config.checkpoint.every_epochs;
  if (is_best_ || (every > 0 && epochs_done % every == 0)) return save();
  return {};
}

Result<void> TrainLoop::finish() {
  if (!summary_.interrupted) {
    if (evaluated_step_ != position_.step) {
      if (const Result<void> evaluated = run_evaluation(); !evaluated) return evaluated;
    }
    if (const Result<void> saved = save_at_end(); !saved) return saved;
  }
  summary_.position = position_;
  if (early_stopping_.stopped() && !length_reached()) summary_.stopped_early = early_stopping_.reason();
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

Result<void> TrainLoop::save() {
  if (parts_.checkpointer == nullptr) return {};
  if (const Result<void> finite = look(); !finite) return finite;  // never save what is not a number
  const Result<void> saved = parts_.checkpointer->save(position_, parts_.model, stateful_);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
}

// The end of the run, or of this process's part: the position must be on disk.
Result<void> TrainLoop::save_at_end() {
  if (parts_.checkpointer == nullptr) return {};
  if (const Result<void> finite = look(); !finite) return finite;
  const Result<void> saved = parts_.checkpointer->save_and_wait(position_, parts_.model, stateful_);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
}

// All ranks are here: because of a signal, or because a save has failed and the run must not go on.
Result<void> TrainLoop::stop() {
  if (parts_.checkpointer != nullptr) {
    if (const Result<void> failed = parts_.checkpointer->agree_on_failure(); !failed) return failed;
  }
  summary_.interrupted = true;
  const Result<void> saved = save_at_end();
  const bool may_go_unsaved = parts_.config.checkpoint.on_error == CheckpointErrors::kContinue;
  if (saved || !may_go_unsaved || saved.error().code == ExitCode::kTempFail || !nonfinite_.empty()) return saved;
  summary_.not_saved = saved.error().message;  // a new start resumes from an older checkpoint
  return {};
}

Result<void> TrainLoop::run_evaluation() {
  if (const Result<void> finite = look(); !finite) return finite;
  parts_.telemetry.enter(Phase::kEval);
  std::optional<MovingAverage::Exchange> averaged;
  if (parts_.step.average() != nullptr && parts_.config.ema.evaluate) averaged.emplace(*parts_.step.average());
  parts_.model.broadcast_buffers();  // running statistics are rank 0's, as in the checkpoint
  const Autocast autocast(parts_.config.amp, parts_.group.device());
  const EvalConfig& eval = parts_.config.eval;
  const Evaluation evaluation =
      evaluate(parts_.task, parts_.model.module(), parts_.group,
               {.batch_size = eval.batch_size > 0 ? eval.batch_size : parts_.config.batch.size,
                .loader_threads = static_cast<int>(parts_.config.loader.threads.value_or(1)),
                .loader_prefetch = parts_.config.loader.prefetch,
                .pin_memory = parts_.config.loader.pin_memory && parts_.group.device().is_cuda(),
                .seed = parts_.config.seed,
                .feed = {}});
  summary_.metrics = evaluation.metrics;
  if (const Result<void> written = write_eval_rows(eval.rows_file, evaluation.rows, parts_.group); !written)
    return written;
  evaluated_step_ = position_.step;
  parts_.telemetry.evaluated(summary_.metrics);
  if (parts_.checkpointer != nullptr) {
    const Result<bool> best = parts_.checkpointer->evaluated(position_.step, summary_.metrics);
    if (!best) return tl::make_unexpected(best.error());
    is_best_ = *best;
  }
  if (const Result<void> observed = observe(); !observed) return observed;
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

// Every rank has the same metrics.
Result<void> TrainLoop::observe() {
  if (const Result<bool> stop = early_stopping_.observe(summary_.metrics, parts_.group); !stop)
    return tl::make_unexpected(stop.error());
  if (!plateau_) return {};
  const std::string& name = parts_.config.schedule.plateau.metric;
  const auto metric = summary_.metrics.find(name);
  if (metric == summary_.metrics.end()) {
    return fail(ExitCode::kConfig, fmt::format("schedule.plateau.metric: the evaluation gives no '{}', only {}", name,
                                               names_of(summary_.metrics)));
  }
  plateau_->observe(metric->second);
  return {};
}

bool TrainLoop::length_reached() const {
  if (parts_.config.steps) return position_.step >= *parts_.config.steps;
  return position_.epoch >= *parts_.config.epochs;
}

int64_t TrainLoop::steps_in_epoch(int64_t samples_done) const {
  return batch_count(sampler_.samples_per_rank(samples_done), parts_.plan.per_rank, parts_.config.batch.drop_last);
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
  return learning_rate(parts_.config.schedule, plateau_ ? plateau_->rate(lr) : lr, schedule_time());
}

int64_t TrainLoop::target_steps() const {
  if (parts_.config.steps) return *parts_.config.steps;
  const int64_t epochs_after = std::max<int64_t>(*parts_.config.epochs - position_.epoch - 1, 0);
  return position_.step + (finished() ? 0 : steps_in_epoch(position_.epoch_samples) + epochs_after * steps_in_epoch(0));
}

}  // namespace oarlock

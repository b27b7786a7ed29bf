#include "trainer/engine/train_loop.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "trainer/device/transfer.h"
#include "trainer/engine/randomness.h"
#include "trainer/optim/schedule.h"

namespace oarlock {

Result<TrainLoop> TrainLoop::create(const TrainParts& parts) {
  const int world_size = parts.group.world_size();
  const Result<int64_t> batch_size = batch_size_per_rank(parts.config.batch, world_size);
  if (!batch_size) return tl::make_unexpected(batch_size.error());
  const int64_t size = parts.task.train_data().size();
  Result<DistributedSampler> sampler = DistributedSampler::create({.size = size,
                                                                   .rank = parts.group.rank(),
                                                                   .world_size = world_size,
                                                                   .seed = parts.config.seed,
                                                                   .shuffle = true,
                                                                   .drop_last = parts.config.batch.drop_last});
  if (!sampler) return tl::make_unexpected(sampler.error());
  TrainLoop loop(parts, std::move(*sampler), *batch_size);
  if (loop.steps_in_epoch(0) == 0) {
    return fail(ExitCode::kConfig,
                fmt::format("batch: {} samples on {} ranks give no full batch of {}; lower batch.size or set "
                            "batch.drop_last: false",
                            size, world_size, *batch_size));
  }
  return loop;
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
  if (parts_.checkpointer != nullptr) {
    const Result<std::optional<Position>> restored = parts_.checkpointer->restore(parts_.model, parts_.optimizer);
    if (!restored) return tl::make_unexpected(restored.error());
    position_ = restored->value_or(Position{});
  }
  summary_.target_steps = target_steps();
  parts_.telemetry.begin(position_.step, summary_.target_steps, position_.epoch, parts_.config.epochs.value_or(0));
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

Result<void> TrainLoop::train_epoch() {
  Loader loader(parts_.task.train_data(), sampler_.indices(position_.epoch, position_.epoch_samples),
                {.batch_size = batch_size_,
                 .drop_last = parts_.config.batch.drop_last,
                 .threads = parts_.config.loader.threads,
                 .prefetch = parts_.config.loader.prefetch,
                 .seed = epoch_seed(parts_.config.seed, position_.epoch)});
  while (!finished() && !summary_.interrupted) {
    const SteadyTime begin = parts_.clock.steady();
    parts_.telemetry.enter(Phase::kDataWait);
    const std::optional<Batch> batch = loader.next();
    if (!batch) break;
    if (const Result<void> stepped = train_step(to_device(*batch, parts_.group.device()), begin); !stepped)
      return stepped;
  }
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

Result<void> TrainLoop::train_step(const Batch& batch, SteadyTime begin) {
  Telemetry& telemetry = parts_.telemetry;
  const TrainerConfig& config = parts_.config;
  telemetry.enter(Phase::kForward);
  seed_step(config.seed, parts_.group.rank(), position_.step, parts_.group.device());
  const at::Tensor loss =
      parts_.model.forward([&] { return parts_.task.train_step(parts_.model.module(), batch).loss; });
  telemetry.enter(Phase::kBackward);
  parts_.model.backward(loss);
  telemetry.enter(Phase::kOptimizer);
  const double rate = learning_rate(config.schedule, config.optimizer.lr, position_.step, summary_.target_steps);
  parts_.optimizer.step(rate);
  parts_.model.clear_gradients();
  telemetry.enter(Phase::kOther);

  loss_ = loss.detach();
  const int64_t global_samples = batch.size() * parts_.group.world_size();  // the sampler gives all ranks as many
  position_.step += 1;
  position_.epoch_samples += global_samples;
  const double seconds = std::chrono::duration<double>(parts_.clock.steady() - begin).count();
  summary_.samples += global_samples;
  summary_.train_seconds += seconds;
  const GradientTraffic traffic = parts_.model.traffic();
  telemetry.collective(Collective::kAllReduce, traffic.buckets, traffic.bytes);
  telemetry.step_done(
      {position_.step, position_.epoch, batch.size(), global_samples, seconds, rate, parts_.group.sequence()});

  if (position_.step % config.log_every_steps == 0) {
    if (const Result<void> logged = log_loss(); !logged) return logged;
  }
  if (stop_.reached(position_.step, seconds)) {
    summary_.interrupted = true;
    return save();
  }
  if (config.checkpoint.every_steps > 0 && position_.step % config.checkpoint.every_steps == 0) return save();
  return {};
}

// The mean over the ranks. One rank's NaN is everybody's, through the averaged gradient and here, so all stop together.
Result<void> TrainLoop::log_loss() {
  if (!loss_.defined() || loss_checked_step_ == position_.step) return {};
  std::array<double, 1> mean = {loss_.item<double>() / parts_.group.world_size()};
  parts_.group.sum(mean);
  if (std::isnan(mean[0])) mean[0] = std::abs(mean[0]);  // the sign of NaN means nothing and would be printed
  loss_checked_step_ = position_.step;
  parts_.telemetry.loss_known(mean[0]);
  if (std::isfinite(mean[0])) return {};
  loss_is_finite_ = false;
  parts_.telemetry.nonfinite_loss();
  return fail(ExitCode::kDataErr,
              fmt::format("the training loss is {} at step {}; lower optimizer.lr, or look for values in the data that "
                          "are not finite; the newest checkpoint is from before",
                          mean[0], position_.step));
}

Result<void> TrainLoop::end_epoch() {
  if (steps_in_epoch(position_.epoch_samples) > 0) return {};  // the run ends inside the epoch
  const int64_t epochs_done = position_.epoch + 1;
  const EvalConfig& eval = parts_.config.eval;
  if (eval.every_epochs > 0 && epochs_done % eval.every_epochs == 0) {
    if (const Result<void> evaluated = run_evaluation(); !evaluated) return evaluated;
  }
  position_ = {position_.step, epochs_done, 0};
  const CheckpointConfig& checkpoint = parts_.config.checkpoint;
  if (checkpoint.every_epochs > 0 && epochs_done % checkpoint.every_epochs == 0) return save();
  return {};
}

Result<void> TrainLoop::finish() {
  if (!summary_.interrupted) {
    if (evaluated_step_ != position_.step) {
      if (const Result<void> evaluated = run_evaluation(); !evaluated) return evaluated;
    }
    if (const Result<void> saved = save(); !saved) return saved;
  }
  summary_.position = position_;
  if (parts_.checkpointer != nullptr) summary_.checkpoint = parts_.checkpointer->folder();
  summary_.parameters_equal = equal_on_all_ranks(parts_.model.parameters(), parts_.group);
  parts_.group.barrier();  // rank 0's store outlives every use of it
  return {};
}

Result<void> TrainLoop::save() {
  if (parts_.checkpointer == nullptr) return {};
  if (const Result<void> finite = log_loss(); !finite) return finite;  // never save what is not a number
  const Result<void> saved = parts_.checkpointer->save(position_, parts_.model, parts_.optimizer);
  parts_.telemetry.enter(Phase::kOther);
  return saved;
}

Result<void> TrainLoop::run_evaluation() {
  if (const Result<void> finite = log_loss(); !finite) return finite;
  parts_.telemetry.enter(Phase::kEval);
  parts_.model.broadcast_buffers();  // running statistics are rank 0's, as in the checkpoint
  const EvalConfig& eval = parts_.config.eval;
  summary_.metrics = evaluate(parts_.task, parts_.model.module(), parts_.group,
                              {.batch_size = eval.batch_size > 0 ? eval.batch_size : parts_.config.batch.size,
                               .loader_threads = parts_.config.loader.threads,
                               .loader_prefetch = parts_.config.loader.prefetch,
                               .seed = parts_.config.seed});
  evaluated_step_ = position_.step;
  parts_.telemetry.evaluated(summary_.metrics);
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

bool TrainLoop::finished() const {
  if (parts_.config.steps) return position_.step >= *parts_.config.steps;
  return position_.epoch >= *parts_.config.epochs;
}

int64_t TrainLoop::steps_in_epoch(int64_t samples_done) const {
  return batch_count(sampler_.samples_per_rank(samples_done), batch_size_, parts_.config.batch.drop_last);
}

int64_t TrainLoop::target_steps() const {
  if (parts_.config.steps) return *parts_.config.steps;
  const int64_t epochs_after = std::max<int64_t>(*parts_.config.epochs - position_.epoch - 1, 0);
  return position_.step + (finished() ? 0 : steps_in_epoch(position_.epoch_samples) + epochs_after * steps_in_epoch(0));
}

}  // namespace oarlock

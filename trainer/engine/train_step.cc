#include "trainer/engine/train_step.h"

#include <ATen/Context.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <stdexcept>

#include "common/status_macros.h"
#include "ddp/library_errors.h"
#include "ddp/seed_step.h"
#include "trainer/data/random.h"
#include "trainer/device/device.h"
#include "trainer/engine/profiler.h"
#include "trainer/engine/task_call.h"
#include "trainer/optim/amp.h"

namespace oarlock {
namespace {

constexpr uint64_t kEpochStream = 2;

std::vector<at::Tensor> buffer_tensors(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.tensor);
  return out;
}

}  // namespace

void seed_model(uint64_t seed) { at::manual_seed(seed); }

uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  return mix_seed({kEpochStream, seed, static_cast<uint64_t>(epoch)});
}

Result<std::unique_ptr<TrainStep>> TrainStep::create(const TrainerConfig& config, Task& task,
                                                     DistributedDataParallelBase& model, const ProcessGroup& group,
                                                     std::function<void(Phase)> enter) {
  ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer, make_optimizer(config.optimizer, model.parameters()));
  return std::unique_ptr<TrainStep>(new TrainStep(config, task, model, group, std::move(optimizer), std::move(enter)));
}

TrainStep::TrainStep(const TrainerConfig& config, Task& task, DistributedDataParallelBase& model,
                     const ProcessGroup& group, std::unique_ptr<Optimizer> optimizer, std::function<void(Phase)> enter)
    : config_(config),
      task_(task),
      model_(model),
      group_(group),
      enter_(std::move(enter)),
      optimizer_(std::move(optimizer)),
      nonfinite_(group.device()) {
  const at::TensorOptions scalar = at::TensorOptions(group.device()).dtype(at::kFloat);
  if (config.amp.scales()) scaler_.emplace(config.amp, group.device());
  if (config.ema.enabled) average_.emplace(config.ema, model.parameters(), model.buffers());
  const bool skips = scaler_ || config.nonfinite.checks_gradients();
  if (skips || config.gradient.accumulation_steps > 1) buffers_.emplace(buffer_tensors(model.buffers()));
  if (!skips) return;
  found_inf_ = at::zeros({}, scalar);
  one_ = at::ones({}, scalar);
  model.enable_skipped_steps();
}

void TrainStep::enable_undo() {
  can_undo_ = true;
  if (!buffers_) buffers_.emplace(buffer_tensors(model_.buffers()));
  model_.broadcast_buffers_after_backward();
}

std::string TrainStep::recovery_obstacle() const {
  if (graph_) return "cuda.graphs: a replayed step cannot be stopped before its update";
  return model_.recovery_obstacle();
}

void TrainStep::undo() {
  if (buffers_kept_) buffers_->restore();
  buffers_kept_ = false;
  samples_left_ = 0;
  loss_ = completed_loss_;
  context_ = completed_context_;
}

void TrainStep::forget_loss() { loss_ = completed_loss_ = gradient_norm_ = at::Tensor(); }

Result<void> TrainStep::update_learning_rates() {
  ASSIGN_OR_RETURN(const std::vector<ParameterGroup> groups, group_parameters(config_.optimizer, model_.parameters()));
  std::vector<double> rates;
  for (const ParameterGroup& group : groups) rates.push_back(group.lr);
  optimizer_->set_base_rates(rates);
  return {};
}

std::vector<Stateful*> TrainStep::stateful() {
  std::vector<Stateful*> out = {optimizer_.get()};
  if (scaler_) out.push_back(&*scaler_);
  if (average_) out.push_back(&*average_);
  if (found_inf_.defined()) out.push_back(&nonfinite_);
  return out;
}

void TrainStep::begin(int64_t index, int64_t samples) {
  seed_step(config_.seed, group_.rank(), index, group_.device());
  samples_ = samples_left_ = samples;
  context_ = {.step = index, .recorded = graph_ != nullptr, .before_parameters_change = [this] {
                if (before_update_) before_update_();
              }};
}

void TrainStep::add(const Batch& batch) {
  if (batch.size() > samples_left_) throw std::logic_error("a batch has more samples than its step has left");
  const bool first = samples_left_ == samples_;
  samples_left_ -= batch.size();
  const double weight = static_cast<double>(batch.size()) / static_cast<double>(samples_);
  if (first) loss_ = at::Tensor();
  if (!complete()) {
    if (first) keep_buffers();
    const DistributedDataParallelBase::NoSync no_sync(model_);
    forward_backward(batch, weight);
    return;
  }
  if (graph_ && first) {
    if (before_update_) before_update_();  // a stream must not wait for another one during capture
    const StepGraph::Outputs outputs = graph_->run(batch, [&](const Batch& input) {
      keep_buffers();
      finish(input, weight);
      return StepGraph::Outputs{loss_, gradient_norm_};
    });
    loss_ = outputs[0];
    gradient_norm_ = outputs[1];
  } else {
    if (first) keep_buffers();
    finish(batch, weight);
  }
  if (average_) average_->update();
  ++steps_completed_;
  buffers_kept_ = false;
  completed_loss_ = loss_;
  completed_context_ = context_;
  enter(Phase::kOther);
}

void TrainStep::keep_buffers() {
  if (!buffers_) return;
  buffers_->begin();
  buffers_kept_ = true;
}

void TrainStep::finish(const Batch& batch, double weight) {
  forward_backward(batch, weight);
  if (can_undo_) prepare_update();
  if (before_update_) before_update_();
  enter(Phase::kOptimizer);
  update();
  model_.zero_grad();
}

// The last collective of the step. After it, no failure of another rank can affect this rank's step.
void TrainStep::prepare_update() {
  enter(Phase::kComm);
  model_.synchronize_buffers();
  if (group_.device().is_cpu()) return;
  synchronize_device(group_.device(), feed_options(config_, group_.world_size()).timeout);
  if (group_.has_left()) throw ErrorException(peer_lost_error("the communicator was aborted"));
}

void TrainStep::forward_backward(const Batch& batch, double weight) {
  enter(Phase::kForward);
  const at::Tensor loss = model_.forward([&] { return forward(batch); });
  enter(Phase::kBackward);
  model_.backward(scaled(loss, weight));
  const at::Tensor value = weight == 1 ? loss.detach() : loss.detach().mul(weight);
  loss_ = loss_.defined() ? loss_.add(value) : value;
}

at::Tensor TrainStep::forward(const Batch& batch) {
  constexpr double kWithBackward = 3;  // the backward pass has twice the operations of the forward pass
  const Autocast autocast(config_.amp, group_.device());
  const auto call = [&] {
    return call_task([&] { return task_.train_step(model_.module(), batch, context_); },
                     [&] { return fmt::format("train_step at step {} ({})", context_.step, samples_of(batch)); });
  };
  if (flops_per_sample_) return call();
  const FlopCounter counter;
  const at::Tensor loss = call();
  flops_per_sample_ = kWithBackward * static_cast<double>(counter.flops()) / static_cast<double>(batch.size());
  return loss;
}

at::Tensor TrainStep::scaled(const at::Tensor& loss, double weight) const {
  const bool poisons = config_.nonfinite.loss == NonfiniteLoss::kSkip;
  if (!scaler_ && !poisons) return weight == 1 ? loss : loss.mul(weight);
  at::Tensor factor = scaler_ ? scaler_->scale() : one_;
  if (weight != 1) factor = factor.mul(weight);
  if (poisons) factor = factor + loss.detach() * 0;  // NaN where the loss is not finite, else the factor
  return loss * factor;
}

void TrainStep::update() {
  const GradientLists& gradients = optimizer_->gather_gradients();
  const bool checks = found_inf_.defined();
  const bool norm_detects = config_.gradient.clip_norm && !scaler_;  // the norm is not finite if an element is not
  if (checks) found_inf_.zero_();
  if (scaler_) {
    scaler_->unscale(gradients, found_inf_);
  } else if (checks && !norm_detects) {
    check_finite_and_scale(gradients, found_inf_, one_);
  }
  if (on_gradients_ && !graph_) on_gradients_();
  gradient_norm_ = clip_gradients(config_.gradient, gradients);
  if (checks && norm_detects && gradient_norm_.defined()) found_inf_.copy_(gradient_norm_.isfinite().logical_not());
  optimizer_->step(found_inf_);
  if (scaler_) scaler_->update(found_inf_);
  nonfinite_.count(loss_, found_inf_);
  if (!checks) return;
  buffers_->end(found_inf_);
  model_.finish_step(found_inf_);
}

StepReading TrainStep::read() {
  synchronize_device(group_.device(), feed_options(config_, group_.world_size()).timeout);
  const at::Tensor zero = at::zeros({}, at::kDouble);
  const auto or_zero = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble) : zero.to(loss_.device());
  };
  // One copy to the host for all values.
  std::vector<at::Tensor> on_device = nonfinite_.on_device();
  on_device.push_back(or_zero(loss_));
  on_device.push_back(or_zero(gradient_norm_));
  on_device.push_back(or_zero(scaler_ ? scaler_->scale() : at::Tensor()));
  const at::Tensor values = at::stack(on_device).cpu();
  const auto* data = values.const_data_ptr<double>() + NonfiniteSteps::kValues;
  StepReading out;
  out.loss = data[0];
  if (gradient_norm_.defined()) out.gradient_norm = data[1];
  if (scaler_) out.loss_scale = data[2];
  const NonfiniteSteps::Reading nonfinite = nonfinite_.read(values.const_data_ptr<double>());
  out.nonfinite_losses = nonfinite.loss.steps;
  out.skipped = nonfinite.skipped.steps;
  out.skipped_in_a_row = nonfinite.skipped.in_a_row;
  const int64_t done = context_.step + 1;
  if (nonfinite.loss.first) out.first_nonfinite_loss = done - *nonfinite.loss.first;
  if (nonfinite.skipped.first) out.first_skipped = done - *nonfinite.skipped.first;
  return out;
}

DataLoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed) {
  return {.batch_size = batch_size,
          .drop_last = false,
          .threads = static_cast<int>(config.loader.threads.value_or(1)),
          .prefetch = config.loader.prefetch,
          .pin_memory = config.loader.pin_memory && device.is_cuda(),
          .seed = seed};
}

PrefetchOptions feed_options(const TrainerConfig& config, int world_size) {
  PrefetchOptions out{.channels_last = config.cuda.channels_last};
  if (world_size > 1)
    out.timeout = std::chrono::milliseconds(static_cast<int64_t>(config.distributed.timeout_seconds * 1000));
  return out;
}

}  // namespace oarlock

#include "trainer/engine/evaluator.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "trainer/optim/amp.h"

namespace oarlock {
namespace {

bool uses_current_weights(const EvalPass& pass) { return pass.weights == PassWeights::kCurrent; }

bool is_due(const EvalPass& pass, int64_t step) {
  return uses_current_weights(pass) && pass.every_steps > 0 && step % pass.every_steps == 0;
}

bool runs_during_training(const EvalPass& pass) { return is_due(pass, pass.every_steps); }

}  // namespace

WriterCheck writer_check(const TrainParts& parts) {
  return parts.checkpointer != nullptr ? parts.checkpointer->writer_check() : WriterCheck();
}

Evaluator::Evaluator(const TrainParts& parts)
    : parts_(parts), early_stopping_(parts.config.early_stopping, parts.task.monitor()), passes_(parts.task.passes()) {}

std::vector<Stateful*> Evaluator::stateful() {
  std::vector<Stateful*> out;
  if (parts_.config.early_stopping.patience) out.push_back(&early_stopping_);
  if (parts_.config.eval.every_steps > 0) out.push_back(&evaluated_);
  if (std::any_of(passes_.begin(), passes_.end(), runs_during_training)) out.push_back(&passed_);
  return out;
}

Result<void> Evaluator::CompletedStep::restored(const nlohmann::json& values) {
  in_run = values.value("step", in_run);
  return {};
}

Result<Evaluation> Evaluator::run(const EvalPass& pass, int64_t step) {
  parts_.telemetry.enter(Phase::kEval);
  std::optional<MovingAverage::Exchange> averaged;
  if (parts_.step.average() != nullptr && parts_.config.ema.evaluate) {
    if (parts_.checkpointer != nullptr) parts_.checkpointer->wait_for_copy();
    averaged.emplace(*parts_.step.average());
  }
  parts_.model.broadcast_buffers();  // running statistics are rank 0's, as in the checkpoint
  const Autocast autocast(parts_.config.amp, parts_.group.device());
  if (pass.name == kEvaluationName && !std::exchange(means_checked_, true))
    RETURN_IF_ERROR(reject_means(pass, parts_.model.module(), parts_.group.device()));
  Result<Evaluation> out =
      oarlock::evaluate(pass, parts_.model.module(), parts_.group,
                        {loader_options(parts_.config, parts_.group.device(), pass.batch_size, parts_.config.seed),
                         feed_options(parts_.config, parts_.group.world_size()), &parts_.stop, writer_check(parts_)},
                        step);
  if (out && !out->interrupted && parts_.tracking != nullptr) track(pass, *out, step);
  if (out) parts_.telemetry.enter(Phase::kOther);
  return out;
}

void Evaluator::track(const EvalPass& pass, const Evaluation& evaluation, int64_t step) {
  const std::string name = pass.name == kEvaluationName ? "eval" : pass.name;
  parts_.tracking->add_metrics(step, name, evaluation.metrics);
  if (!pass.show) return;
  const at::NoGradGuard no_gradients;
  torch::nn::Module& model = parts_.model.module();
  model.eval();
  try {
    parts_.tracking->add_media(step, name, pass.show(model, evaluation.rows));
  } catch (const std::exception& error) {  // a failed device fails the next step, too
    const std::string what = error.what();
    parts_.telemetry.logger().warn("tracking: the pass could not be shown; training continues",
                                   {{"pass", name}, {"step", step}, {"reason", what.substr(0, what.find('\n'))}});
  }
  model.train();
}

nlohmann::json Evaluator::state_for_joining() const {
  nlohmann::json bits = nlohmann::json::object();  // preserves infinities and NaN
  for (const auto& [name, value] : metrics_) bits[name] = std::bit_cast<uint64_t>(value);
  return {{"metrics", bits},
          {"evaluated", {evaluated_.in_run, evaluated_.in_process}},
          {"passed", {passed_.in_run, passed_.in_process}}};
}

void Evaluator::join(const nlohmann::json& state) {
  metrics_.clear();
  for (const auto& [name, value] : state.at("metrics").items())
    metrics_[name] = std::bit_cast<double>(value.get<uint64_t>());
  evaluated_.in_run = state.at("evaluated").at(0);
  evaluated_.in_process = state.at("evaluated").at(1);
  passed_.in_run = state.at("passed").at(0);
  passed_.in_process = state.at("passed").at(1);
}

// ---- evaluations ---------------------------------------------------------------------------------------------------

bool Evaluator::is_due_after_step(int64_t step) const {
  const int64_t every = parts_.config.eval.every_steps;
  return every > 0 && step > 0 && step % every == 0 && evaluated_.in_run != step;
}

bool Evaluator::is_due_after_epoch(int64_t epochs_done, int64_t step) const {
  const int64_t every = parts_.config.eval.every_epochs;
  return every > 0 && epochs_done % every == 0 && evaluated_.in_run != step;
}

Result<bool> Evaluator::evaluate(int64_t step) {
  const EvalConfig& eval = parts_.config.eval;
  EvalPass pass = evaluation_of(parts_.task);
  pass.batch_size = eval.batch_size > 0 ? eval.batch_size : parts_.config.batch.size;
  ASSIGN_OR_RETURN(Evaluation evaluation, run(pass, step));
  if (evaluation.interrupted) return false;
  const Result<void> written =
      write_eval_rows(eval.rows_file, std::move(evaluation.rows), parts_.group, parts_.stop, writer_check(parts_));
  if (parts_.stop.agreed()) return false;
  RETURN_IF_ERROR(written);
  metrics_ = std::move(evaluation.metrics);
  evaluated_.in_run = evaluated_.in_process = step;
  parts_.telemetry.record_evaluation(metrics_);
  bool is_best = false;
  if (parts_.checkpointer != nullptr) {
    ASSIGN_OR_RETURN(is_best, parts_.checkpointer->evaluated(step, metrics_));
  }
  RETURN_IF_ERROR(early_stopping_.observe(metrics_, parts_.group));
  parts_.telemetry.enter(Phase::kOther);
  return is_best;
}

// ---- passes --------------------------------------------------------------------------------------------------------

bool Evaluator::is_pass_due_after_step(int64_t step) const {
  return step > 0 && passed_.in_run != step &&
         std::any_of(passes_.begin(), passes_.end(), [&](const EvalPass& pass) { return is_due(pass, step); });
}

Result<void> Evaluator::run_due_passes(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (!is_due(pass, step)) continue;
    RETURN_IF_ERROR(run_and_report(pass, step));
    if (parts_.stop.agreed()) return {};
  }
  passed_.in_run = passed_.in_process = step;
  return {};
}

Result<void> Evaluator::run_final_passes(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (!uses_current_weights(pass) || (passed_.in_process == step && is_due(pass, step))) continue;
    RETURN_IF_ERROR(run_and_report(pass, step));
    if (parts_.stop.agreed()) return {};
  }
  return {};
}

bool Evaluator::has_best_passes() const { return !std::all_of(passes_.begin(), passes_.end(), uses_current_weights); }

Result<void> Evaluator::run_best_passes(int64_t step) {
  if (!has_best_passes()) return {};
  ASSIGN_OR_RETURN(const int64_t best_step, load_best_weights(step));
  for (const EvalPass& pass : passes_) {
    if (uses_current_weights(pass)) continue;
    RETURN_IF_ERROR(run_and_report(pass, best_step));
    if (parts_.stop.agreed()) return {};
  }
  return {};
}

// Returns the step of the weights that the model has afterwards.
Result<int64_t> Evaluator::load_best_weights(int64_t step) {
  if (parts_.checkpointer == nullptr) return step;
  std::vector<Stateful*> averaged;
  if (parts_.step.average() != nullptr) averaged.push_back(parts_.step.average());
  ASSIGN_OR_RETURN(const std::optional<int64_t> best, parts_.checkpointer->restore_best(parts_.model, averaged));
  if (best) parts_.telemetry.logger().info("loaded the weights of the best checkpoint", {{"step", *best}});
  return best.value_or(step);
}

Result<void> Evaluator::run_and_report(const EvalPass& pass, int64_t step) {
  ASSIGN_OR_RETURN(const Evaluation evaluation, run(pass, step));
  if (!evaluation.interrupted) parts_.telemetry.record_pass(pass.name, evaluation.metrics);
  return {};
}

}  // namespace oarlock

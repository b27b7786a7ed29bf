#include "trainer/engine/pass_loop.h"

#include "trainer/engine/run_pass.h"

#include <algorithm>

namespace oarlock {
namespace {

bool of_current_weights(const EvalPass& pass) { return pass.weights == PassWeights::kCurrent; }

bool due(const EvalPass& pass, int64_t step) {
  return of_current_weights(pass) && pass.every_steps > 0 && step % pass.every_steps == 0;
}

}  // namespace

bool PassLoop::has_state() const {
  return std::any_of(passes_.begin(), passes_.end(), [](const EvalPass& pass) { return due(pass, pass.every_steps); });
}

bool PassLoop::due_after_step(int64_t step) const {
  return step > 0 && last_step_ != step &&
         std::any_of(passes_.begin(), passes_.end(), [&](const EvalPass& pass) { return due(pass, step); });
}

Result<void> PassLoop::restored(const nlohmann::json& values) {
  last_step_ = values.value("step", last_step_);
  return {};
}

Result<void> PassLoop::run_due(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (!due(pass, step)) continue;
    if (const Result<void> done = run(pass, step); !done || parts_.stop.agreed()) return done;
  }
  last_step_ = ran_at_ = step;
  return {};
}

Result<void> PassLoop::run_all(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (!of_current_weights(pass) || (ran_at_ == step && due(pass, step))) continue;
    if (const Result<void> done = run(pass, step); !done || parts_.stop.agreed()) return done;
  }
  return {};
}

Result<void> PassLoop::run_with_best_weights(int64_t step) {
  if (std::all_of(passes_.begin(), passes_.end(), of_current_weights)) return {};
  const Result<int64_t> best_step = take_best_weights(step);
  if (!best_step) return tl::make_unexpected(best_step.error());
  for (const EvalPass& pass : passes_) {
    if (of_current_weights(pass)) continue;
    if (const Result<void> done = run(pass, *best_step); !done || parts_.stop.agreed()) return done;
  }
  return {};
}

// Gives the step that the model is of now.
Result<int64_t> PassLoop::take_best_weights(int64_t step) {
  if (parts_.checkpointer == nullptr) return step;
  std::vector<Stateful*> averaged;
  if (parts_.step.average() != nullptr) averaged.push_back(parts_.step.average());
  const Result<std::optional<int64_t>> best = parts_.checkpointer->restore_best(parts_.model, averaged);
  if (!best) return tl::make_unexpected(best.error());
  if (*best) parts_.telemetry.logger().info("the model is the best checkpoint's now", {{"step", **best}});
  return best->value_or(step);
}

Result<void> PassLoop::run(const EvalPass& pass, int64_t step) {
  const Result<Evaluation> evaluation = run_pass(parts_, pass, step);
  if (!evaluation) return tl::make_unexpected(evaluation.error());
  parts_.telemetry.enter(Phase::kOther);
  if (!evaluation->interrupted) parts_.telemetry.pass_done(pass.name, evaluation->metrics);
  return {};
}

}  // namespace oarlock

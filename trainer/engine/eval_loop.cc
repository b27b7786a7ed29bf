#include "trainer/engine/eval_loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/engine/eval_rows.h"
#include "trainer/engine/run_pass.h"

namespace oarlock {
namespace {

std::string names_of(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back("'" + name + "'");
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

EvalLoop::EvalLoop(const TrainParts& parts)
    : parts_(parts), early_stopping_(parts.config.early_stopping, parts.task.monitor()) {
  if (parts.config.schedule.kind == ScheduleKind::kPlateau) plateau_.emplace(parts.config.schedule.plateau);
}

std::vector<Stateful*> EvalLoop::stateful() {
  std::vector<Stateful*> out;
  if (plateau_) out.push_back(&*plateau_);
  if (parts_.config.early_stopping.patience) out.push_back(&early_stopping_);
  if (parts_.config.eval.every_steps > 0) out.push_back(this);
  return out;
}

Result<void> EvalLoop::restored(const nlohmann::json& values) {
  last_step_ = values.value("step", last_step_);
  return {};
}

bool EvalLoop::due_after_step(int64_t step) const {
  const int64_t every = parts_.config.eval.every_steps;
  return every > 0 && step > 0 && step % every == 0 && last_step_ != step;
}

bool EvalLoop::due_after_epoch(int64_t epochs_done, int64_t step) const {
  const int64_t every = parts_.config.eval.every_epochs;
  return every > 0 && epochs_done % every == 0 && last_step_ != step;
}

Result<bool> EvalLoop::run(int64_t step) {
  const EvalConfig& eval = parts_.config.eval;
  EvalPass pass = evaluation_of(parts_.task);
  pass.batch_size = eval.batch_size > 0 ? eval.batch_size : parts_.config.batch.size;
  const Result<Evaluation> evaluation = run_pass(parts_, pass, step);
  if (!evaluation) return tl::make_unexpected(evaluation.error());
  parts_.telemetry.enter(Phase::kOther);
  if (evaluation->interrupted) return false;
  metrics_ = evaluation->metrics;
  if (const Result<void> written = write_eval_rows(eval.rows_file, evaluation->rows, parts_.group); !written)
    return tl::make_unexpected(written.error());
  last_step_ = ran_at_ = step;
  parts_.telemetry.evaluated(metrics_);
  Result<bool> best = false;
  if (parts_.checkpointer != nullptr) best = parts_.checkpointer->evaluated(step, metrics_);
  if (!best) return best;
  if (const Result<void> observed = observe(); !observed) return tl::make_unexpected(observed.error());
  parts_.telemetry.enter(Phase::kOther);
  return best;
}

// Every rank has the same metrics.
Result<void> EvalLoop::observe() {
  if (const Result<bool> stop = early_stopping_.observe(metrics_, parts_.group); !stop)
    return tl::make_unexpected(stop.error());
  if (!plateau_) return {};
  const std::string& name = parts_.config.schedule.plateau.metric;
  const auto metric = metrics_.find(name);
  if (metric == metrics_.end()) {
    return fail(ExitCode::kConfig, fmt::format("schedule.plateau.metric: the evaluation gives no '{}', only {}", name,
                                               names_of(metrics_)));
  }
  plateau_->observe(metric->second);
  return {};
}

}  // namespace oarlock

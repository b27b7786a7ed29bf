#include "trainer/engine/run_output.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "common/text.h"
#include "trainer/device/device.h"

namespace oarlock {
namespace {

constexpr size_t kMaxLoggedMetrics = 16;  // in the last line of the log

}  // namespace

std::string precision_name(const AmpConfig& amp) {
  if (!amp.enabled) return "fp32";
  return amp.dtype == AmpType::kFp16 ? "fp16" : "bf16";
}

RunHeader run_header(const TrainerConfig& config, const BatchPlan& plan, Task& task,
                     const DistributedDataParallelBase& model, const ProcessGroup& group) {
  const at::Device device = group.device();
  RunHeader out;
  out.task = config.task;
  out.world_size = group.world_size();
  out.device =
      device.is_cpu() ? fmt::format("CPU, {} per rank", counted(at::get_num_threads(), "thread")) : device_name(device);
  out.precision = precision_name(config.amp);
  for (const NamedTensor& item : model.parameters()) {
    out.parameters += item.tensor.numel();
    if (item.tensor.requires_grad()) out.trainable_parameters += item.tensor.numel();
  }
  out.train_samples = task.train_data().size();
  out.eval_samples = task.eval_data().size();
  out.effective_batch = plan.effective_batch;
  out.batch_per_rank = plan.micro_batch;
  out.accumulation_steps = config.gradient.accumulation_steps;
  out.epochs = config.epochs.value_or(0);
  out.learning_rate = config.optimizer.lr;
  out.checkpoints = config.checkpoint.dir;
  return out;
}

void log_plan(const RunHeader& header, const BatchPlan& plan, const ProcessGroup& group, const Logger& logger) {
  logger.info("batches and learning rate", {{"effective_batch", header.effective_batch},
                                            {"batch_per_rank", header.batch_per_rank},
                                            {"accumulation_steps", header.accumulation_steps},
                                            {"world_size", header.world_size},
                                            {"device", group.device().is_cpu() ? "cpu" : header.device},
                                            {"parameters", header.parameters},
                                            {"train_samples", header.train_samples},
                                            {"eval_samples", header.eval_samples},
                                            {"learning_rate", header.learning_rate},
                                            {"learning_rate_factor", plan.lr_factor},
                                            {"warmup_steps", plan.warmup_steps}});
}

RunSummary run_summary(const TrainSummary& summary, const std::string& monitor, double seconds, int world_size,
                       const Telemetry& telemetry) {
  RunSummary out;
  out.step = summary.position.step;
  out.was_complete = summary.was_complete;
  out.stopped_early = summary.stopped_early;
  out.metrics = summary.metrics;
  out.monitor = monitor;
  out.best = summary.best;
  out.seconds = seconds;
  const TimeTable table = time_table(telemetry.phase_seconds());
  for (const auto& [name, spent] : table.rows)
    out.phase_shares.emplace_back(name, table.total > 0 ? spent / table.total : 0);
  if (summary.train_seconds > 0) out.samples_per_second = static_cast<double>(summary.samples) / summary.train_seconds;
  out.recoveries = telemetry.status().recoveries;
  out.world_size = world_size;
  out.parameters_equal = summary.parameters_equal;
  out.checkpoint = summary.checkpoint;
  return out;
}

void log_summary(const RunSummary& summary, const Logger& logger) {
  Logger with_metrics = logger;
  if (summary.metrics.size() <= kMaxLoggedMetrics) {
    for (const auto& [name, value] : summary.metrics) with_metrics = with_metrics.with({{name, value}});
  } else if (const auto found = summary.metrics.find(summary.monitor); found != summary.metrics.end()) {
    with_metrics = with_metrics.with({{found->first, found->second}});  // the line of the evaluation has all
  }
  if (!summary.stopped_early.empty()) with_metrics = with_metrics.with({{"stopped_early", summary.stopped_early}});
  with_metrics.info(summary.was_complete
                        ? "training was complete already: evaluated the checkpoint; raise epochs or steps, or use "
                          "another checkpoint.dir, to train more"
                        : "training is complete",
                    {{"step", summary.step},
                     {"samples_per_second", summary.samples_per_second},
                     {"seconds", summary.seconds},
                     {"world_size", summary.world_size},
                     {"checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint},
                     {"parameters_bitwise_equal", summary.parameters_equal}});
}

}  // namespace oarlock

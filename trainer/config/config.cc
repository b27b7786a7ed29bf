#include "trainer/config/config.h"

#include <set>

namespace oarlock {
namespace {

void describe_length(TrainerConfig& config, Fields& fields) {
  fields.field("epochs", config.epochs, at_least(1), "length of the run in passes over the data");
  fields.field("steps", config.steps, at_least(0),
               "length of the run in optimizer steps, instead of epochs; 0: evaluates only, as with `pretrained`");
  if (config.epochs && config.steps) fields.problem("steps", "the length is given twice; remove epochs or steps");
  if (!fields.given("epochs") && !fields.given("steps")) {
    fields.problem("epochs", "is required (or steps): how long to train");
  }
}

void describe_task(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  Names<size_t> names;
  for (const std::string& name : tasks.names) names.emplace_back(name, names.size());
  fields.require("task");
  size_t index = 0;
  if (!fields.choice<size_t>("task", index, names, "what is trained")) {
    fields.skip("data");  // whose sections they are is not known
    fields.skip("model");
    return;
  }
  config.task = tasks.names[index];
  tasks.describe_sections(config.task, fields);
}

}  // namespace

void describe(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  const auto section = [&fields](std::string_view key, auto& part, std::string_view meaning) {
    fields.section(key, [&part](Fields& inner) { describe(part, inner); }, meaning);
  };
  describe_task(config, fields, tasks);
  auto seed = static_cast<int64_t>(config.seed);
  fields.field("seed", seed, at_least(0), "of every random stream");
  config.seed = static_cast<uint64_t>(seed);
  describe_length(config, fields);
  section("pretrained", config.pretrained, "weights to begin with");
  section("batch", config.batch, "how many samples a step takes");
  section("optimizer", config.optimizer, "how parameters are updated");
  section("schedule", config.schedule, "the learning rate over the run");
  const bool cycles = config.schedule.kind == ScheduleKind::kOneCycle && config.schedule.cycle_momentum;
  if (cycles && config.optimizer.kind == OptimizerKind::kSgd && config.optimizer.momentum == 0) {
    fields.problem("schedule",
                   "onecycle moves a momentum, which sgd has not; set optimizer.momentum or cycle_momentum: false");
  }
  section("scaling", config.scaling, "how learning rate and warm-up follow the samples per step");
  section("gradient", config.gradient, "what happens to gradients before the optimizer");
  section("amp", config.amp, "automatic mixed precision");
  section("ema", config.ema, "a moving average of the weights");
  section("nonfinite", config.nonfinite, "what happens when a loss or gradient is not finite");
  if (config.amp.scales() && config.nonfinite.gradient == NonfiniteGradient::kStop) {
    fields.problem("nonfinite", "gradient: stop would end the run at the first overflow of amp.dtype fp16; use skip");
  }
  section("checkpoint", config.checkpoint, "what is saved, where and when");
  section("eval", config.eval, "when and how the model is evaluated");
  section("early_stopping", config.early_stopping, "when a run ends because it gets no better");
  if (config.early_stopping.patience && config.eval.every_epochs == 0 && config.eval.every_steps == 0) {
    fields.problem("early_stopping", "looks at evaluations; set eval.every_epochs or eval.every_steps above 0");
  }
  section("report", config.report, "the history of the run as files");
  section("ddp", config.ddp, "distributed data parallel");
  section("cuda", config.cuda, "how the device is used");
  if (config.cuda.graphs && config.gradient.accumulation_steps > 1) {
    fields.problem("cuda",
                   "graphs: a step is recorded as one forward and backward; remove it, or "
                   "gradient.accumulation_steps");
  }
  if (config.cuda.graphs && config.ddp.find_unused_parameters) {
    fields.problem("cuda",
                   "graphs: a recorded step uses the same parameters every time, and looking for unused ones waits for "
                   "the device; remove it, or ddp.find_unused_parameters");
  }
  if (config.cuda.graphs && config.ddp.comm_hook == CommHook::kPowerSgd) {
    fields.problem("cuda",
                   "graphs: powersgd decides on the host what each step sends; remove it, or choose another "
                   "ddp.comm_hook");
  }
  if (config.cuda.graphs && cycles) {
    fields.problem("cuda", "graphs: a recorded step keeps its momentum; set schedule.cycle_momentum: false");
  }
  section("distributed", config.distributed, "how the ranks meet and talk");
  section("loader", config.loader, "how batches are made ahead of time");
  fields.section(
      "log",
      [&](Fields& log) {
        log.field("every_steps", config.log_every_steps, at_least(1), "steps from one line of progress to the next");
      },
      "what is told while training goes on");
  fields.choice<DeviceKind>("device", config.device,
                            {{"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}},
                            "auto: a CUDA device where build and machine have one");
  fields.field("gpu_ids", config.gpu_ids, at_least(0),
               "CUDA device of each local rank, among the visible ones; empty: local rank n takes device n");
  if (std::set<int64_t>(config.gpu_ids.begin(), config.gpu_ids.end()).size() < config.gpu_ids.size())
    fields.problem("gpu_ids", "a device is given twice; each rank needs its own");
  fields.field("threads", config.threads, at_least(0), "of LibTorch; 0: the cores, shared by the ranks of the node");
}

}  // namespace oarlock

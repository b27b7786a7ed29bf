#include "trainer/config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/config/limits.h"

namespace oarlock {
namespace {

constexpr double kMaxGpuId = 127;  // c10::DeviceIndex has 8 bits

void describe(PretrainedConfig& config, Fields& fields) {
  fields.field("path", config.path,
               "safetensors file, written by this program or by Python; empty: the model's own initialization. A "
               "checkpoint of the run has precedence");
  fields.scope("path", Scope::kPresence);
  fields.field("strict", config.strict,
               "true: names and shapes must match the model's exactly; false: the matching tensors are loaded, and the "
               "others are logged");
}

void describe(BatchConfig& config, Fields& fields) {
  fields.field("size", config.size, from_to(1, kMaxBatchSize),
               "number of samples, of each rank or of all ranks together (see per)");
  fields.choice<BatchPer>(
      "per", config.per, {{"device", BatchPer::kDevice}, {"global", BatchPer::kGlobal}},
      "device: size is the number of samples in a forward pass of one rank; global: size is the number of samples in "
      "an optimizer step of all ranks together, and must be divisible by ranks times gradient.accumulation_steps");
  fields.field("drop_last", config.drop_last, "drop the last step of an epoch if it is incomplete");
}

void describe(LoaderConfig& config, Fields& fields) {
  fields.field("threads", config.threads, from_to(0, kMaxThreads),
               "threads of each rank that create batches; 0: the training thread creates them. Default: the node's "
               "CPUs divided by its ranks, at most 8");
  fields.field("prefetch", config.prefetch, from_to(1, kMaxPrefetch), "prefetched batches per thread");
  fields.field("pin_memory", config.pin_memory,
               "on CUDA devices: create batches in page-locked memory, so that copies to the device are asynchronous");
}

void describe_length(TrainerConfig& config, Fields& fields) {
  fields.field("epochs", config.epochs, from_to(1, kMaxEpochs), "length of the run in passes over the data");
  fields.field(
      "steps", config.steps, from_to(0, kMaxSteps),
      "length of the run in optimizer steps; replaces epochs. 0: evaluation only, for example of `pretrained` weights");
  if (config.epochs && config.steps) fields.problem("steps", "the length is given twice; remove epochs or steps");
  if (!fields.has("epochs") && !fields.has("steps")) {
    fields.problem("epochs", "is required (or steps): how long to train");
  }
}

void describe_task(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  Names<size_t> names;
  for (const std::string& name : tasks.names) names.emplace_back(name, names.size());
  fields.require("task");
  size_t index = 0;
  if (!fields.choice<size_t>("task", index, names, "the workload")) {
    fields.skip("data");  // their descriptions depend on the task
    fields.skip("model");
    return;
  }
  config.task = tasks.names[index];
  tasks.describe_sections(config.task, fields);
}

void describe_devices(TrainerConfig& config, Fields& fields) {
  fields.choice<DeviceKind>("device", config.device,
                            {{"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}},
                            "auto: a CUDA device if the build and the machine have one");
  fields.field("gpu_ids", config.gpu_ids, from_to(0, kMaxGpuId),
               "CUDA device of each local rank, among the visible ones; empty: local rank n uses device n");
  if (std::set<int64_t>(config.gpu_ids.begin(), config.gpu_ids.end()).size() < config.gpu_ids.size()) {
    fields.problem("gpu_ids", "a device is given twice; each rank needs its own");
  }
  fields.field("threads", config.threads, from_to(0, kMaxThreads),
               "intra-op threads of LibTorch in each rank; 0: the node's CPUs divided by its ranks");
  for (const char* key : {"device", "gpu_ids", "threads"}) fields.scope(key, Scope::kRank);
}

// ---- combinations of sections that are not valid -------------------------------------------------------------------

bool cycles_momentum(const TrainerConfig& config) {
  return config.schedule.kind == ScheduleKind::kOneCycle && config.schedule.cycle_momentum;
}

void check_momentum(const TrainerConfig& config, Fields& fields) {
  if (cycles_momentum(config) && config.optimizer.kind == OptimizerKind::kSgd && config.optimizer.momentum == 0) {
    fields.problem("schedule",
                   "onecycle changes the momentum, and sgd has none; set optimizer.momentum or cycle_momentum: false");
  }
}

void check_nonfinite(const TrainerConfig& config, Fields& fields) {
  if (config.amp.scales() && config.nonfinite.gradient == NonfiniteGradient::kStop) {
    fields.problem("nonfinite", "gradient: stop would end the run at the first overflow of amp.dtype fp16; use skip");
  }
}

// The evaluation at the end of the run is too late for both.
void check_evaluations(const TrainerConfig& config, Fields& fields) {
  constexpr char kRequired[] = "requires evaluations; set eval.every_epochs or eval.every_steps above 0";
  if (config.eval.every_epochs != 0 || config.eval.every_steps != 0) return;
  if (config.early_stopping.patience) fields.problem("early_stopping", kRequired);
  if (config.schedule.kind == ScheduleKind::kPlateau) fields.problem("schedule", std::string("plateau ") + kRequired);
}

void check_graphs(const TrainerConfig& config, Fields& fields) {
  if (!config.cuda.graphs) return;
  if (config.gradient.accumulation_steps > 1) {
    fields.problem("cuda",
                   "graphs: a step is recorded as one forward and backward; remove it, or "
                   "gradient.accumulation_steps");
  }
  if (config.ddp.find_unused_parameters) {
    fields.problem("cuda",
                   "graphs: a recorded step uses the same parameters every time, and finding unused ones waits for "
                   "the device; remove it, or ddp.find_unused_parameters");
  }
  if (config.ddp.comm_hook == CommHook::kPowerSgd) {
    fields.problem("cuda",
                   "graphs: powersgd decides on the host what each step sends; remove it, or choose another "
                   "ddp.comm_hook");
  }
  if (cycles_momentum(config)) {
    fields.problem("cuda", "graphs: a recorded step keeps its momentum; set schedule.cycle_momentum: false");
  }
}

}  // namespace

int loader_threads(const LoaderConfig& config, int cpus, int local_ranks) {
  if (config.threads) return static_cast<int>(*config.threads);
  return std::clamp(cpus / std::max(local_ranks, 1), 1, 8);
}

void describe(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  const auto section = [&fields](std::string_view key, auto& part, std::string_view help) {
    fields.section(key, [&part](Fields& inner) { describe(part, inner); }, help);
  };
  describe_task(config, fields, tasks);
  auto seed = static_cast<int64_t>(config.seed);
  fields.field("seed", seed, at_least(0), "seed of all random streams");
  config.seed = static_cast<uint64_t>(seed);
  describe_length(config, fields);
  section("pretrained", config.pretrained, "initial weights");
  section("batch", config.batch, "samples per step");
  section("optimizer", config.optimizer, "how parameters are updated");
  section("schedule", config.schedule, "the learning rate over the run");
  check_momentum(config, fields);
  section("scaling", config.scaling, "how learning rate and warm-up scale with the samples per step");
  section("gradient", config.gradient, "gradient accumulation and clipping");
  section("amp", config.amp, "automatic mixed precision");
  section("ema", config.ema, "exponential moving average of the weights");
  section("nonfinite", config.nonfinite, "policy for a loss or gradient that is not finite");
  check_nonfinite(config, fields);
  section("checkpoint", config.checkpoint, "what is saved, where and when");
  section("eval", config.eval, "when and how the model is evaluated");
  section("early_stopping", config.early_stopping, "when a run ends because the model stops improving");
  check_evaluations(config, fields);
  section("report", config.report, "the history of the run as files");
  section("tracking", config.tracking, "what the run reports to experiment trackers");
  section("profile", config.profile, "a trace of some training steps");
  section("ddp", config.ddp, "DistributedDataParallel: averaging of gradients over the ranks");
  section("cuda", config.cuda, "how the device is used");
  check_graphs(config, fields);
  section("distributed", config.distributed, "rendezvous and communication of the ranks");
  section("loader", config.loader, "how batches are created and prefetched");
  fields.section(
      "log",
      [&](Fields& log) {
        log.field("every_steps", config.log_every_steps, from_to(1, kMaxSteps), "steps between two progress lines");
      },
      "progress lines during training");
  describe_devices(config, fields);
  for (const char* key : {"tracking", "profile", "loader"}) fields.scope(key, Scope::kRank);
}

// ---- Batch plan --------------------------------------------------------------------------------------------------

namespace {

double scaling_factor(ScalingRule rule, double growth, const std::optional<double>& cap) {
  double factor = 1;
  if (rule == ScalingRule::kLinear) factor = growth;
  if (rule == ScalingRule::kSqrt) factor = std::sqrt(growth);
  return cap ? std::min(factor, *cap) : factor;
}

// Returns the number of forward passes of a step over all ranks. Fails if it or the samples of the step are not
// int64_t.
Result<int64_t> count_parts(const TrainerConfig& config, int world_size) {
  const int64_t accumulation = config.gradient.accumulation_steps;
  int64_t parts = 0;
  int64_t samples = 0;
  const bool fits =
      !__builtin_mul_overflow(accumulation, int64_t{world_size}, &parts) &&
      (config.batch.per == BatchPer::kGlobal || !__builtin_mul_overflow(parts, config.batch.size, &samples));
  if (fits) return parts;
  return fail(ExitCode::kConfig,
              fmt::format("batch: a batch size of {} on {} with {} is too large; lower "
                          "batch.size or gradient.accumulation_steps",
                          config.batch.size, counted(world_size, "rank"), counted(accumulation, "accumulation step")));
}

// Returns the samples of the smallest forward pass of the epochs that the run has: the last one of an epoch may be
// smaller than the others.
int64_t smallest_batch(const TrainerConfig& config, const BatchPlan& plan, int world_size, int64_t samples) {
  if (config.batch.drop_last) return plan.micro_batch;
  const auto last_of = [&](int64_t step) {
    const int64_t rest = step % plan.micro_batch;
    return rest == 0 ? plan.micro_batch : rest;
  };
  const int64_t per_epoch = (samples + world_size - 1) / world_size;  // the sampler pads the last ones
  const int64_t rest = per_epoch % plan.per_rank;
  const bool has_last = !config.steps || *config.steps * plan.per_rank >= per_epoch;
  const int64_t whole = last_of(plan.per_rank);
  return rest == 0 || !has_last ? whole : std::min(whole, last_of(rest));
}

}  // namespace

Result<BatchPlan> plan_batches(const TrainerConfig& config, int world_size, std::optional<int64_t> samples) {
  const int64_t accumulation = config.gradient.accumulation_steps;
  const ScalingConfig& scaling = config.scaling;
  const bool is_global = config.batch.per == BatchPer::kGlobal;
  ASSIGN_OR_RETURN(const int64_t parts, count_parts(config, world_size));
  BatchPlan plan;
  plan.micro_batch = config.batch.size;
  double reference = static_cast<double>(config.batch.size) * static_cast<double>(accumulation) *
                     static_cast<double>(scaling.reference_world);
  if (is_global) {
    if (config.batch.size % parts != 0) {
      return fail(ExitCode::kConfig,
                  fmt::format("batch: a global batch of {} is not divisible by {} ranks times {} accumulation steps; "
                              "choose a multiple of {}",
                              config.batch.size, world_size, accumulation, parts));
    }
    plan.micro_batch = config.batch.size / parts;
    if ((scaling.lr != ScalingRule::kNone || scaling.warmup != ScalingRule::kNone) && !scaling.reference_batch) {
      return fail(ExitCode::kConfig,
                  "scaling: with batch.per: global the batch is the same for every number of ranks; set "
                  "scaling.reference_batch, or remove the rule");
    }
  }
  plan.per_rank = plan.micro_batch * accumulation;
  if (samples && *samples > 0 && !config.batch.drop_last) {
    const int64_t per_rank_samples = (*samples + world_size - 1) / world_size;  // the sampler pads the last ones
    plan.micro_batch = std::min(plan.micro_batch, per_rank_samples);
    plan.per_rank = std::min(plan.per_rank, per_rank_samples);
    reference = std::min(reference, static_cast<double>(*samples));
  }
  plan.effective_batch = plan.per_rank * world_size;
  if (samples && *samples > 0) plan.smallest_batch = smallest_batch(config, plan, world_size, *samples);
  if (scaling.reference_batch) reference = static_cast<double>(*scaling.reference_batch);
  const double growth = static_cast<double>(plan.effective_batch) / reference;
  plan.lr_factor = scaling_factor(scaling.lr, growth, scaling.cap);
  const double warmup =
      static_cast<double>(config.schedule.warmup_steps) * scaling_factor(scaling.warmup, growth, scaling.cap);
  if (warmup > kMaxSteps) {
    return fail(ExitCode::kConfig,
                fmt::format("schedule.warmup_steps: {} scaled by scaling.warmup are {:g} steps; the maximum is {:g}: "
                            "lower it, or set scaling.cap",
                            config.schedule.warmup_steps, warmup, kMaxSteps));
  }
  plan.warmup_steps = std::llround(warmup);
  return plan;
}

Result<void> check_gpu_ids(const std::vector<int64_t>& gpu_ids, int local_ranks) {
  if (gpu_ids.empty() || gpu_ids.size() >= static_cast<size_t>(local_ranks)) return {};
  return fail(ExitCode::kConfig,
              fmt::format("gpu_ids: [{}] are {} devices for {} ranks on this node; give each rank its own, or start "
                          "fewer ranks",
                          fmt::join(gpu_ids, ", "), gpu_ids.size(), local_ranks));
}

Result<void> check_group_sizes(const TrainerConfig& config, const GroupSizes& sizes) {
  if (config.device != DeviceKind::kCpu) RETURN_IF_ERROR(check_gpu_ids(config.gpu_ids, sizes.ranks_per_node));
  for (int nodes = sizes.min_nodes; nodes <= sizes.nodes; ++nodes) {
    const Result<BatchPlan> plan = plan_batches(config, nodes * sizes.ranks_per_node);
    if (plan) continue;
    if (sizes.min_nodes == sizes.nodes) return tl::make_unexpected(plan.error());
    return fail(plan.error().code,
                fmt::format("if the elastic job runs with {}: {}", counted(nodes, "node"), plan.error().message));
  }
  return {};
}

TrainerConfig apply_plan(TrainerConfig config, const BatchPlan& plan) {
  config.optimizer.lr *= plan.lr_factor;
  for (ParameterGroupConfig& group : config.optimizer.groups) {
    if (group.lr) *group.lr *= plan.lr_factor;
  }
  config.schedule.warmup_steps = plan.warmup_steps;
  return config;
}

}  // namespace oarlock

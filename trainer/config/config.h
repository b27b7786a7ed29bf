// The trainer's configuration: one struct per section, and the batch sizes and learning rates that follow from it for a
// world size. load.h reads it from YAML or JSON and reports all problems together. This directory does not use
// LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "fields/fields.h"
#include "trainer/config/distributed.h"
#include "trainer/config/evaluation.h"
#include "trainer/config/optimization.h"
#include "trainer/config/tracking.h"

namespace oarlock {

struct PretrainedConfig {
  std::string path;    // a safetensors file; empty: none
  bool strict = true;  // names and shapes must match the model's exactly
};

enum class BatchPer { kDevice, kGlobal };

struct BatchConfig {
  // device: samples of one rank's forward pass. global: samples of the whole optimizer step, over all ranks and
  // accumulation steps; their product must divide it.
  int64_t size = 64;
  BatchPer per = BatchPer::kDevice;
  bool drop_last = false;  // drop the last step of an epoch if it is incomplete
};

struct LoaderConfig {
  std::optional<int64_t> threads;  // of each rank; 0: the training thread creates batches; none: see loader_threads()
  int prefetch = 2;                // batches per thread
  bool pin_memory = true;          // if the device is CUDA
};

// The configured number of threads. Default: the node's CPUs divided by its ranks, at least 1 and at most 8.
int loader_threads(const LoaderConfig& config, int cpus, int local_ranks);

enum class DeviceKind { kAuto, kCpu, kCuda };

struct TrainerConfig {
  std::string task;
  uint64_t seed = 0;
  std::optional<int64_t> epochs;  // exactly one of epochs and steps
  std::optional<int64_t> steps;
  PretrainedConfig pretrained;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ScalingConfig scaling;
  GradientConfig gradient;
  AmpConfig amp;
  EmaConfig ema;
  NonfiniteConfig nonfinite;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  EarlyStoppingConfig early_stopping;
  ReportConfig report;
  TrackingConfig tracking;
  ProfileConfig profile;
  DdpOptions ddp{.gradient_as_bucket_view = true};
  CudaConfig cuda;
  DistributedConfig distributed;
  LoaderConfig loader;
  int64_t log_every_steps = 50;
  DeviceKind device = DeviceKind::kAuto;
  std::vector<int64_t> gpu_ids;  // by local rank; empty: local rank n uses device n
  int threads = 0;               // intra-op threads of LibTorch; 0: the CPUs divided by the ranks of the node
};

struct TaskNames {
  std::vector<std::string> names;
  // Describes the task's own sections, such as "data" and "model", among the fields of the root. `task` is one of the
  // names.
  std::function<void(const std::string& task, Fields& root)> describe_sections;
};

// The whole configuration, including the sections of its task.
void describe(TrainerConfig& config, Fields& fields, const TaskNames& tasks);

// ---- Batch plan --------------------------------------------------------------------------------------------------
// Batch sizes of one optimizer step for a world size, and the learning rate and warm-up that follow from them.

struct BatchPlan {
  int64_t micro_batch = 0;      // samples of one rank's forward pass
  int64_t per_rank = 0;         // samples of one rank's step: micro_batch * accumulation steps
  int64_t effective_batch = 0;  // samples of the step over all ranks
  int64_t smallest_batch = 0;   // samples of the smallest forward pass of an epoch; 0 if the data are unknown
  double lr_factor = 1;         // on every learning rate
  int64_t warmup_steps = 0;     // schedule.warmup_steps, scaled and rounded
};

// Computes the plan of a configuration.
//
// The factors are f = effective_batch / reference (linear; Goyal et al., arXiv 1706.02677) or its square root, at most
// scaling.cap. The reference is scaling.reference_batch, or batch.size * accumulation steps * reference_world.
//
// `samples` is the size of the training data, if known: a step larger than an epoch is planned, and scaled from, with
// the samples that it really has (not with batch.drop_last, where such a step does not exist).
//
// Fails with kConfig if a global batch is not divisible by ranks times accumulation steps, or has no reference to scale
// from, or if a step has more samples, or the scaled warm-up more steps, than a run can have.
Result<BatchPlan> plan_batches(const TrainerConfig& config, int world_size, std::optional<int64_t> samples = {});

// The sizes of a group of ranks: any number of nodes from min_nodes to nodes.
struct GroupSizes {
  int nodes = 1;
  int min_nodes = 1;  // below `nodes` in an elastic job
  int ranks_per_node = 1;
};

// Checks that the configuration has a batch plan for each of the sizes, and a device for each rank of a node. Fails
// with kConfig.
Result<void> check_group_sizes(const TrainerConfig& config, const GroupSizes& sizes);

// Checks that gpu_ids is empty or has a device for each rank of a node. Fails with kConfig.
Result<void> check_gpu_ids(const std::vector<int64_t>& gpu_ids, int local_ranks);

// Returns the configuration with the plan's learning rates and warm-up.
TrainerConfig apply_plan(TrainerConfig config, const BatchPlan& plan);

}  // namespace oarlock

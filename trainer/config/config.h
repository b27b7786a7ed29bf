// The trainer's configuration: one struct per section. load.h reads it from YAML or JSON with every problem at once.
// LibTorch-free.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/amp.h"
#include "trainer/config/batch.h"
#include "trainer/config/checkpoint.h"
#include "trainer/config/cuda.h"
#include "trainer/config/ddp.h"
#include "trainer/config/distributed.h"
#include "trainer/config/early_stopping.h"
#include "trainer/config/ema.h"
#include "trainer/config/eval.h"
#include "trainer/config/gradient.h"
#include "trainer/config/loader.h"
#include "trainer/config/nonfinite.h"
#include "trainer/config/optimizer.h"
#include "trainer/config/pretrained.h"
#include "trainer/config/report.h"
#include "trainer/config/scaling.h"
#include "trainer/config/schedule.h"

namespace oarlock {

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
  DdpConfig ddp;
  CudaConfig cuda;
  DistributedConfig distributed;
  LoaderConfig loader;
  int64_t log_every_steps = 50;
  DeviceKind device = DeviceKind::kAuto;
  std::vector<int64_t> gpu_ids;  // by local rank; empty: local rank n takes device n
  int threads = 0;               // of LibTorch; 0: the cores, shared by the ranks of the node
};

struct TaskNames {
  std::vector<std::string> names;
  // Describes the task's own sections, "data" and "model", among the fields of the root. `task` is one of the names.
  std::function<void(const std::string& task, Fields& root)> describe_sections;
};

// The whole configuration, the sections of its task included.
void describe(TrainerConfig& config, Fields& fields, const TaskNames& tasks);

}  // namespace oarlock

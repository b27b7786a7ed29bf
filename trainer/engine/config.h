// The trainer's configuration: one struct per section, read from YAML or JSON with every problem at once.
// LibTorch-free.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/yaml/reader.h"
#include "trainer/engine/schedule.h"

namespace oarlock {

enum class BatchPer { kDevice, kGlobal };
enum class OptimizerKind { kAdamW, kSgd };
enum class BackendKind { kAuto, kGloo, kNccl };
enum class DeviceKind { kAuto, kCpu, kCuda };

struct BatchConfig {
  int64_t size = 64;
  BatchPer per = BatchPer::kDevice;  // global: divided by the world size, which must divide it
  bool drop_last = false;            // drop an epoch's incomplete last batch
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0.01;               // of sgd: 0
  double momentum = 0;                      // sgd
  bool nesterov = false;                    // sgd
  std::array<double, 2> betas{0.9, 0.999};  // adamw
  double eps = 1e-8;                        // adamw
};

struct CheckpointConfig {
  std::string dir;           // empty: no checkpoints
  int64_t every_steps = 0;   // 0: not by steps
  int64_t every_epochs = 1;  // 0: not by epochs; the end of the run is always saved
  int keep = 3;              // 0: all
};

struct EvalConfig {
  int64_t every_epochs = 1;  // 0: at the end only
  int64_t batch_size = 0;    // samples per step on one rank; 0: batch.size
};

struct DdpConfig {
  double bucket_cap_mb = 25;
  bool gradient_as_bucket_view = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
};

struct DistributedConfig {
  BackendKind backend = BackendKind::kAuto;  // auto: nccl on cuda, gloo on the cpu
  double rendezvous_timeout_seconds = 300;
  double timeout_seconds = 600;  // of one collective
};

struct LoaderConfig {
  int threads = 1;  // 0: batches are made by the training thread
  int prefetch = 2;
};

struct TrainerConfig {
  std::string task;
  uint64_t seed = 0;
  std::optional<int64_t> epochs;  // exactly one of epochs and steps
  std::optional<int64_t> steps;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  DdpConfig ddp;
  DistributedConfig distributed;
  LoaderConfig loader;
  int64_t log_every_steps = 50;
  DeviceKind device = DeviceKind::kAuto;
  int threads = 0;  // of LibTorch; 0: the cores, shared by the ranks of the node
};

// Reads the task's own sections, which are empty maps where the file has none. `task` is one of the names.
using TaskSectionReader = std::function<void(const std::string& task, yaml::MapReader& data, yaml::MapReader& model)>;

struct TaskNames {
  std::vector<std::string> names;
  TaskSectionReader read_sections;
};

// `text` is a bare trainer configuration, or Kubernetes YAML with exactly one TrainingJob, whose spec.trainer is read.
// kConfig with one line per problem: "file:line:column: path: message".
Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks);

// The same from a file; kNoInput and the like when it cannot be read.
Result<TrainerConfig> load_config(const std::string& path, const TaskNames& tasks);

// Samples that one rank takes per step. kConfig when a global batch does not divide by the world size.
Result<int64_t> batch_size_per_rank(const BatchConfig& batch, int world_size);

}  // namespace oarlock

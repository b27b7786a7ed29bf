// The only thing that a workload writes. Rendezvous, sampling, DDP, optimizer, checkpoints, logs and metrics belong to
// the engine.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/config/early_stopping.h"
#include "trainer/config/fields.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/eval_pass.h"

namespace oarlock {

// Where a dataset's files are made ready, before any rank opens them.
enum class PrepareOn {
  kOneRank,         // the folder is shared by all ranks
  kOneRankPerNode,  // each node has a folder of its own
  kEveryRank,
};

// The metric that tells a better model from a worse one.
struct Monitor {
  std::string metric;
  MetricMode mode = MetricMode::kMin;
};

// Where a training step stands in the run.
struct StepContext {
  int64_t step = 0;       // optimizer steps done before this one
  bool recorded = false;  // cuda.graphs may replay this call instead of making it again, so that nothing on the host
                          // may depend on `step`
  std::function<void()> before_parameters_change{};  // to be called by a task that writes to parameters in its step
};

class Task {
 public:
  virtual ~Task() = default;

  virtual PrepareOn prepare_on() const = 0;

  // Makes the files that prepare() will read: downloads, converts, fills caches; nothing where they are there already.
  // Called on the ranks that prepare_on() names; the others wait, and a failure is everybody's. May run again after it
  // was killed at any point. What is skipped or takes long is told to `log`.
  virtual Result<void> prepare_data(const Logger& log) = 0;

  // Opens the data and checks what the config promised. Called once on every rank, before build_model.
  virtual Result<void> prepare() = 0;

  virtual const Dataset& train_data() const = 0;
  virtual const Dataset& eval_data() const = 0;

  // The model with its initial parameters, on the CPU. Parameter names are the checkpoint's names. Uses torch's default
  // generator, which the engine seeds alike on all ranks before the call.
  virtual std::shared_ptr<torch::nn::Module> build_model() = 0;

  // Forward; gives the loss, a scalar, the mean over the batch's samples. The engine does backward. The model is in
  // training mode, the batch on the model's device; buffers may be written to, parameters only after
  // context.before_parameters_change(): a checkpoint may be reading them.
  virtual at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext& context) = 0;

  // Forward without gradients; the model is in evaluation mode.
  virtual EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) = 0;

  // From the totals (with "count") and the rows to what is reported, e.g. {"loss": ..., "accuracy": ...}. Called on
  // rank 0, which tells the others.
  virtual Metrics metrics(const MetricSums& totals, const EvalRows& rows) const = 0;

  // One of the metrics: by it the best checkpoint is chosen, unless the configuration names another.
  virtual Monitor monitor() const = 0;

  // Why a training step cannot be recorded as a CUDA graph (trainer/device/step_graph.h) with this configuration: its
  // shapes change, or it waits for the device. Empty: it can. cuda.graphs is rejected with this reason.
  virtual std::string graph_obstacle() const { return ""; }

  // Passes besides the evaluation; for most tasks there are none. Called once, after build_model; what it refers to
  // lives as long as the task.
  virtual std::vector<EvalPass> passes() = 0;
};

// Makes a task and describes its own sections, "data" and "model", among the root's fields. It is not prepared yet.
using TaskFactory = std::unique_ptr<Task> (*)(Fields& root);

}  // namespace oarlock

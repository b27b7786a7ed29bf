// The interface that a workload implements. The engine does everything else: rendezvous, sampling, DDP, mixed
// precision, the optimizer, checkpoints, logs and metrics.
//
// A task derives from ModelTask<Model>, is made by a factory that describes its configuration, and is listed in the
// table of its program:
//
//   class Kepler final : public ModelTask<torch::nn::LinearImpl> { ... };
//   int main(int argc, char** argv) { return trainer_main(argc, argv, {{"kepler", make_kepler}}); }
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "fields/fields.h"
#include "trainer/config/evaluation.h"
#include "trainer/data/dataset.h"

namespace oarlock {

// ---- Evaluation ------------------------------------------------------------------------------------------------

// Sums over samples by name, e.g. {"loss": 812.5, "correct": 903}. The engine adds "count", the number of samples, and
// sums over batches and ranks in double precision, so that the result does not depend on the world size. A mean over
// the batch in place of a sum is an error, which the first evaluation detects (reject_means()).
using MetricSums = std::map<std::string, double>;
using Metrics = std::map<std::string, double>;

// The mean over the samples of each sum but "count".
inline Metrics mean_of_sums(const MetricSums& totals) {
  Metrics out;
  for (const auto& [name, total] : totals) {
    if (name != "count") out[name] = total / totals.at("count");
  }
  return out;
}

// The result of an evaluation step: sums, per-sample values, or both. The names must be the same for every batch.
struct EvalOutput {
  MetricSums sums;
  std::map<std::string, at::Tensor> rows;  // "prediction" -> [samples of the batch, ...] in the order of the batch's
                                           // ids, with the same shape per sample
};

// The rows of a whole pass, each sample once, in ascending order of ids.
struct EvalRows {
  std::vector<int64_t> ids;
  std::map<std::string, at::Tensor> columns;  // double, on the CPU, [ids, ...]; empty if the task returns no rows
};

// Writes CSV: "id", then the columns by name; a column with several numbers per sample as name_0, name_1, ... Numbers
// are written so that they read back bitwise equal. Fails with kIoErr and similar codes.
Result<void> write_rows_csv(const std::filesystem::path& path, const EvalRows& rows);

// Results of a pass for experiment trackers in addition to its metrics.
struct PassMedia {
  std::map<std::string, std::string> texts;  // Markdown
  std::map<std::string, at::Tensor> images;  // values from 0 to 255, [height, width, 1 (gray) or 3 (RGB)]
};

enum class PassWeights {
  kCurrent,  // those of the evaluation: the averaged weights if ema.evaluate is set
  kBest,     // at the end of the run: those of the best checkpoint, or the current ones if there is none
};

// A pass over data with the model in evaluation mode, distributed over the ranks: the evaluation itself, and additional
// passes of a task, such as a test set, or sequences sampled from a generative model over a dataset of seeds.
struct EvalPass {
  std::string name;                             // in logs
  int64_t every_steps = 0;                      // of training; 0: only at the end of the run
  PassWeights weights = PassWeights::kCurrent;  // kBest: only at the end of the run, whatever every_steps
  int64_t batch_size = 1;                       // samples per step on one rank
  const Dataset* data = nullptr;                // must outlive the pass
  // Runs the forward pass without gradients; the model is in evaluation mode.
  std::function<EvalOutput(torch::nn::Module& model, const Batch& batch)> step;
  // Returns the metrics from the totals (with "count") and the rows, after `steps` training steps. Called on rank 0,
  // which broadcasts the result; may write files. A failure ends the run on all ranks.
  std::function<Result<Metrics>(const MetricSums& totals, const EvalRows& rows, int64_t steps)> finish;
  // Returns texts and images of the pass, whose rows are given. Optional; called on rank 0 after `finish`, only if the
  // run is tracked. The model is in evaluation mode, and gradients are disabled.
  std::function<PassMedia(torch::nn::Module& model, const EvalRows& rows)> show{};
};

// The ranks that call Task::prepare_data().
enum class PrepareOn {
  kOneRank,         // rank 0: the directory is shared by all ranks
  kOneRankPerNode,  // local rank 0 of each node: each node has its own directory
  kEveryRank,
};

// The metric by which models are compared.
struct Monitor {
  std::string metric = "loss";
  MetricMode mode = MetricMode::kMin;
};

// A setting of the engine that a task cannot use.
struct UnusedSetting {
  std::string key;     // "eval.rows_file"
  std::string reason;  // a clause for a message: "its evaluation returns no rows"
};

// The position of a training step in the run.
struct StepContext {
  int64_t step = 0;       // optimizer steps completed before this one
  bool recorded = false;  // cuda.graphs may replay this call instead of repeating it, so nothing on the host may depend
                          // on `step`
  std::function<void()> before_parameters_change{};  // must be called before train_step() writes to parameters
};

// The engine creates one task per process and calls all methods but the dataset's from the training thread, unless
// noted otherwise. Methods that have a default are optional.
class Task {
 public:
  virtual ~Task() = default;

  // Creates the files that prepare() reads: downloads, converts, fills caches. Does nothing if they exist. Called on
  // the ranks that prepare_on() selects while the other ranks wait; a failure ends the run on all ranks. Runs on
  // another thread and may be killed at any point, after which it is called again. Skipped samples and the progress of
  // long work are reported to `log`. Default: there is nothing to create.
  virtual PrepareOn prepare_on() const { return PrepareOn::kOneRankPerNode; }
  virtual Result<void> prepare_data(const Logger& /*log*/) { return {}; }

  // Opens the data and checks them against the configuration. Called once on every rank, on another thread, after
  // prepare_data() and before all methods below.
  virtual Result<void> prepare() = 0;

  // Valid after prepare(), and as long as the task.
  virtual const Dataset& train_data() const = 0;
  virtual const Dataset& eval_data() const = 0;

  // Fingerprints by name of content in addition to that of train_data() and eval_data() which must be equal on all
  // ranks: other sets of samples, a graph, a script (trainer/data/fingerprint.h). Called once, after prepare() and on
  // its thread. Default: none.
  virtual std::map<std::string, std::string> fingerprints() const { return {}; }

  // Returns the model with its initial parameters on the CPU. Its parameter names are the names in checkpoints. Uses
  // torch's default generator, which the engine seeds identically on all ranks before the call.
  virtual std::shared_ptr<torch::nn::Module> build_model() = 0;

  // Runs the forward pass and returns the loss: a scalar, the mean over the samples of the batch. The engine runs the
  // backward pass. `model` is in training mode, and the batch is on the model's device. May write to buffers; may write
  // to parameters only after context.before_parameters_change(), because a checkpoint may be reading them.
  virtual at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext& context) = 0;

  // Runs the forward pass without gradients; `model` is in evaluation mode.
  virtual EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) = 0;

  // Returns the metrics of an evaluation, e.g. {"loss": ..., "accuracy": ...}, from the sums over all samples (with
  // "count") and the rows. Called on rank 0, which broadcasts the result. Default: the mean of each sum over the
  // samples.
  virtual Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const { return mean_of_sums(totals); }

  // Returns the name of every metric that metrics() can return with this configuration, so that a configuration that
  // names another one is rejected. Called before prepare(); names that depend on the data may be included.
  virtual std::vector<std::string> metric_names() const = 0;

  // Returns texts and images after an evaluation, as EvalPass::show does. Default: none.
  virtual PassMedia show(torch::nn::Module& /*model*/, const EvalRows& /*rows*/) { return {}; }

  // The metric that selects the best checkpoint, unless the configuration names another one. Default: the lowest
  // "loss".
  virtual Monitor monitor() const { return {}; }

  // The reason why a training step cannot be recorded as a CUDA graph (trainer/device/step_graph.h) with this
  // configuration: its shapes change, or it waits for the device. The configuration is rejected with this reason if it
  // sets cuda.graphs. Empty, the default: a step can be recorded.
  virtual std::string graph_obstacle() const { return ""; }

  // What a program needs, in addition to the weights, to use the model: how inputs are normalized, the names of
  // classes, the vocabulary, how outputs become labels. A JSON object, which is the value of "inference" in the
  // metadata of model.safetensors. Called after prepare(). Empty, the default: nothing.
  virtual std::string inference_settings() const { return ""; }

  // The settings of the engine that have no effect with this task and configuration. A configuration that sets one of
  // them (to anything but false, 0 or an empty value) is rejected with the reason. Default: none.
  virtual std::vector<UnusedSetting> unused_settings() const { return {}; }

  // Passes over data in addition to the evaluation. Called once, after build_model(). Whatever the passes refer to must
  // live as long as the task. Default: none.
  virtual std::vector<EvalPass> passes() { return {}; }
};

// A task whose model is a `Model`: the typed functions replace the three of Task that take a torch::nn::Module.
template <typename Model>
class ModelTask : public Task {
 public:
  // build_model(), train_step() and eval_step() of Task, with the same contracts.
  virtual std::shared_ptr<Model> create_model() = 0;
  virtual at::Tensor training_loss(Model& model, const Batch& batch, const StepContext& context) = 0;
  virtual EvalOutput evaluate(Model& model, const Batch& batch) = 0;

  std::shared_ptr<torch::nn::Module> build_model() final { return create_model(); }
  at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext& context) final {
    return training_loss(typed(model), batch, context);
  }
  EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) final { return evaluate(typed(model), batch); }

 protected:
  // Returns EvalPass::step for a function EvalOutput(Model&, const Batch&).
  template <typename Step>
  static auto pass_step(Step step) {
    return [step = std::move(step)](torch::nn::Module& model, const Batch& batch) { return step(typed(model), batch); };
  }

 private:
  // Throws std::bad_cast if the model was not created by create_model().
  static Model& typed(torch::nn::Module& model) { return dynamic_cast<Model&>(model); }
};

// Creates a task that is not prepared yet, and describes its own sections, such as "data" and "model", among the fields
// of the root.
using TaskFactory = std::unique_ptr<Task> (*)(Fields& root);

// The tasks of a program by name.
using TaskTable = std::map<std::string, TaskFactory>;

}  // namespace oarlock

// A pass over data with the model in evaluation mode, distributed over the ranks: the evaluation itself, and additional
// passes of a task, such as a test set, or sequences sampled from a generative model over a dataset of seeds.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace oarlock {

// Sums over samples by name, e.g. {"loss": 812.5, "correct": 903}. The engine adds "count", the number of samples, and
// sums over batches and ranks in double precision, so that the result does not depend on the world size.
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

enum class PassWeights {
  kCurrent,  // those of the evaluation: the averaged weights if ema.evaluate is set
  kBest,     // at the end of the run: those of the best checkpoint, or the current ones if there is none
};

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
};

}  // namespace oarlock

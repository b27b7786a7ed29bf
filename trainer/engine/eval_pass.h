// A pass over data with the model in evaluation mode, spread over the ranks: the evaluation itself, and what a task
// wants beside it, such as sequences sampled from a generative model (over a dataset of seeds), or a test set.
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

// Sums over samples by name, e.g. {"loss": 812.5, "correct": 903}; "count" is added by the engine. The engine adds the
// sums of all batches and ranks in double precision, so that evaluation is the same whatever the world size.
using MetricSums = std::map<std::string, double>;
using Metrics = std::map<std::string, double>;

// What an evaluation step gives back: sums, or values of each sample, or both. The names are the same for every batch.
struct EvalOutput {
  MetricSums sums;
  std::map<std::string, at::Tensor> rows;  // "prediction" -> [samples of the batch, ...], as many numbers each; by the
                                           // order of the batch's ids
};

// The rows of a whole pass, each sample once, by ascending id.
struct EvalRows {
  std::vector<int64_t> ids;
  std::map<std::string, at::Tensor> columns;  // double, on the CPU, [ids, ...]; empty where the task gives no rows
};

enum class PassWeights {
  kCurrent,  // what the evaluation sees: the averaged weights where the section "ema" says so
  kBest,     // where the run ends: those of the best checkpoint; the current ones where no checkpoint is the best
};

struct EvalPass {
  std::string name;                             // in logs
  int64_t every_steps = 0;                      // of training; 0: only where the run ends
  PassWeights weights = PassWeights::kCurrent;  // kBest: only where the run ends, whatever every_steps says
  int64_t batch_size = 1;                       // samples of a rank at a time
  const Dataset* data = nullptr;                // outlives the pass
  // Forward without gradients; the model is in evaluation mode.
  std::function<EvalOutput(torch::nn::Module& model, const Batch& batch)> step;
  // From the totals (with "count") and the rows to what is reported, after so many steps of training. Called on rank 0,
  // which tells the others; it may write files. A failure ends the run on all ranks.
  std::function<Result<Metrics>(const MetricSums& totals, const EvalRows& rows, int64_t steps)> finish;
};

}  // namespace oarlock

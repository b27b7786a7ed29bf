// The losses of the heads and their evaluation metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trainer/engine/eval_pass.h"
#include "trainer/tasks/causal_set/config.h"

namespace oarlock::causal_set {

// Returns the loss of each sample, float [n], from outputs [n, width] and targets [n, width] (cross entropy: class
// indices [n, 1]). Several outputs are averaged.
at::Tensor sample_losses(LossKind kind, const at::Tensor& outputs, const at::Tensor& targets);

// add_sums() adds the sums of a batch, whose names start with `name`; add_metrics() computes metrics from their totals:
//   all losses       NAME_loss, NAME_loss_std (over the samples)
//   cross entropy    NAME_accuracy, NAME_f1 (mean over the classes that occur)
//   bce              NAME_accuracy (over samples and outputs)
//   other losses     NAME_mae, NAME_rmse
// With an empty name, only loss and loss_std.
void add_sums(const std::string& name, LossKind kind, const at::Tensor& losses, const at::Tensor& outputs,
              const at::Tensor& targets, MetricSums& sums);
void add_metrics(const std::string& name, LossKind kind, const MetricSums& totals, Metrics& metrics);

}  // namespace oarlock::causal_set

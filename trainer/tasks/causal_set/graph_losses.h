// The losses of the heads, and what is counted while a model is evaluated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "trainer/engine/eval_pass.h"

namespace oarlock {

enum class LossKind {
  kCrossEntropy,  // classes, from logits
  kMse,
  kL1,
  kSmoothL1,  // as torch.nn.SmoothL1Loss, beta 1
  kBce,       // yes or no for each output, from logits
};

// Of each sample: outputs [n, width] and targets [n, width] (cross entropy: [n, 1], class numbers) -> float [n]; a mean
// over the outputs where there are several.
at::Tensor sample_losses(LossKind kind, const at::Tensor& outputs, const at::Tensor& targets);

// Sums under names that begin with `name`: from them metrics_of() makes
//   all losses       NAME_loss, NAME_loss_std (over the samples)
//   cross entropy    NAME_accuracy, NAME_f1 (mean over the classes that occur)
//   bce              NAME_accuracy (of the outputs)
//   mse and kin      NAME_mae, NAME_rmse
void add_sums(const std::string& name, LossKind kind, const at::Tensor& losses, const at::Tensor& outputs,
              const at::Tensor& targets, MetricSums& sums);
void add_metrics(const std::string& name, LossKind kind, const MetricSums& totals, Metrics& metrics);

}  // namespace oarlock

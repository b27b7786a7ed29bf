// GEARS' loss: autofocus (an exponent of 4) and direction, of the genes that a perturbation leaves above zero; with
// uncertainty weighted by the predicted variance. Source: loss_fct() and uncertainty_loss_fct(), gears/utils.py.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/config/fields.h"
#include "trainer/tasks/gears/model/model.h"

namespace oarlock {

// The section "loss".
struct GearsLossConfig {
  double direction_lambda = 0.1;
  double uncertainty_reg = 1;
};

void describe(GearsLossConfig& config, bool uncertainty, Fields& fields);

struct GearsTruth {
  at::Tensor expression;  // [cells, genes]
  at::Tensor condition;   // int64 [cells], in [0, conditions)
};

// Of the data: the mean of the control cells, [genes], and which genes count for each condition, [conditions, genes]: 1
// or 0, at least one 1 per row.
struct GearsReference {
  at::Tensor control;
  at::Tensor counted;
};

// The mean over the batch's distinct conditions of: the mean over their cells and counted genes of
//   (prediction - truth)^4 * (1 + uncertainty_reg * exp(-log variance))      without uncertainty: the first factor
//   + direction_lambda * (sign(truth - control) - sign(prediction - control))^2
// The second line has no gradient.
at::Tensor gears_loss(const GearsLossConfig& config, const GearsOutput& output, const GearsTruth& truth,
                      const GearsReference& reference);

}  // namespace oarlock

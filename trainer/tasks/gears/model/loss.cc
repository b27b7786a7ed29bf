#include "trainer/tasks/gears/model/loss.h"

#include <ATen/ops/bincount.h>

namespace oarlock {

void describe(GearsLossConfig& config, bool uncertainty, Fields& fields) {
  fields.field("direction_lambda", config.direction_lambda, at_least(0), "weight of the direction of change");
  fields.field("uncertainty_reg", config.uncertainty_reg, at_least(0), "weight of the error over the variance");
  fields.only_where("uncertainty_reg", uncertainty, "needs model.uncertainty: true");
}

at::Tensor gears_loss(const GearsLossConfig& config, const GearsOutput& output, const GearsTruth& truth,
                      const GearsReference& reference) {
  const at::Tensor& prediction = output.expression;
  at::Tensor error = (prediction - truth.expression).pow(4);
  if (output.log_variance.defined()) {
    error = error + config.uncertainty_reg * (-output.log_variance).exp() * error;
  }
  const at::Tensor direction =
      ((truth.expression - reference.control).sign() - (prediction - reference.control).sign()).pow(2);
  const at::Tensor counted = reference.counted.index_select(0, truth.condition).to(error.scalar_type());
  const at::Tensor of_cell = ((error + config.direction_lambda * direction) * counted).sum(1) / counted.sum(1);

  const at::Tensor cells = at::bincount(truth.condition, {}, reference.counted.size(0));
  const at::Tensor conditions = cells.gt(0).sum();
  return (of_cell / cells.index_select(0, truth.condition)).sum() / conditions;
}

}  // namespace oarlock

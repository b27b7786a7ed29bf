#include "trainer/tasks/comformer/label_scale.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/std.h>
#include <ATen/ops/where.h>

namespace oarlock {

LabelScale::LabelScale(const at::Tensor& labels) : mean_(labels.mean(0)) {
  deviation_ = labels.size(0) > 1 ? labels.std(0, /*unbiased=*/true) : at::ones_like(mean_);
  deviation_ = at::where(deviation_ > 0, deviation_, at::ones_like(deviation_));
}

void LabelScale::move_to(at::Device device) {
  if (mean_.device() == device) return;
  mean_ = mean_.to(device);
  deviation_ = deviation_.to(device);
}

at::Tensor LabelScale::standardised(const at::Tensor& labels) const { return (labels - mean_) / deviation_; }

at::Tensor LabelScale::restored(const at::Tensor& standardised) const {
  return standardised.to(at::kDouble) * deviation_ + mean_;
}

}  // namespace oarlock

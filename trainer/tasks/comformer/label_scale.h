// Labels as the model learns them: less their mean, over their standard deviation.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

class LabelScale {
 public:
  LabelScale() = default;
  // Of the training labels, double [n, targets]. The deviation is torch.std's, with n - 1; 1 where all labels are
  // equal.
  explicit LabelScale(const at::Tensor& labels);

  // Moves the scale to the device of the labels, once.
  void move_to(at::Device device);

  // Of tensors on the scale's device.
  at::Tensor standardised(const at::Tensor& labels) const;    // [n, targets], double
  at::Tensor restored(const at::Tensor& standardised) const;  // the way back, double
  const at::Tensor& mean() const { return mean_; }            // [targets]
  const at::Tensor& deviation() const { return deviation_; }  // [targets]

 private:
  at::Tensor mean_;
  at::Tensor deviation_;
};

}  // namespace oarlock

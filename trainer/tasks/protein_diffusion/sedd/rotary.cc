#include "trainer/tasks/protein_diffusion/sedd/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>

namespace oarlock {
namespace {

constexpr double kBase = 10'000;

}  // namespace

Rotary::Rotary(int64_t features) {
  const at::Tensor exponents = at::arange(0, features, 2, at::kFloat) / static_cast<double>(features);
  inverse_frequencies_ = register_buffer("inv_freq", at::pow(kBase, exponents).reciprocal());
}

const RotaryAngles& Rotary::angles(int64_t length) {
  const bool known =
      angles_.cos.defined() && angles_.cos.size(0) == length && angles_.cos.device() == inverse_frequencies_.device();
  if (!known) {
    const at::Tensor positions = at::arange(length, inverse_frequencies_.options());
    const at::Tensor angle = at::outer(positions, inverse_frequencies_).view({length, 1, 1, -1});
    angles_ = {at::cos(angle), at::sin(angle)};
  }
  return angles_;
}

at::Tensor rotated(const at::Tensor& features, const RotaryAngles& angles) {
  const at::Tensor cos = angles.cos.to(features.scalar_type());
  const at::Tensor sin = angles.sin.to(features.scalar_type());
  const std::vector<at::Tensor> halves = features.chunk(2, -1);
  return at::cat({at::addcmul(halves[0] * cos, halves[1], sin, -1), at::addcmul(halves[1] * cos, halves[0], sin)}, -1);
}

}  // namespace oarlock

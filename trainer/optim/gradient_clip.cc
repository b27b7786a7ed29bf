#include "trainer/optim/gradient_clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <limits>

namespace oarlock {
namespace {

constexpr double kSmall = 1e-6;  // clip_grad.py's, against a norm of zero

at::Tensor total_norm(const GradientLists& gradients, double order) {
  std::vector<at::Tensor> norms;
  for (const std::vector<at::Tensor>& list : gradients) {
    if (list.empty()) continue;
    for (at::Tensor& norm : at::_foreach_norm(list, order)) {
      norms.push_back(norm.scalar_type() == at::kDouble ? std::move(norm) : norm.to(at::kFloat));
    }
  }
  return norms.empty() ? at::Tensor() : at::linalg_vector_norm(at::stack(norms), order);
}

}  // namespace

at::Tensor clip_gradients(const GradientConfig& config, const GradientLists& gradients) {
  const at::NoGradGuard no_grad;
  if (config.clip_value) {
    for (const std::vector<at::Tensor>& list : gradients) {
      if (list.empty()) continue;
      at::_foreach_clamp_min_(list, -*config.clip_value);
      at::_foreach_clamp_max_(list, *config.clip_value);
    }
  }
  if (!config.clip_norm) return {};
  const double order = config.norm_type == NormType::kL2 ? 2.0 : std::numeric_limits<double>::infinity();
  at::Tensor norm = total_norm(gradients, order);
  if (!norm.defined()) return norm;
  const at::Tensor coefficient = norm.add(kSmall).reciprocal_().mul_(*config.clip_norm).clamp_max_(1.0);
  for (const std::vector<at::Tensor>& list : gradients) {
    if (!list.empty()) at::_foreach_mul_(list, coefficient);
  }
  return norm;
}

}  // namespace oarlock

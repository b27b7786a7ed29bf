#include "ddp/clip_grad.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <utility>

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

GradientLists gradients_of(const std::vector<at::Tensor>& parameters) {
  GradientLists lists;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const auto same = std::find_if(lists.begin(), lists.end(), [&](const std::vector<at::Tensor>& list) {
      return list.front().scalar_type() == gradient.scalar_type() && list.front().device() == gradient.device();
    });
    if (same == lists.end()) {
      lists.push_back({gradient});
    } else {
      same->push_back(gradient);
    }
  }
  return lists;
}

at::Tensor clip_grad_norm_(const GradientLists& gradients, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = total_norm(gradients, norm_type);
  if (!norm.defined()) return norm;
  const at::Tensor coefficient = norm.add(kSmall).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  for (const std::vector<at::Tensor>& list : gradients) {
    if (!list.empty()) at::_foreach_mul_(list, coefficient);
  }
  return norm;
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  return clip_grad_norm_(gradients_of(parameters), max_norm, norm_type);
}

void clip_grad_value_(const GradientLists& gradients, double clip_value) {
  const at::NoGradGuard no_grad;
  for (const std::vector<at::Tensor>& list : gradients) {
    if (list.empty()) continue;
    at::_foreach_clamp_min_(list, -clip_value);
    at::_foreach_clamp_max_(list, clip_value);
  }
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  clip_grad_value_(gradients_of(parameters), clip_value);
}

}  // namespace oarlock

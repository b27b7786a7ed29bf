#include "trainer/engine/nonfinite_steps.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace oarlock {
namespace {

constexpr size_t kLoss = 0;
constexpr size_t kSkipped = 1;
constexpr int64_t kNever = int64_t{1} << 52;  // exact as a double

}  // namespace

NonfiniteSteps::NonfiniteSteps(at::Device device) : device_(device) {
  host_.first = {kNever, kNever};
  if (device_.is_cpu()) return;
  const at::TensorOptions options = at::TensorOptions(device_).dtype(at::kLong);
  steps_ = at::zeros({}, options);
  counts_ = at::zeros({2}, options);
  first_ = at::full({2}, kNever, options);
  in_a_row_ = at::zeros({2}, options);
  never_ = at::full({}, kNever, options);
}

void NonfiniteSteps::count(const at::Tensor& loss, const at::Tensor& skipped) {
  const at::NoGradGuard no_grad;
  if (device_.is_cpu()) {
    count_on_host(!std::isfinite(loss.item<double>()), skipped.defined() && skipped.item<float>() != 0);
    return;
  }
  const at::Tensor bad_loss = loss.detach().isfinite().logical_not();
  const at::Tensor bad = at::stack({bad_loss, skipped.defined() ? skipped.ne(0) : at::zeros_like(bad_loss)});
  steps_.add_(1);
  counts_.add_(bad);
  first_.copy_(at::minimum(first_, at::where(bad, steps_, never_)));
  in_a_row_.add_(1).mul_(bad);
}

void NonfiniteSteps::count_on_host(bool loss, bool skipped) {
  ++host_.steps;
  const std::array<bool, 2> bad = {loss, skipped};
  for (size_t i = 0; i < bad.size(); ++i) {
    host_.in_a_row[i] = bad[i] ? host_.in_a_row[i] + 1 : 0;
    if (!bad[i]) continue;
    ++host_.counts[i];
    host_.first[i] = std::min(host_.first[i], host_.steps);
  }
}

std::vector<at::Tensor> NonfiniteSteps::on_device() const {
  std::vector<at::Tensor> out;
  if (device_.is_cpu()) {
    const auto add = [&](int64_t value) { out.push_back(at::full({}, static_cast<double>(value), at::kDouble)); };
    add(host_.steps);
    for (const auto* pair : {&host_.counts, &host_.first, &host_.in_a_row}) {
      for (const int64_t value : *pair) add(value);
    }
    return out;
  }
  out.push_back(steps_.to(at::kDouble));
  for (const at::Tensor* pair : {&counts_, &first_, &in_a_row_}) {
    for (const at::Tensor& value : pair->to(at::kDouble).unbind()) out.push_back(value);
  }
  return out;
}

NonfiniteSteps::Reading NonfiniteSteps::read(const double* values) {
  const auto steps = static_cast<int64_t>(values[0]);
  const auto count_of = [&](size_t kind) {
    const auto first = static_cast<int64_t>(values[3 + kind]);
    return Count{.steps = static_cast<int64_t>(values[1 + kind]),
                 .in_a_row = static_cast<int64_t>(values[5 + kind]),
                 .first = first == kNever ? std::nullopt : std::optional(steps - first)};
  };
  const Reading out{.loss = count_of(kLoss), .skipped = count_of(kSkipped)};
  skipped_ = out.skipped.steps;
  host_.first = {kNever, kNever};
  if (first_.defined()) first_.fill_(kNever);
  return out;
}

Result<void> NonfiniteSteps::restored(const nlohmann::json& values) {
  before_ = values.value("skipped", int64_t{0});
  return {};
}

}  // namespace oarlock

#include "trainer/engine/nonfinite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace oarlock {
namespace {

constexpr size_t kLoss = 0;
constexpr size_t kSkipped = 1;
constexpr int64_t kNever = int64_t{1} << 52;  // exact as a double

NonfiniteStop stop(const char* reason, std::string message) {
  return {reason, {ExitCode::kDataErr, std::move(message)}};
}

}  // namespace

// ---- NonfiniteSteps ------------------------------------------------------------------------------------------------

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
  before_ = values.value("skipped", int64_t{0}) - skipped_so_far();
  const int64_t in_a_row = values.value("skipped_in_a_row", int64_t{0});
  host_.in_a_row[kSkipped] = in_a_row;
  if (in_a_row_.defined()) in_a_row_.select(0, kSkipped).fill_(in_a_row);
  return {};
}

nlohmann::json NonfiniteSteps::values() const {
  const int64_t in_a_row = device_.is_cpu() ? host_.in_a_row[kSkipped] : in_a_row_.select(0, kSkipped).item<int64_t>();
  return {{"skipped", before_ + skipped_so_far()}, {"skipped_in_a_row", in_a_row}};
}

int64_t NonfiniteSteps::skipped_so_far() const {
  return device_.is_cpu() ? host_.counts[kSkipped] : counts_.select(0, kSkipped).item<int64_t>();
}

// ---- policy --------------------------------------------------------------------------------------------------------

std::optional<NonfiniteStop> check_finite(const NonfiniteConfig& policy, int64_t step, double loss,
                                          const StepReading& reading) {
  if (!std::isfinite(loss) && policy.loss == NonfiniteLoss::kStop) {
    const int64_t first = reading.first_nonfinite_loss.value_or(step);
    const std::string seen = first < step ? fmt::format(", and was not finite at step {} first", first) : "";
    return stop("NonFiniteLoss",
                fmt::format("the training loss is {} at step {}{}; lower optimizer.lr, or look for values in the data "
                            "that are not finite; the newest checkpoint is from before",
                            loss, step, seen));
  }
  if (policy.gradient == NonfiniteGradient::kStop && reading.skipped > 0) {
    return stop("NonFiniteGradient",
                fmt::format("a gradient was not finite in {} of the steps up to {}, which were not taken; lower "
                            "optimizer.lr, set gradient.clip_norm, or set nonfinite.gradient: skip",
                            reading.skipped, step));
  }
  if (reading.skipped_in_a_row >= policy.max_consecutive) {
    return stop("NonFiniteGradient",
                fmt::format("the last {} steps up to {} were skipped, as loss or gradient was not finite "
                            "(nonfinite.max_consecutive is {}); lower optimizer.lr, or look for values in the data "
                            "that are not finite",
                            reading.skipped_in_a_row, step, policy.max_consecutive));
  }
  return std::nullopt;
}

std::optional<NonfiniteStop> check_share(const NonfiniteConfig& policy, int64_t step, int64_t skipped_in_run,
                                         bool ended) {
  if (!ended && step < policy.max_consecutive) return std::nullopt;
  if (static_cast<double>(skipped_in_run) <= policy.max_share * static_cast<double>(step)) return std::nullopt;
  return stop("NonFiniteGradient",
              fmt::format("{} of the {} steps of the run were skipped, as loss or gradient was not finite "
                          "(nonfinite.max_share is {}); lower optimizer.lr, or look for values in the data that are "
                          "not finite",
                          skipped_in_run, step, policy.max_share));
}

}  // namespace oarlock

#include "trainer/tasks/causal_set/losses.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace oarlock::causal_set {

namespace {

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

void add_counts(const std::string& name, const at::Tensor& classes, int64_t count, MetricSums& sums) {
  const at::Tensor counts = at::bincount(classes, {}, count).cpu();
  for (int64_t c = 0; c < count; ++c) sums[fmt::format("{}.{}", name, c)] = counts[c].item<double>();
}

void add_class_sums(const std::string& name, const at::Tensor& outputs, const at::Tensor& targets, MetricSums& sums) {
  const at::Tensor predicted = outputs.argmax(1);
  const at::Tensor wanted = targets.flatten().to(at::kLong);
  const int64_t classes = outputs.size(1);
  add_counts(name + ".predicted", predicted, classes, sums);
  add_counts(name + ".wanted", wanted, classes, sums);
  add_counts(name + ".hit", predicted.masked_select(predicted.eq(wanted)), classes, sums);
}

double value_of(const MetricSums& sums, const std::string& name) {
  const auto found = sums.find(name);
  return found == sums.end() ? 0 : found->second;
}

void add_class_metrics(const std::string& name, const MetricSums& totals, Metrics& metrics) {
  double hits = 0;
  double f1 = 0;
  double occurring = 0;
  for (int c = 0; totals.contains(fmt::format("{}.hit.{}", name, c)); ++c) {
    const double hit = totals.at(fmt::format("{}.hit.{}", name, c));
    const double both =
        totals.at(fmt::format("{}.predicted.{}", name, c)) + totals.at(fmt::format("{}.wanted.{}", name, c));
    hits += hit;
    if (both == 0) continue;
    f1 += 2 * hit / both;
    ++occurring;
  }
  metrics[name + "_accuracy"] = hits / totals.at("count");
  metrics[name + "_f1"] = f1 / std::max(occurring, 1.0);
}

}  // namespace

at::Tensor sample_losses(LossKind kind, const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor values = outputs.to(at::kFloat);
  if (kind == LossKind::kCrossEntropy)
    return at::cross_entropy_loss(values, targets.flatten().to(at::kLong), {}, at::Reduction::None);
  const at::Tensor wanted = targets.to(at::kFloat);
  switch (kind) {
    case LossKind::kL1:
      return at::l1_loss(values, wanted, at::Reduction::None).mean(1);
    case LossKind::kSmoothL1:
      return at::smooth_l1_loss(values, wanted, at::Reduction::None).mean(1);
    case LossKind::kBce:
      return at::binary_cross_entropy_with_logits(values, wanted, {}, {}, at::Reduction::None).mean(1);
    default:
      return at::mse_loss(values, wanted, at::Reduction::None).mean(1);
  }
}

void add_sums(const std::string& name, LossKind kind, const at::Tensor& losses, const at::Tensor& outputs,
              const at::Tensor& targets, MetricSums& sums) {
  const at::Tensor exact = losses.to(at::kDouble);
  sums[name + ".loss"] = total(exact);
  sums[name + ".loss2"] = total(exact.square());
  if (!outputs.defined()) return;
  if (kind == LossKind::kCrossEntropy) return add_class_sums(name, outputs, targets, sums);
  if (kind == LossKind::kBce) {
    sums[name + ".correct"] = total(outputs.gt(0).eq(targets.gt(0.5)).to(at::kDouble).mean(1));
    return;
  }
  const at::Tensor difference = outputs.to(at::kDouble) - targets.to(at::kDouble);
  sums[name + ".absolute"] = total(difference.abs().mean(1));
  sums[name + ".squared"] = total(difference.square().mean(1));
}

void add_metrics(const std::string& name, LossKind kind, const MetricSums& totals, Metrics& metrics) {
  const double count = totals.at("count");
  const double mean = totals.at(name + ".loss") / count;
  const std::string prefix = name.empty() ? "" : name + "_";
  metrics[prefix + "loss"] = mean;
  metrics[prefix + "loss_std"] = std::sqrt(std::max(totals.at(name + ".loss2") / count - mean * mean, 0.0));
  if (name.empty()) return;
  if (kind == LossKind::kCrossEntropy) return add_class_metrics(name, totals, metrics);
  if (kind == LossKind::kBce) {
    metrics[prefix + "accuracy"] = value_of(totals, name + ".correct") / count;
    return;
  }
  metrics[prefix + "mae"] = value_of(totals, name + ".absolute") / count;
  metrics[prefix + "rmse"] = std::sqrt(value_of(totals, name + ".squared") / count);
}

}  // namespace oarlock::causal_set

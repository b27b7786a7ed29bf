#include "trainer/distributed/powersgd_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

namespace oarlock {
namespace {

using Json = nlohmann::json;

std::string factor_name(const std::string& bucket) { return "powersgd.factors." + bucket; }
std::string error_name(const std::string& bucket, int rank) {
  return fmt::format("powersgd.errors.{}.rank-{}", bucket, rank);
}

// What the state depends on.
Json settings_of(const PowerSgdConfig& config) {
  return {{"matrix_approximation_rank", config.matrix_approximation_rank},
          {"start_powerSGD_iter", config.start_iteration},
          {"min_compression_rate", config.min_compression_rate},
          {"use_error_feedback", config.use_error_feedback},
          {"warm_start", config.warm_start},
          {"orthogonalization_epsilon", config.orthogonalization_epsilon},
          {"random_seed", config.random_seed}};
}

bool holds(const std::map<std::string, at::Tensor>& tensors, const std::string& name, int64_t size) {
  const auto found = tensors.find(name);
  return found != tensors.end() && found->second.numel() == size;
}

}  // namespace

PowerSgdState::PowerSgdState(const PowerSgdConfig& wanted)
    : config(wanted), random_(static_cast<uint32_t>(wanted.random_seed)) {}

void PowerSgdState::forget() {
  iteration = 0;
  buckets_changed();
  random_.seed(static_cast<uint32_t>(config.random_seed));
  draws_ = 0;
}

void PowerSgdState::buckets_changed() {
  errors.clear();
  factors.clear();
  errors_before_.clear();
  factors_before_.clear();
}

void PowerSgdState::keep_error(size_t bucket) {
  if (!may_skip_ || errors_before_.contains(bucket)) return;
  const auto error = errors.find(bucket);
  errors_before_[bucket] = error == errors.end() ? at::Tensor() : error->second;
}

void PowerSgdState::keep_factor(size_t bucket) {
  if (!may_skip_ || factors_before_.contains(bucket)) return;
  factors_before_[bucket] = factors.at(bucket).q.clone();
}

void PowerSgdState::settle(const at::Tensor& skipped) {
  const at::NoGradGuard no_grad;
  const bool known = skipped.device().is_cpu();  // then nothing waits, and a step that was taken costs nothing
  if (!known || skipped.item<float>() != 0) {
    const at::Tensor undo = skipped.ne(0);
    for (const auto& [bucket, before] : errors_before_) {
      at::Tensor& error = errors.at(bucket);
      error = at::where(undo, before.defined() ? before : at::zeros_like(error), error);
    }
    for (const auto& [bucket, before] : factors_before_) {
      const auto factor = factors.find(bucket);  // not there without a warm start
      if (factor != factors.end()) factor->second.q.copy_(at::where(undo, before, factor->second.q));
    }
  }
  errors_before_.clear();
  factors_before_.clear();
}

// numpy.random.RandomState.randint(1_000_000_000): masked rejection of 32-bit numbers.
uint64_t PowerSgdState::next_seed() {
  constexpr uint32_t kBelow = 1'000'000'000;
  constexpr uint32_t kMask = (1U << 30) - 1;
  for (;;) {
    ++draws_;
    const auto candidate = static_cast<uint32_t>(random_()) & kMask;
    if (candidate < kBelow) return candidate;
  }
}

Json PowerSgdState::values() const {
  Json out = {{"settings", settings_of(config)},
              {"iteration", iteration},
              {"draws", draws_},
              {"factors", Json::object()},
              {"errors", Json::object()}};
  for (const auto& [bucket, factor] : factors) out["factors"][std::to_string(bucket)] = factor.q.numel();
  for (const auto& [bucket, error] : errors) out["errors"][std::to_string(bucket)] = error.numel();
  return out;
}

std::string PowerSgdState::misfit(const Json& values, const std::map<std::string, at::Tensor>& tensors,
                                  int world_size) const {
  if (values.at("settings") != settings_of(config)) return "ddp.powersgd has been changed";
  bool whole = true;
  for (const auto& [bucket, size] : values.at("factors").items())
    whole = whole && holds(tensors, factor_name(bucket), size.get<int64_t>());
  for (const auto& [bucket, size] : values.at("errors").items()) {
    for (int rank = 0; rank < world_size; ++rank)
      whole = whole && holds(tensors, error_name(bucket, rank), size.get<int64_t>());
  }
  return whole ? "" : "the checkpoint does not have all of its tensors";
}

std::map<std::string, at::Tensor> PowerSgdState::save(const RankGroup& group) const {
  std::map<std::string, at::Tensor> out;
  if (group.rank() == 0) {
    for (const auto& [bucket, factor] : factors)
      out[factor_name(std::to_string(bucket))] = factor.q.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  for (const auto& [bucket, error] : errors) {
    const std::vector<at::Tensor> of_all = group.gather_at_rank_0(error);
    for (size_t rank = 0; rank < of_all.size(); ++rank)
      out[error_name(std::to_string(bucket), static_cast<int>(rank))] = of_all[rank].cpu();
  }
  return out;
}

void PowerSgdState::restore(const Json& values, const std::map<std::string, at::Tensor>& tensors,
                            const RankGroup& group, const std::vector<at::TensorOptions>& like) {
  forget();
  iteration = values.at("iteration").get<int64_t>();
  draws_ = values.at("draws").get<uint64_t>();
  random_.discard(draws_);
  const bool has_them = group.rank() == 0;
  for (const auto& [bucket, size] : values.at("factors").items()) {
    const size_t index = std::stoul(bucket);
    at::Tensor q = at::empty({size.get<int64_t>()}, like.at(index));
    if (has_them) q.copy_(tensors.at(factor_name(bucket)));
    group.broadcast(std::vector<at::Tensor>{q});
    factors[index] = {at::Tensor(), q};
  }
  for (const auto& [bucket, size] : values.at("errors").items()) {
    const size_t index = std::stoul(bucket);
    at::Tensor error = at::empty({size.get<int64_t>()}, like.at(index));
    std::vector<at::Tensor> of_all;
    for (int rank = 0; has_them && rank < group.world_size(); ++rank)
      of_all.push_back(tensors.at(error_name(bucket, rank)).to(error.device()));
    group.scatter_from_rank_0(error, of_all);
    errors[index] = error;
  }
}

}  // namespace oarlock

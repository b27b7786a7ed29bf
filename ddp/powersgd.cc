#include "ddp/powersgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>

namespace oarlock {

// ---- hook ----

namespace {

// _orthogonalize_gram_schmidt of powerSGD_hook.py, in place.
void gram_schmidt(const at::Tensor& matrix, double epsilon) {
  const int64_t columns = matrix.size(1);
  for (int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrix.narrow(1, i, 1);
    column.div_(column.norm(2, 0, true).add_(epsilon));
    if (i + 1 == columns) break;
    at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum(0, true) * column);
  }
}

// Sorts matrices by shape, in the order in which the shapes first occur.
std::vector<at::Tensor> group_by_shape(const std::vector<at::Tensor>& matrices) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const auto same = [&](const at::Tensor& other) { return other.sizes() == matrices[i].sizes(); };
    const auto begin = matrices.begin();
    if (std::any_of(begin, begin + static_cast<std::ptrdiff_t>(i), same)) continue;
    std::copy_if(matrices.begin(), matrices.end(), std::back_inserter(out), same);
  }
  return out;
}

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor out) { at::mm_out(out, a, b); }

void copy_back(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.view(-1).copy_(flat.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
}

}  // namespace

PowerSgdHook::PowerSgdHook(std::shared_ptr<PowerSgdState> state, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : state_(std::move(state)), config_(state_->config), group_(std::move(group)) {}

c10::intrusive_ptr<c10::ivalue::Future> PowerSgdHook::runHook(c10d::GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const bool uncompressed = state_->iteration < config_.start_iteration;
  if (bucket.isLast()) ++state_->iteration;
  if (uncompressed) {
    std::vector<at::Tensor> tensors = {bucket.getBufferRef().div_(group_->getSize())};
    return group_->allreduce(tensors)->getFuture();
  }
  compress(bucket);
  auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  done->markCompleted(bucket.getBuffer());
  return done;
}

at::Tensor PowerSgdHook::parseHookResult(const c10::IValue& result) {
  return result.isTensor() ? result.toTensor() : result.toTensorVector()[0];
}

void PowerSgdHook::compress(c10d::GradBucket& bucket) {
  at::Tensor& buffer = bucket.getBufferRef();
  at::Tensor before;
  if (config_.use_error_feedback) {
    if (const auto error = state_->errors.find(bucket.getIndex()); error != state_->errors.end())
      buffer.add_(error->second);
    before = buffer.clone();
  }
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> others;
  for (const at::Tensor& gradient : bucket.getGradients()) {
    const at::Tensor matrix = gradient.dim() == 0 ? gradient.view({1, 1}) : gradient.view({gradient.size(0), -1});
    (should_compress(matrix) ? matrices : others).push_back(matrix);
  }
  bool fresh = false;
  const std::vector<Matrix> compressed = allocate_factors(matrices, bucket.getIndex(), fresh);
  if (!compressed.empty() && !fresh) state_->backup_factor(bucket.getIndex());
  initialize_q(compressed, fresh);
  if (!compressed.empty() && fresh) state_->backup_factor(bucket.getIndex());

  std::vector<at::Tensor> flat_others;
  flat_others.reserve(others.size());
  for (const at::Tensor& other : others) flat_others.push_back(other.view(-1));
  std::vector<at::Tensor> uncompressed = {flat_others.empty() ? at::empty({0}, buffer.options())
                                                              : at::cat(flat_others)};
  const auto others_reduced = flat_others.empty() ? nullptr : group_->allreduce(uncompressed);
  if (!compressed.empty()) reduce_factors(compressed, state_->factors.at(bucket.getIndex()));
  if (others_reduced) {
    others_reduced->wait();
    copy_back(uncompressed[0].div_(group_->getSize()), others);
  }
  if (config_.use_error_feedback) {
    state_->backup_error(bucket.getIndex());
    state_->errors[bucket.getIndex()] = before.sub_(buffer);
  }
  if (!config_.warm_start) state_->factors.clear();
}

// Reduces P, computes Q from it, reduces Q, and replaces each gradient by the product of its factors.
void PowerSgdHook::reduce_factors(const std::vector<Matrix>& matrices, PowerSgdState::Factors& factors) {
  for (const Matrix& matrix : matrices) multiply(matrix.gradient, matrix.q, matrix.p);
  std::vector<at::Tensor> p = {factors.p};
  group_->allreduce(p)->wait();
  for (const Matrix& matrix : matrices) {
    orthogonalize(matrix.p);
    multiply(matrix.gradient.t(), matrix.p, matrix.q);
  }
  std::vector<at::Tensor> q = {factors.q};
  group_->allreduce(q)->wait();
  factors.q.div_(group_->getSize());
  for (const Matrix& matrix : matrices) multiply(matrix.p, matrix.q.t(), matrix.gradient);
}

int64_t PowerSgdHook::rank_of(const at::Tensor& matrix) const {
  return std::min({matrix.size(0), matrix.size(1), config_.matrix_approximation_rank});
}

bool PowerSgdHook::should_compress(const at::Tensor& matrix) const {
  const int64_t compressed = (matrix.size(0) + matrix.size(1)) * rank_of(matrix);
  return static_cast<double>(compressed) * config_.min_compression_rate < static_cast<double>(matrix.numel());
}

std::vector<PowerSgdHook::Matrix> PowerSgdHook::allocate_factors(const std::vector<at::Tensor>& matrices, size_t bucket,
                                                                 bool& fresh) {
  if (matrices.empty()) return {};
  int64_t p_size = 0;
  int64_t q_size = 0;
  for (const at::Tensor& matrix : matrices) {
    p_size += matrix.size(0) * rank_of(matrix);
    q_size += matrix.size(1) * rank_of(matrix);
  }
  fresh = !config_.warm_start || !state_->factors.contains(bucket);
  const auto options = matrices.front().options();
  PowerSgdState::Factors& factors = state_->factors[bucket];
  if (fresh) factors.q = at::empty({q_size}, options);
  if (!factors.p.defined()) factors.p = at::empty({p_size}, options);
  std::vector<Matrix> out;
  int64_t p_begin = 0;
  int64_t q_begin = 0;
  for (const at::Tensor& matrix : group_by_shape(matrices)) {
    const int64_t rank = rank_of(matrix);
    const int64_t p_count = matrix.size(0) * rank;
    const int64_t q_count = matrix.size(1) * rank;
    out.push_back({matrix, factors.p.narrow(0, p_begin, p_count).view({-1, rank}),
                   factors.q.narrow(0, q_begin, q_count).view({-1, rank})});
    p_begin += p_count;
    q_begin += q_count;
  }
  return out;
}

// Random factors are the same on all ranks and do not use the generators of training.
void PowerSgdHook::initialize_q(const std::vector<Matrix>& matrices, bool fresh) {
  if (matrices.empty()) return;
  if (fresh) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(state_->next_seed());
    for (const Matrix& matrix : matrices) {
      matrix.q.copy_(at::randn(matrix.q.sizes(), generator, matrix.q.options().device(at::kCPU)));
      orthogonalize(matrix.q);
    }
    return;
  }
  for (const Matrix& matrix : matrices) orthogonalize(matrix.q);
}

void PowerSgdHook::orthogonalize(const at::Tensor& matrix) const {
  const bool half = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (matrix.size(1) <= 2 || half) {
    gram_schmidt(matrix, config_.orthogonalization_epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

// ---- state ----

namespace {

using Json = nlohmann::json;

std::string factor_name(const std::string& bucket) { return "powersgd.factors." + bucket; }
std::string error_name(const std::string& bucket, int rank) {
  return fmt::format("powersgd.errors.{}.rank-{}", bucket, rank);
}

// The settings that the state depends on.
Json settings_of(const PowerSgdOptions& config) {
  return {{"matrix_approximation_rank", config.matrix_approximation_rank},
          {"start_powerSGD_iter", config.start_iteration},
          {"min_compression_rate", config.min_compression_rate},
          {"use_error_feedback", config.use_error_feedback},
          {"warm_start", config.warm_start},
          {"orthogonalization_epsilon", config.orthogonalization_epsilon},
          {"random_seed", config.random_seed}};
}

bool has_tensor(const std::map<std::string, at::Tensor>& tensors, const std::string& name, int64_t size) {
  const auto found = tensors.find(name);
  return found != tensors.end() && found->second.numel() == size;
}

}  // namespace

PowerSgdState::PowerSgdState(const PowerSgdOptions& wanted)
    : config(wanted), random_(static_cast<uint32_t>(wanted.random_seed)) {}

void PowerSgdState::reset() {
  iteration = 0;
  discard_buckets();
  random_.seed(static_cast<uint32_t>(config.random_seed));
  draws_ = 0;
}

void PowerSgdState::discard_buckets() {
  errors.clear();
  factors.clear();
  saved_errors_.clear();
  saved_factors_.clear();
}

void PowerSgdState::backup_error(size_t bucket) {
  if (!skipping_enabled_ || saved_errors_.contains(bucket)) return;
  const auto error = errors.find(bucket);
  saved_errors_[bucket] = error == errors.end() ? at::Tensor() : error->second;
}

void PowerSgdState::backup_factor(size_t bucket) {
  if (!skipping_enabled_ || saved_factors_.contains(bucket)) return;
  saved_factors_[bucket] = factors.at(bucket).q.clone();
}

void PowerSgdState::finish_step(const at::Tensor& skipped) {
  const at::NoGradGuard no_grad;
  // On the CPU the value can be read without waiting, and a step that was not skipped costs nothing.
  if (!skipped.device().is_cpu() || skipped.item<float>() != 0) {
    const at::Tensor undo = skipped.ne(0);
    for (const auto& [bucket, before] : saved_errors_) {
      at::Tensor& error = errors.at(bucket);
      error = at::where(undo, before.defined() ? before : at::zeros_like(error), error);
    }
    for (const auto& [bucket, before] : saved_factors_) {
      const auto factor = factors.find(bucket);  // absent without a warm start
      if (factor != factors.end()) factor->second.q.copy_(at::where(undo, before, factor->second.q));
    }
  }
  saved_errors_.clear();
  saved_factors_.clear();
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

std::string PowerSgdState::incompatibility(const Json& values, const std::map<std::string, at::Tensor>& tensors,
                                           int world_size) const {
  if (values.at("settings") != settings_of(config)) return "powersgd has been changed";
  bool complete = true;
  for (const auto& [bucket, size] : values.at("factors").items())
    complete = complete && has_tensor(tensors, factor_name(bucket), size.get<int64_t>());
  for (const auto& [bucket, size] : values.at("errors").items()) {
    for (int rank = 0; rank < world_size; ++rank)
      complete = complete && has_tensor(tensors, error_name(bucket, rank), size.get<int64_t>());
  }
  return complete ? "" : "the checkpoint lacks some of its tensors";
}

std::map<std::string, at::Tensor> PowerSgdState::save(const ProcessGroup& group) const {
  std::map<std::string, at::Tensor> out;
  if (group.rank() == 0) {
    for (const auto& [bucket, factor] : factors)
      out[factor_name(std::to_string(bucket))] = factor.q.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  for (const auto& [bucket, error] : errors) {
    const std::vector<at::Tensor> of_all = group.gather_to_rank_0(error);
    for (size_t rank = 0; rank < of_all.size(); ++rank)
      out[error_name(std::to_string(bucket), static_cast<int>(rank))] = of_all[rank].cpu();
  }
  return out;
}

void PowerSgdState::load(const Json& values, const std::map<std::string, at::Tensor>& tensors,
                         const ProcessGroup& group, const std::vector<at::TensorOptions>& like) {
  reset();
  iteration = values.at("iteration").get<int64_t>();
  draws_ = values.at("draws").get<uint64_t>();
  random_.discard(draws_);
  const bool is_source = group.rank() == 0;
  for (const auto& [bucket, size] : values.at("factors").items()) {
    const size_t index = std::stoul(bucket);
    at::Tensor q = at::empty({size.get<int64_t>()}, like.at(index));
    if (is_source) q.copy_(tensors.at(factor_name(bucket)));
    group.broadcast(std::vector<at::Tensor>{q});
    factors[index] = {at::Tensor(), q};
  }
  for (const auto& [bucket, size] : values.at("errors").items()) {
    const size_t index = std::stoul(bucket);
    at::Tensor error = at::empty({size.get<int64_t>()}, like.at(index));
    std::vector<at::Tensor> of_all;
    for (int rank = 0; is_source && rank < group.world_size(); ++rank)
      of_all.push_back(tensors.at(error_name(bucket, rank)).to(error.device()));
    group.scatter_from_rank_0(error, of_all);
    errors[index] = error;
  }
}

}  // namespace oarlock

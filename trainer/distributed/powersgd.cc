#include "trainer/distributed/powersgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace oarlock {
namespace {

// For up to two columns; as _orthogonalize_gram_schmidt, in place.
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

// Matrices of the same shape one after the other, the shapes in the order in which they come first.
std::vector<at::Tensor> grouped_by_shape(const std::vector<at::Tensor>& matrices) {
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
  const bool plain = state_->iteration < config_.start_iteration;
  if (bucket.isLast()) ++state_->iteration;
  if (plain) {
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
    (worth_compressing(matrix) ? matrices : others).push_back(matrix);
  }
  bool fresh = false;
  const std::vector<Matrix> compressed = lay_out(matrices, bucket.getIndex(), fresh);
  if (!compressed.empty() && !fresh) state_->keep_factor(bucket.getIndex());
  start_from(compressed, fresh);
  if (!compressed.empty() && fresh) state_->keep_factor(bucket.getIndex());
  for (const Matrix& matrix : compressed) multiply(matrix.gradient, matrix.q, matrix.p);

  std::vector<at::Tensor> flat_others;
  flat_others.reserve(others.size());
  for (const at::Tensor& other : others) flat_others.push_back(other.view(-1));
  std::vector<at::Tensor> uncompressed = {flat_others.empty() ? at::empty({0}, buffer.options())
                                                              : at::cat(flat_others)};
  const auto others_reduced = flat_others.empty() ? nullptr : group_->allreduce(uncompressed);
  if (!compressed.empty()) {
    PowerSgdState::Factors& factors = state_->factors.at(bucket.getIndex());
    std::vector<at::Tensor> p = {factors.p};
    group_->allreduce(p)->wait();
    for (const Matrix& matrix : compressed) {
      orthogonalize(matrix.p);
      multiply(matrix.gradient.t(), matrix.p, matrix.q);
    }
    std::vector<at::Tensor> q = {factors.q};
    group_->allreduce(q)->wait();
    factors.q.div_(group_->getSize());
    for (const Matrix& matrix : compressed) multiply(matrix.p, matrix.q.t(), matrix.gradient);
  }
  if (others_reduced) {
    others_reduced->wait();
    copy_back(uncompressed[0].div_(group_->getSize()), others);
  }
  if (config_.use_error_feedback) {
    state_->keep_error(bucket.getIndex());
    state_->errors[bucket.getIndex()] = before.sub_(buffer);
  }
  if (!config_.warm_start) state_->factors.clear();
}

int64_t PowerSgdHook::rank_of(const at::Tensor& matrix) const {
  return std::min({matrix.size(0), matrix.size(1), config_.matrix_approximation_rank});
}

bool PowerSgdHook::worth_compressing(const at::Tensor& matrix) const {
  const int64_t compressed = (matrix.size(0) + matrix.size(1)) * rank_of(matrix);
  return static_cast<double>(compressed) * config_.min_compression_rate < static_cast<double>(matrix.numel());
}

std::vector<PowerSgdHook::Matrix> PowerSgdHook::lay_out(const std::vector<at::Tensor>& matrices, size_t bucket,
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
  for (const at::Tensor& matrix : grouped_by_shape(matrices)) {
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

// Random factors are the same on all ranks, without touching the generators of training.
void PowerSgdHook::start_from(const std::vector<Matrix>& matrices, bool fresh) {
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

}  // namespace oarlock

#include "trainer/engine/flop_counter.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

namespace oarlock {
namespace {

// LibTorch's callbacks are plain functions, so the count is not a member.
thread_local int64_t counted = 0;

std::vector<at::Tensor> tensors_of(at::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) out.push_back(value.toTensor());
  }
  return out;
}

// The last two dimensions are multiplied, the others are a batch: [..., n, k] x [..., k, m].
int64_t matmul_flops(const at::Tensor& left, const at::Tensor& right) {
  return left.dim() < 2 || right.dim() < 2 ? 0 : 2 * left.numel() * right.size(-1);
}

// query [..., L, E] with key [..., S, E], then with value [..., S, Ev].
int64_t attention_flops(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return 2 * (query.numel() / query.size(-1)) * key.size(-2) * (key.size(-1) + value.size(-1));
}

// Counts the primitive operations, not those that are composed of them.
int64_t flops_of(std::string_view name, const std::vector<at::Tensor>& inputs) {
  const size_t n = inputs.size();
  if ((name == "aten::mm" || name == "aten::bmm") && n >= 2) return matmul_flops(inputs[0], inputs[1]);
  if ((name == "aten::addmm" || name == "aten::baddbmm") && n >= 3) return matmul_flops(inputs[1], inputs[2]);
  const bool fused = name.starts_with("aten::_scaled_dot_product_") && !name.ends_with("_math");
  if (fused && n >= 3) return attention_flops(inputs[0], inputs[1], inputs[2]);
  return 0;
}

// A convolution, whose output is known only at its end: each output element is a sum over a filter.
struct Convolution final : at::ObserverContext {
  explicit Convolution(const at::Tensor& weight) : filter_flops(2 * weight.numel() / weight.size(0)) {}
  int64_t filter_flops;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const std::vector<at::Tensor> inputs = tensors_of(function.inputs());
  counted += flops_of(name, inputs);
  if (name != "aten::convolution" || inputs.size() < 2) return nullptr;
  return std::make_unique<Convolution>(inputs[1]);
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* convolution = dynamic_cast<Convolution*>(context);
  if (convolution == nullptr) return;
  for (const at::Tensor& output : tensors_of(function.outputs())) counted += convolution->filter_flops * output.numel();
}

}  // namespace

FlopCounter::FlopCounter() {
  counted = 0;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() { at::removeCallback(handle_); }

int64_t FlopCounter::flops() const { return counted; }

}  // namespace oarlock

#include "trainer/engine/profiler.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/files.h"
#include "common/host_name.h"

namespace oarlock {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities_on(c10::Device device) {
  std::set<ActivityType> out = {ActivityType::CPU};
  if (device.is_cuda()) out.insert(ActivityType::CUDA);
  return out;
}

}  // namespace

StepProfiler::StepProfiler(const ProfileConfig& config, std::filesystem::path directory, int rank, int attempt,
                           c10::Device device, const Logger& logger)
    : config_(config),
      directory_(std::move(directory)),
      rank_(rank),
      attempt_(attempt),
      device_(device),
      logger_(logger) {
  if (rank_ != 0 && !config_.all_ranks) config_.steps = 0;
}

void StepProfiler::before_step(int64_t step) {
  if (config_.steps == 0) return;
  if (steps_done_ == config_.first_step) start(step);
  if (traced_from_ < 0) return;
  scope_name_ = fmt::format("ProfilerStep#{}", step);  // TensorBoard's plugin needs this name
  scope_.emplace(at::RecordScope::USER_SCOPE);
  if (scope_->isActive()) scope_->before(std::string_view(scope_name_));
}

void StepProfiler::after_step() {
  if (config_.steps == 0) return;
  scope_.reset();
  steps_done_ += 1;
  if (traced_from_ >= 0 && steps_done_ == config_.first_step + config_.steps) save();
}

void StepProfiler::finish() {
  if (traced_from_ >= 0) save();
}

void StepProfiler::start(int64_t step) {
  try {
    const ProfilerConfig config(ProfilerState::KINETO, config_.shapes, config_.memory);
    profiler::prepareProfiler(config, activities_on(device_));
    profiler::enableProfiler(config, activities_on(device_));
    traced_from_ = step;
  } catch (const std::exception& error) {
    logger_.warn("profile: the profiler could not be started", {{"reason", error.what()}});
  }
}

void StepProfiler::save() {
  const std::filesystem::path directory = directory_ / fmt::format("attempt-{}-step-{}", attempt_, traced_from_);
  traced_from_ = -1;
  try {
    const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
    const Result<void> made = make_writable_directory(directory);
    if (!made) {
      logger_.warn("profile: the trace was not written", {{"reason", made.error().message}});
      return;
    }
    const std::string path = directory / fmt::format("{}-rank-{}.pt.trace.json", host_name(), rank_);
    result->save(path);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      logger_.warn("profile: the trace was not written", {{"path", path}});
      return;
    }
    logger_.info("profile: a trace was written", {{"path", path}, {"steps", config_.steps}});
  } catch (const std::exception& error) {
    logger_.warn("profile: the trace was not written", {{"reason", error.what()}});
  }
}

// ---- Floating-point operations -----------------------------------------------------------------------------------

namespace {

// LibTorch's callbacks are plain functions, so the count is not a member.
thread_local int64_t counted_flops = 0;

std::vector<at::Tensor> tensor_values(at::ArrayRef<c10::IValue> values) {
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
  const std::vector<at::Tensor> inputs = tensor_values(function.inputs());
  counted_flops += flops_of(name, inputs);
  if (name != "aten::convolution" || inputs.size() < 2) return nullptr;
  return std::make_unique<Convolution>(inputs[1]);
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* convolution = dynamic_cast<Convolution*>(context);
  if (convolution == nullptr) return;
  for (const at::Tensor& output : tensor_values(function.outputs()))
    counted_flops += convolution->filter_flops * output.numel();
}

}  // namespace

FlopCounter::FlopCounter() {
  counted_flops = 0;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() { at::removeCallback(handle_); }

int64_t FlopCounter::flops() const { return counted_flops; }

}  // namespace oarlock

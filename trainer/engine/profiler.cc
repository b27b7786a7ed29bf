#include "trainer/engine/profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>
#include <system_error>

#include "common/files.h"
#include "trainer/distributed/socket.h"

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

StepProfiler::StepProfiler(const ProfileConfig& config, std::filesystem::path folder, int rank, int attempt,
                           c10::Device device, const Logger& logger)
    : config_(config), folder_(std::move(folder)), rank_(rank), attempt_(attempt), device_(device), logger_(logger) {
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
  const std::filesystem::path folder = folder_ / fmt::format("attempt-{}-step-{}", attempt_, traced_from_);
  traced_from_ = -1;
  try {
    const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
    const Result<void> made = make_writable_folder(folder);
    if (!made) {
      logger_.warn("profile: the trace was not written", {{"reason", made.error().message}});
      return;
    }
    const std::string path = folder / fmt::format("{}-rank-{}.pt.trace.json", host_name(), rank_);
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

}  // namespace oarlock

#include "trainer/checkpoint/async_store.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/work_progress.h"

namespace oarlock {

namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& live) {
  return buffer.defined() && buffer.sizes() == live.sizes() && buffer.scalar_type() == live.scalar_type();
}

at::Tensor make_buffer(const at::Tensor& live) {
  const auto options = at::TensorOptions().dtype(live.scalar_type()).pinned_memory(!live.device().is_cpu());
  return at::empty(live.sizes(), options).zero_();
}

}  // namespace

void HostCopy::reserve(const TensorSections& live) {
  for (auto section = buffers_.begin(); section != buffers_.end();) {
    section = live.contains(section->first) ? std::next(section) : buffers_.erase(section);
  }
  for (const auto& [section, tensors] : live) {
    TensorMap& buffers = buffers_[section];
    std::erase_if(buffers, [&wanted = tensors](const auto& item) { return !wanted.contains(item.first); });
    for (const auto& [name, tensor] : tensors) {
      at::Tensor& buffer = buffers[name];
      if (!fits(buffer, tensor)) buffer = make_buffer(tensor);
    }
  }
}

void HostCopy::begin(const TensorSections& live, const std::set<std::string>& immediate) {
  reserve(live);
  std::optional<at::Device> device;
  for (const auto& [section, tensors] : live) {
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor& buffer = buffers_[section][name];
      const bool is_on_cpu = tensor.device().is_cpu();
      if (!is_on_cpu) device = tensor.device();
      if (immediate.contains(name)) {
        buffer.copy_(tensor.detach(), /*non_blocking=*/true);
      } else {
        (is_on_cpu ? on_cpu_ : on_device_).emplace_back(buffer, tensor.detach());
      }
    }
  }
  copied_.reset();
  is_device_ordered_ = !device;
  if (device) copy_on_side_stream(*device);
  const std::lock_guard lock(mutex_);
  released_ = on_cpu_.empty();
}

// The side stream waits for the current stream, so copied_ is also recorded after the copies on the current stream.
void HostCopy::copy_on_side_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl backend(device.type());
  if (!side_stream_ || side_stream_->device() != device)
    side_stream_ = backend.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  c10::Event written(device.type());
  written.record(backend.getStream(device));
  written.block(*side_stream_);
  const c10::StreamGuard guard(*side_stream_);
  for (const auto& [buffer, tensor] : on_device_) buffer.copy_(tensor, /*non_blocking=*/true);
  copied_.emplace(device.type());
  copied_->record(*side_stream_);
}

void HostCopy::finish() {
  // Releases even if a copy throws, so that the trainer does not wait forever.
  const auto release_at_end = c10::make_scope_exit([this] { release(); });
  for (const auto& [buffer, tensor] : on_cpu_) buffer.copy_(tensor);
  release();
  if (!copied_) return;
  copied_->synchronize();
  on_device_.clear();
}

void HostCopy::release() {
  on_cpu_.clear();
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
  }
  changed_.notify_all();
}

bool HostCopy::released() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

void HostCopy::wait_for_release() {
  if (!std::exchange(is_device_ordered_, true)) {
    const at::Device device = side_stream_->device();
    copied_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return released_; });
}

AsyncCheckpointStore::AsyncCheckpointStore(std::shared_ptr<CheckpointStore> store, const Clock& clock)
    : store_(std::move(store)), clock_(clock), thread_([this](const std::stop_token& stop) { run_jobs(stop); }) {}

AsyncCheckpointStore::~AsyncCheckpointStore() = default;

void AsyncCheckpointStore::start(Checkpoint checkpoint, std::optional<int64_t> best_step, std::function<void()> ready) {
  if (std::exchange(busy_, true)) throw std::logic_error("a checkpoint is already being saved");
  {
    const std::lock_guard lock(mutex_);
    job_ = Job{std::move(checkpoint), best_step, std::move(ready)};
  }
  job_added_.notify_one();
}

std::optional<FinishedSave> AsyncCheckpointStore::poll() { return wait(std::chrono::milliseconds(0)); }

std::optional<FinishedSave> AsyncCheckpointStore::wait() {
  if (!busy_) return std::nullopt;
  std::unique_lock lock(mutex_);
  job_done_.wait(lock, [&] { return finished_.has_value(); });
  busy_ = false;
  return std::exchange(finished_, std::nullopt);
}

std::optional<FinishedSave> AsyncCheckpointStore::wait(std::chrono::milliseconds timeout) {
  if (!busy_) return std::nullopt;
  std::unique_lock lock(mutex_);
  if (!job_done_.wait_for(lock, timeout, [&] { return finished_.has_value(); })) return std::nullopt;
  busy_ = false;
  return std::exchange(finished_, std::nullopt);
}

void AsyncCheckpointStore::run_jobs(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // Completes a job that was added before the stop request.
  while (job_added_.wait(lock, stop, [&] { return job_.has_value(); })) {
    Job job = *std::exchange(job_, std::nullopt);
    lock.unlock();
    FinishedSave finished = run(std::move(job));
    lock.lock();
    finished_ = std::move(finished);
    job_done_.notify_all();
  }
}

FinishedSave AsyncCheckpointStore::run(Job job) {
  const SteadyTime begin = clock_.steady();
  FinishedSave out{.state = job.checkpoint.state, .result = SavedCheckpoint{}, .seconds = 0};
  report_work(LongWork::kSave, 0, 0);  // nothing of this save is written
  try {
    if (job.ready) job.ready();
    out.result = store_->save(std::move(job.checkpoint), job.best_step);
  } catch (const std::exception& error) {  // for example out of memory; a thread must not throw
    out.result = fail(ExitCode::kOsErr, fmt::format("the checkpoint could not be written: {}", error.what()));
  }
  out.seconds = std::chrono::duration<double>(clock_.steady() - begin).count();
  return out;
}

// ---- high-water mark -----------------------------------------------------------------------------------------------

struct AsyncHighWater::State {
  void run(const std::filesystem::path& root);

  std::mutex mutex;  // protects the following
  std::condition_variable changed;
  int64_t wanted = 0;
  int64_t written = 0;
  bool is_ending = false;
};

AsyncHighWater::AsyncHighWater(const std::filesystem::path& root) : state_(std::make_shared<State>()) {
  std::thread([state = state_, root] { state->run(root); }).detach();
}

AsyncHighWater::~AsyncHighWater() {
  flush(std::chrono::seconds(1));
  const std::lock_guard lock(state_->mutex);
  state_->is_ending = true;
  state_->changed.notify_all();
}

void AsyncHighWater::raise(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  if (step <= state_->wanted) return;
  state_->wanted = step;
  state_->changed.notify_all();
}

bool AsyncHighWater::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [this] { return state_->written == state_->wanted; });
}

void AsyncHighWater::State::run(const std::filesystem::path& root) {
  HighWater file(root);
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return is_ending || written < wanted; });
    if (is_ending) return;
    const int64_t step = wanted;
    lock.unlock();
    file.raise(step);
    lock.lock();
    written = step;
    changed.notify_all();
  }
}

}  // namespace oarlock

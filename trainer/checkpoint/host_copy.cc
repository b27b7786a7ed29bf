#include "trainer/checkpoint/host_copy.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include <utility>

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

void HostCopy::begin(const TensorSections& live, const std::set<std::string>& at_once) {
  reserve(live);
  std::optional<at::Device> device;
  for (const auto& [section, tensors] : live) {
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor& buffer = buffers_[section][name];
      const bool on_cpu = tensor.device().is_cpu();
      if (!on_cpu) device = tensor.device();
      if (at_once.contains(name)) {
        buffer.copy_(tensor.detach(), /*non_blocking=*/true);
      } else {
        (on_cpu ? rest_ : on_device_).emplace_back(buffer, tensor.detach());
      }
    }
  }
  copied_.reset();
  is_device_ordered_ = !device;
  if (device) copy_on_side_stream(*device);
  const std::lock_guard lock(mutex_);
  released_ = rest_.empty();
}

// The side stream starts where the current stream is, so copied_ also follows the copies on the current stream.
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
  // Also when a copy throws: the trainer must not wait for it for ever.
  const auto release_at_end = c10::make_scope_exit([this] { release(); });
  for (const auto& [buffer, tensor] : rest_) buffer.copy_(tensor);
  release();
  if (!copied_) return;
  copied_->synchronize();
  on_device_.clear();
}

void HostCopy::release() {
  rest_.clear();
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

}  // namespace oarlock

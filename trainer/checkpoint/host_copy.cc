#include "trainer/checkpoint/host_copy.h"

#include <ATen/ops/empty.h>
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
      if (on_cpu && !at_once.contains(name)) {
        rest_.emplace_back(buffer, tensor.detach());
        continue;
      }
      buffer.copy_(tensor.detach(), /*non_blocking=*/true);
      if (!on_cpu) device = tensor.device();
    }
  }
  copied_.reset();
  if (device) {
    copied_.emplace(device->type());
    copied_->record(c10::impl::VirtualGuardImpl(device->type()).getStream(*device));
  }
  const std::lock_guard lock(mutex_);
  released_ = rest_.empty();
}

void HostCopy::finish() {
  // Also when a copy throws: the trainer must not wait for it for ever.
  const auto release_at_end = c10::make_scope_exit([this] { release(); });
  for (const auto& [buffer, tensor] : rest_) buffer.copy_(tensor);
  release();
  if (copied_) std::exchange(copied_, std::nullopt)->synchronize();
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
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return released_; });
}

}  // namespace oarlock

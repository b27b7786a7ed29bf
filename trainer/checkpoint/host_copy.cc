#include "trainer/checkpoint/host_copy.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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
    std::erase_if(buffers, [&tensors = tensors](const auto& item) { return !tensors.contains(item.first); });
    for (const auto& [name, tensor] : tensors) {
      at::Tensor& buffer = buffers[name];
      if (!fits(buffer, tensor)) buffer = make_buffer(tensor);
    }
  }
}

void HostCopy::take(const TensorSections& live) {
  reserve(live);
  std::optional<at::Device> device;
  for (const auto& [section, tensors] : live) {
    for (const auto& [name, tensor] : tensors) {
      buffers_[section][name].copy_(tensor.detach(), /*non_blocking=*/true);
      if (!tensor.device().is_cpu()) device = tensor.device();
    }
  }
  copied_.reset();
  if (!device) return;
  copied_.emplace(device->type());
  copied_->record(c10::impl::VirtualGuardImpl(device->type()).getStream(*device));
}

void HostCopy::wait() {
  if (copied_) std::exchange(copied_, std::nullopt)->synchronize();
}

}  // namespace oarlock

#include "ddp/buffer_rollback.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/where.h>

namespace oarlock {

void BufferRollback::begin() {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  if (copies_.empty()) {
    for (const at::Tensor& buffer : buffers_) copies_.push_back(buffer.clone());
  } else {
    at::_foreach_copy_(copies_, buffers_);
  }
}

void BufferRollback::end(const at::Tensor& skipped) {
  if (copies_.empty()) return;
  const at::NoGradGuard no_grad;
  if (skipped.device().is_cpu()) {
    if (skipped.item<float>() != 0) at::_foreach_copy_(buffers_, copies_);
    return;
  }
  const at::Tensor undo = skipped.ne(0);
  for (size_t i = 0; i < buffers_.size(); ++i) at::where_out(buffers_[i], undo, copies_[i], buffers_[i]);
}

void BufferRollback::restore() {
  if (copies_.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(buffers_, copies_);
}

}  // namespace oarlock

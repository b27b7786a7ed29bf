// A copy of the run's tensors in host memory, taken between two steps.
#pragma once

#include <c10/core/Event.h>

#include <map>
#include <optional>
#include <string>

#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

using TensorSections = std::map<std::string, TensorMap>;

// The memory is kept from one copy to the next, and its pages are touched when it is made: a copy then runs at the
// speed of the memory. Pinned where tensors are on a CUDA device.
class HostCopy {
 public:
  // Makes room for such tensors where there is none yet.
  void reserve(const TensorSections& live);

  // Copies. CPU tensors are copied at the return; those of a device when wait() returns, but in the order of the
  // device's current stream: later work on that stream does not disturb them.
  void take(const TensorSections& live);
  void wait();

  // Of the last take(); shared, not copied.
  const TensorSections& tensors() const { return buffers_; }

 private:
  TensorSections buffers_;
  std::optional<c10::Event> copied_;
};

}  // namespace oarlock

// A copy of the run's tensors in host memory, taken between two steps.
#pragma once

#include <c10/core/Event.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

using TensorSections = std::map<std::string, TensorMap>;

// The memory is kept from one copy to the next, and its pages are touched when it is made: a copy then runs at the
// speed of the memory. Pinned where tensors are on a CUDA device.
class HostCopy {
 public:
  // Makes room for such tensors where there is none yet.
  void reserve(const TensorSections& live);

  // Begins a copy of tensors that stay as they are until released(), but for those whose names are in `at_once`: these
  // are copied at the return. What is on a device is copied in the order of its current stream, so that later work on
  // that stream does not disturb it. finish() of the copy before must be over.
  void begin(const TensorSections& live, const std::set<std::string>& at_once);

  // Copies the rest; on any thread, once after each begin().
  void finish();

  // Whether the live tensors may be written to again, and the waiting for it.
  bool released() const;
  void wait_for_release();

  // Of the last begin(), whole after its finish(); shared, not copied.
  const TensorSections& tensors() const { return buffers_; }

 private:
  void release();

  TensorSections buffers_;
  std::vector<std::pair<at::Tensor, at::Tensor>> rest_;  // buffer, live tensor
  std::optional<c10::Event> copied_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = true;
};

}  // namespace oarlock

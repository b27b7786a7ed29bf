// A copy of the run's tensors in host memory, taken between two steps.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

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

  // Begins a copy of tensors that nothing writes to until wait_for_release() has returned. The exception are the
  // tensors whose names are in `at_once`: on the CPU they have been copied when this function returns; on a device they
  // are copied on the current stream, and later work on that stream does not disturb the copy. All other tensors on a
  // device are copied on a side stream, next to the work that the caller enqueues. finish() of the copy before must
  // have returned.
  void begin(const TensorSections& live, const std::set<std::string>& at_once);

  // Copies the tensors on the CPU and waits for the copies from the device; on any thread, once after each begin().
  void finish();

  // Whether the tensors on the CPU may be written to again.
  bool released() const;
  // Blocks until released(), and makes the current stream of the device wait for the side stream; the host does not
  // wait for the device. Called by the thread that called begin(), and not while a CUDA graph is captured.
  void wait_for_release();

  // Of the last begin(), whole after its finish(); shared, not copied.
  const TensorSections& tensors() const { return buffers_; }

 private:
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // buffer, live tensor

  void copy_on_side_stream(at::Device device);
  void release();

  TensorSections buffers_;
  Copies rest_;       // on the CPU
  Copies on_device_;  // held until the side stream has read them
  std::optional<c10::Stream> side_stream_;
  std::optional<c10::Event> copied_;  // after all copies from the device; replaced by begin() only
  bool is_device_ordered_ = true;     // the current stream waits for copied_; of the thread that calls begin()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = true;
};

}  // namespace oarlock

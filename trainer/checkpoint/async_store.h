// Saving in the background: a copy of the tensors in host memory, and a thread that writes it.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "ddp/safetensors.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {

using TensorSections = std::map<std::string, TensorMap>;

// A copy of the tensors of the run in host memory, taken between two steps. The memory is reused for every copy, and
// its pages are touched when it is allocated, so that a copy runs at memory speed. It is pinned for tensors on a CUDA
// device.
class HostCopy {
 public:
  // Allocates memory for these tensors, unless it is allocated already.
  void reserve(const TensorSections& live);

  // Starts a copy. The caller must not write to the tensors until wait_for_release() returns, except for the tensors
  // whose names are in `immediate`: those on the CPU are copied before begin() returns, and those on a device are
  // copied on the current stream, so that later work on that stream does not affect the copy. All other device tensors
  // are copied on a side stream, concurrently with later work of the caller. finish() of the previous copy must have
  // returned.
  void begin(const TensorSections& live, const std::set<std::string>& immediate);

  // Copies the remaining CPU tensors and waits for the device copies. Must be called once after each begin(), from any
  // thread.
  void finish();

  // Returns whether the CPU tensors may be written to again.
  bool released() const;

  // Waits until released() is true, and makes the current stream of the device wait for the side stream; the host does
  // not wait for the device. Must be called by the thread that called begin(), and not during CUDA graph capture.
  void wait_for_release();

  // Returns the tensors of the last begin(), which are complete after its finish(). They share the memory of this
  // object.
  const TensorSections& tensors() const { return buffers_; }

 private:
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // buffer, live tensor

  void copy_on_side_stream(at::Device device);
  void release();

  TensorSections buffers_;
  Copies on_cpu_;     // copied by finish()
  Copies on_device_;  // kept alive until the side stream has read them
  std::optional<c10::Stream> side_stream_;
  std::optional<c10::Event> copied_;  // recorded after all device copies; replaced only by begin()
  bool is_device_ordered_ = true;     // the current stream waits for copied_; used by the thread that calls begin()
  mutable std::mutex mutex_;          // protects released_
  std::condition_variable changed_;
  bool released_ = true;
};

struct FinishedSave {
  CheckpointState state;
  Result<SavedCheckpoint> result;
  double seconds = 0;
};

// Runs CheckpointStore::save() on a background thread, so that training continues during disk I/O. At most one save is
// in flight. All methods must be called by the same thread.
class AsyncCheckpointStore {
 public:
  // `clock` must outlive the object.
  AsyncCheckpointStore(std::shared_ptr<CheckpointStore> store, const Clock& clock);

  // Waits for the save in flight.
  ~AsyncCheckpointStore();

  AsyncCheckpointStore(const AsyncCheckpointStore&) = delete;
  AsyncCheckpointStore& operator=(const AsyncCheckpointStore&) = delete;

  // Starts a save and returns immediately. The background thread calls `ready` first, which may wait for copies from a
  // device. Throws std::logic_error if is_busy(). The tensors must not change until poll() or wait() has returned the
  // result.
  void start(Checkpoint checkpoint, std::optional<int64_t> best_step, std::function<void()> ready = {});

  // As CheckpointStore::set_group().
  void set_group(int64_t generation, const std::string& group) { store_->set_group(generation, group); }

  // While a save is in flight, only claim() may be called. Shared, because a thread that uses it may be abandoned.
  std::shared_ptr<const CheckpointStore> store() const { return store_; }

  // Returns whether a save is in flight, or its result was not returned yet.
  bool is_busy() const { return busy_; }

  // Returns the result of a finished save, or nothing.
  std::optional<FinishedSave> poll();

  // Waits for the save in flight, at most `timeout`, and returns its result. Returns nothing if there is no save, or it
  // did not finish in time.
  std::optional<FinishedSave> wait();
  std::optional<FinishedSave> wait(std::chrono::milliseconds timeout);

 private:
  struct Job {
    Checkpoint checkpoint;
    std::optional<int64_t> best_step;
    std::function<void()> ready;
  };

  void run_jobs(const std::stop_token& stop);
  FinishedSave run(Job job);

  std::shared_ptr<CheckpointStore> store_;
  const Clock& clock_;
  bool busy_ = false;
  std::mutex mutex_;  // protects job_ and finished_
  std::optional<Job> job_;
  std::optional<FinishedSave> finished_;
  std::condition_variable_any job_added_;
  std::condition_variable job_done_;
  std::jthread thread_;  // last member: joined before the others are destroyed
};

// Writes the high-water mark (see HighWater) on a background thread, because a file server may not respond. A thread
// that is blocked is abandoned. Not thread-safe.
class AsyncHighWater {
 public:
  // Returns immediately; the thread opens the file.
  explicit AsyncHighWater(const std::filesystem::path& root);

  // flush() with a limit of a second.
  ~AsyncHighWater();

  AsyncHighWater(const AsyncHighWater&) = delete;
  AsyncHighWater& operator=(const AsyncHighWater&) = delete;

  // Raises the mark to `step`, and returns immediately. Does nothing if the mark is not lower.
  void raise(int64_t step);

  // Waits until the mark is written, at most `limit`. Returns whether it is.
  bool flush(std::chrono::milliseconds limit);

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace oarlock

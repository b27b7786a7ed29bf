// Saves on a thread of its own, so that training goes on while the disk works.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {

struct FinishedSave {
  CheckpointState state;
  Result<SavedCheckpoint> result;
  double seconds = 0;
};

// One save at a time. The methods belong to one thread.
class AsyncStore {
 public:
  // The clock must outlive the object.
  AsyncStore(std::unique_ptr<CheckpointStore> store, const Clock& clock);
  // Waits for the save under way.
  ~AsyncStore();
  AsyncStore(const AsyncStore&) = delete;
  AsyncStore& operator=(const AsyncStore&) = delete;

  // Begins to save, after it has called `ready` on its own thread (where tensors may be under way from a device). No
  // save may be under way or finished and not taken: std::logic_error. Nobody may write to the tensors until the save
  // is taken.
  void start(Checkpoint checkpoint, std::optional<int64_t> best_step, std::function<void()> ready = {});

  // While no save is under way.
  const CheckpointStore& store() const { return *store_; }

  // A save is under way, or finished and not taken.
  bool busy() const { return busy_; }

  // The save that has finished, if one has.
  std::optional<FinishedSave> take();
  // Waits for the save under way; nothing where there is none, or when it is not over within `patience`.
  std::optional<FinishedSave> wait();
  std::optional<FinishedSave> wait(std::chrono::milliseconds patience);

 private:
  struct Job {
    Checkpoint checkpoint;
    std::optional<int64_t> best_step;
    std::function<void()> ready;
  };

  void write(const std::stop_token& stop);
  FinishedSave run(Job job);

  std::unique_ptr<CheckpointStore> store_;
  const Clock& clock_;
  bool busy_ = false;
  std::mutex mutex_;  // over the two below
  std::optional<Job> job_;
  std::optional<FinishedSave> finished_;
  std::condition_variable_any job_given_;
  std::condition_variable job_done_;
  std::jthread thread_;  // last: joined before the rest goes
};

}  // namespace oarlock

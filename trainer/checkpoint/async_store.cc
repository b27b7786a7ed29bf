#include "trainer/checkpoint/async_store.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>
#include <utility>

namespace oarlock {

AsyncStore::AsyncStore(std::unique_ptr<CheckpointStore> store, const Clock& clock)
    : store_(std::move(store)), clock_(clock), thread_([this](const std::stop_token& stop) { write(stop); }) {}

AsyncStore::~AsyncStore() = default;

void AsyncStore::start(Checkpoint checkpoint, std::optional<int64_t> best_step, std::function<void()> ready) {
  if (std::exchange(busy_, true)) throw std::logic_error("one checkpoint at a time");
  {
    const std::lock_guard lock(mutex_);
    job_ = Job{std::move(checkpoint), best_step, std::move(ready)};
  }
  job_given_.notify_one();
}

std::optional<FinishedSave> AsyncStore::take() { return wait(std::chrono::milliseconds(0)); }

std::optional<FinishedSave> AsyncStore::wait() {
  if (!busy_) return std::nullopt;
  std::unique_lock lock(mutex_);
  job_done_.wait(lock, [&] { return finished_.has_value(); });
  busy_ = false;
  return std::exchange(finished_, std::nullopt);
}

std::optional<FinishedSave> AsyncStore::wait(std::chrono::milliseconds patience) {
  if (!busy_) return std::nullopt;
  std::unique_lock lock(mutex_);
  if (!job_done_.wait_for(lock, patience, [&] { return finished_.has_value(); })) return std::nullopt;
  busy_ = false;
  return std::exchange(finished_, std::nullopt);
}

void AsyncStore::write(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // What was given is written, also when the stop comes first.
  while (job_given_.wait(lock, stop, [&] { return job_.has_value(); })) {
    Job job = *std::exchange(job_, std::nullopt);
    lock.unlock();
    FinishedSave finished = run(std::move(job));
    lock.lock();
    finished_ = std::move(finished);
    job_done_.notify_all();
  }
}

FinishedSave AsyncStore::run(Job job) {
  const SteadyTime begin = clock_.steady();
  FinishedSave out{.state = job.checkpoint.state, .result = SavedCheckpoint{}, .seconds = 0};
  try {
    if (job.ready) job.ready();
    out.result = store_->save(std::move(job.checkpoint), job.best_step);
  } catch (const std::exception& error) {  // out of memory; a thread must not throw
    out.result = fail(ExitCode::kOsErr, fmt::format("the checkpoint could not be written: {}", error.what()));
  }
  out.seconds = std::chrono::duration<double>(clock_.steady() - begin).count();
  return out;
}

}  // namespace oarlock

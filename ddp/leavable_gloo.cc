#include "ddp/leavable_gloo.h"

#include <ATen/core/ivalue.h>
#include <gloo/common/error.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oarlock {
namespace {

std::exception_ptr left_error() {
  return std::make_exception_ptr(::gloo::IoException("Connection closed: this rank has left the group"));
}

}  // namespace

// The collectives that have not ended. Thread-safe.
struct LeavableGloo::Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<LeavableWork*, c10::intrusive_ptr<LeavableWork>> works;
  bool has_left = false;
};

// Ends with the work of Gloo, or with fail(), whichever is first.
class LeavableGloo::LeavableWork final : public c10d::Work {
 public:
  LeavableWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Pending> pending)
      : c10d::Work(-1, inner->retrieveOpType()),
        inner_(std::move(inner)),
        pending_(std::move(pending)),
        future_(c10::make_intrusive<c10::ivalue::Future>(inner_->getFuture()->elementType())) {}

  // Must be called once, after the constructor. The callback keeps this object until Gloo's work has ended.
  void follow() {
    inner_->getFuture()->addCallback(
        [self = c10::intrusive_ptr<LeavableWork>::reclaim_copy(this)](c10::ivalue::Future& done) {
          self->end(done.hasError() ? done.exception_ptr() : nullptr, done.hasError() ? c10::IValue() : done.value());
        });
  }

  void fail(const std::exception_ptr& error) { end(error, {}); }

  // Waits until the work of Gloo has ended, with or without an error.
  void wait_for_gloo() const noexcept {
    try {
      inner_->wait();
    } catch (...) {
    }
  }

  std::vector<at::Tensor> result() override { return inner_->result(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  void end(const std::exception_ptr& error, c10::IValue value) {
    c10::intrusive_ptr<LeavableWork> self;  // destroyed after the lock is released
    {
      const std::lock_guard lock(pending_->mutex);
      if (std::exchange(has_ended_, true)) return;
      if (const auto found = pending_->works.find(this); found != pending_->works.end()) {
        self = std::move(found->second);
        pending_->works.erase(found);
      }
    }
    pending_->changed.notify_all();
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(std::move(value));
    }
    finish(error);
  }

  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::shared_ptr<Pending> pending_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool has_ended_ = false;  // guarded by pending_->mutex
};

LeavableGloo::LeavableGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           c10::intrusive_ptr<Options> options)
    : ProcessGroupGloo(store, rank, size, std::move(options)), pending_(std::make_shared<Pending>()) {}

LeavableGloo::~LeavableGloo() = default;

void LeavableGloo::fail_pending(std::chrono::milliseconds timeout) {
  std::vector<c10::intrusive_ptr<LeavableWork>> stuck;
  {
    std::unique_lock lock(pending_->mutex);
    pending_->has_left = true;
    pending_->changed.wait_for(lock, timeout, [&] { return pending_->works.empty(); });
    for (const auto& [key, work] : pending_->works) stuck.push_back(work);
  }
  if (stuck.empty()) return;
  for (const auto& work : stuck) work->fail(left_error());
  // The destructor of the base waits for its threads, so that another thread has to release the last reference.
  try {
    std::thread([self = c10::intrusive_ptr<LeavableGloo>::reclaim_copy(this), stuck = std::move(stuck)] {
      for (const auto& work : stuck) work->wait_for_gloo();
    }).detach();
  } catch (const std::system_error&) {  // no further thread: the destructor waits
  }
}

template <typename Start>
c10::intrusive_ptr<c10d::Work> LeavableGloo::begin(const Start& start) {
  const auto has_left = [this] {
    const std::lock_guard lock(pending_->mutex);
    return pending_->has_left;
  };
  if (has_left()) std::rethrow_exception(left_error());
  auto work = c10::make_intrusive<LeavableWork>(start(), pending_);
  {
    const std::lock_guard lock(pending_->mutex);
    pending_->works.emplace(work.get(), work);
  }
  work->follow();
  if (has_left()) work->fail(left_error());
  return work;
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::broadcast(std::vector<at::Tensor>& tensors,
                                                       const c10d::BroadcastOptions& options) {
  return begin([&] { return ProcessGroupGloo::broadcast(tensors, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::allreduce(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  return begin([&] { return ProcessGroupGloo::allreduce(tensors, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                       std::vector<at::Tensor>& inputs,
                                                       const c10d::AllgatherOptions& options) {
  return begin([&] { return ProcessGroupGloo::allgather(outputs, inputs, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::AllgatherOptions& options) {
  return begin([&] { return ProcessGroupGloo::_allgather_base(output, input, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                    std::vector<at::Tensor>& inputs,
                                                    const c10d::GatherOptions& options) {
  return begin([&] { return ProcessGroupGloo::gather(outputs, inputs, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::scatter(std::vector<at::Tensor>& outputs,
                                                     std::vector<std::vector<at::Tensor>>& inputs,
                                                     const c10d::ScatterOptions& options) {
  return begin([&] { return ProcessGroupGloo::scatter(outputs, inputs, options); });
}

c10::intrusive_ptr<c10d::Work> LeavableGloo::barrier(const c10d::BarrierOptions& options) {
  return begin([&] { return ProcessGroupGloo::barrier(options); });
}

}  // namespace oarlock

#include "trainer/distributed/average_hook.h"

#include <ATen/ops/empty_like.h>

#include <bit>

namespace oarlock {
namespace {

constexpr int kTag = 0;

}  // namespace

AverageHook::AverageHook(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void()> waiting)
    : group_(std::move(group)),
      waiting_(std::move(waiting)),
      exchanges_(std::has_single_bit(static_cast<unsigned>(group_->getSize()))),
      timeout_(group_->getBackend(c10::DeviceType::CPU)->getBackendOptions()->timeout) {}

c10::intrusive_ptr<c10::ivalue::Future> AverageHook::runHook(c10d::GradBucket& bucket) {
  std::vector<at::Tensor> buffer = {bucket.getBuffer()};
  buffer[0].mul_(1.0 / group_->getSize());
  // Only the last bucket is not reduced beside the backward pass.
  if (exchanges_ && bucket.isLast()) return exchange(buffer[0]);
  return group_->allreduce(buffer)->getFuture();
}

// Recursive doubling: log2(ranks) exchanges with a partner, where a ring needs 2 (ranks - 1) rounds. Thakur,
// Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4. A sum of two
// is the same in either order, so all ranks get the same bits.
c10::intrusive_ptr<c10::ivalue::Future> AverageHook::exchange(at::Tensor& bucket) {
  if (waiting_) waiting_();
  if (!received_.defined() || received_.sizes() != bucket.sizes()) received_ = at::empty_like(bucket);
  std::vector<at::Tensor> mine = {bucket};
  std::vector<at::Tensor> theirs = {received_};
  for (int distance = 1; distance < group_->getSize(); distance *= 2) {
    const int partner = group_->getRank() ^ distance;
    const auto receiving = group_->recv(theirs, partner, kTag);
    const auto sending = group_->send(mine, partner, kTag);
    receiving->wait(timeout_);
    sending->wait(timeout_);
    bucket.add_(received_);
  }
  auto done = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  done->markCompleted(mine);
  return done;
}

at::Tensor AverageHook::parseHookResult(const c10::IValue& result) { return result.toTensorVector()[0]; }

}  // namespace oarlock

#include "ddp/recoverable_loop.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <chrono>
#include <sstream>
#include <string>

#include "common/status_macros.h"
#include "ddp/library_errors.h"
#include "ddp/seed_step.h"

namespace oarlock {
namespace {

std::vector<at::Tensor> buffers_of(const DistributedDataParallelBase& model) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& item : model.buffers()) out.push_back(item.tensor.detach());
  return out;
}

std::string to_bytes(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void load(torch::optim::Optimizer& optimizer, const std::string& bytes, at::Device device) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), device);
  optimizer.load(archive);
}

}  // namespace

RecoverableLoop::RecoverableLoop(GroupMembership& ranks, DistributedDataParallelBase& model,
                                 torch::optim::Optimizer& optimizer, RecoverableLoopOptions options)
    : ranks_(ranks),
      model_(model),
      optimizer_(optimizer),
      options_(std::move(options)),
      buffers_(buffers_of(model)),
      steps_(options_.first_step),
      has_state_(!ranks.is_replacement()) {
  if (ranks_.channel() == nullptr) return;
  const std::string obstacle = model_.recovery_obstacle();
  if (!obstacle.empty()) {
    if (ranks_.rank() == 0) ranks_.report("ranks that are lost cannot be replaced", {{"reason", obstacle}});
    return;
  }
  recovers_ = true;
  model_.broadcast_buffers_after_backward();
  if (!ranks_.is_replacement()) return;
  const Result<void> joined = catch_errors([&] { return ranks_.join(*this); });
  if (!joined) recover(std::make_exception_ptr(ErrorException(joined.error())));
}

void RecoverableLoop::step(const std::function<void()>& gradients) {
  step(gradients, [this] { optimizer_.step(); });
}

void RecoverableLoop::step(const std::function<void()>& gradients, const std::function<void()>& update) {
  const int64_t index = steps_;
  while (steps_ == index) {
    std::exception_ptr exception;
    try {
      compute(gradients);
    } catch (...) {
      exception = std::current_exception();
    }
    if (exception) {
      recover(exception);
      continue;
    }
    has_state_ = false;  // if update() throws
    update();
    has_state_ = has_stepped_in_group_ = true;
    ++steps_;
  }
}

void RecoverableLoop::finish() {
  for (bool has_finished = false; !has_finished;) {
    std::exception_ptr exception;
    try {
      ranks_.group().barrier();
      has_finished = true;
    } catch (...) {
      exception = std::current_exception();
    }
    if (exception) recover(exception);
  }
}

// Afterwards, no failure of another rank can affect this step.
void RecoverableLoop::compute(const std::function<void()>& gradients) {
  const ProcessGroup& group = ranks_.group();
  const at::Device device = group.device();
  if (options_.seed) {
    seed_step(*options_.seed, group.rank(), steps_, at::kCPU);
    if (!device.is_cpu()) seed_step(*options_.seed, group.rank(), steps_, device);
  }
  if (!recovers_) return gradients();
  buffers_.begin();
  is_in_step_ = true;
  gradients();
  model_.synchronize_buffers();
  if (!device.is_cpu()) {  // kernels of the update must not be queued when the communicator is aborted
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    if (group.has_left()) throw ErrorException(peer_lost_error("the communicator was aborted"));
  }
  is_in_step_ = false;
}

void RecoverableLoop::recover(const std::exception_ptr& exception) {
  const Error error = to_error(exception);
  if (!recovers_ || error.code != ExitCode::kPeerLost) std::rethrow_exception(exception);
  const Result<void> recovered = ranks_.recover(error, *this);
  if (!recovered) throw ErrorException(recovered.error());
}

void RecoverableLoop::leave_group() {
  if (std::exchange(is_in_step_, false)) buffers_.restore();
  model_.leave(has_stepped_in_group_);
}

RecoveryState RecoverableLoop::recovery_state() const {
  if (!has_state_) return {};
  // Copying the parameters from a device would take longer than it is worth.
  return {steps_, ranks_.group().device().is_cpu() ? digest_of(model_.parameters()) : ""};
}

Result<void> RecoverableLoop::join_group(const LostRank& lost) {
  const ProcessGroup& group = ranks_.group();
  const Assignment& assignment = ranks_.assignment();
  const int donor = assignment.donor;
  const bool is_donor = group.rank() == donor;
  const std::string reduction = group.broadcast(is_donor ? model_.state_for_joining() : std::string(), donor);
  const std::string optimizer = group.broadcast(is_donor ? to_bytes(optimizer_) : std::string(), donor);
  // Ranks that have completed the donor's step receive the bits that they have, so that they keep their state if the
  // donor is lost meanwhile.
  has_state_ = has_state_ && steps_ == assignment.step;
  model_.broadcast_state(donor);
  group.broadcast(options_.tensors, donor);
  if (!has_state_) load(optimizer_, optimizer, group.device());
  steps_ = assignment.step;
  has_state_ = true;
  has_stepped_in_group_ = false;
  RETURN_IF_ERROR(model_.join(reduction));
  if (is_donor) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - lost.detected;
    ranks_.report("a lost rank was replaced",
                  {{"step", steps_}, {"seconds", seconds.count()}, {"reason", lost.reason}});
  }
  return {};
}

}  // namespace oarlock

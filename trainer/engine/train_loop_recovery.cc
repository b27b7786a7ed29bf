// Recovery without a checkpoint: leaving a group that has lost a rank, and joining the next one.

#include <stdexcept>
#include <utility>

#include "common/status_macros.h"
#include "trainer/device/device.h"
#include "trainer/engine/train_loop.h"
#include "trainer/engine/train_step.h"

namespace oarlock {

// The state that an evaluation changes.
nlohmann::json TrainLoop::host_state() const {
  nlohmann::json sections = nlohmann::json::object();
  for (const Stateful* part : stateful_) sections[std::string(part->section())] = part->values();
  nlohmann::json out = {{"sections", std::move(sections)}, {"evaluator", evaluator_.state_for_joining()}};
  if (parts_.checkpointer != nullptr) out["checkpoints"] = parts_.checkpointer->state_for_joining();
  return out;
}

Result<void> TrainLoop::restore_host_state(const nlohmann::json& state) {
  for (Stateful* part : stateful_)
    RETURN_IF_ERROR(part->restored(state.at("sections").at(std::string(part->section()))));
  evaluator_.join(state.at("evaluator"));
  return {};
}

void TrainLoop::leave() {
  parts_.step.undo();
  parts_.model.leave(parts_.step.steps_completed() > steps_before_join_);
  if (before_evaluation_.is_null()) return;
  const nlohmann::json before = std::exchange(before_evaluation_, nullptr);
  if (!restore_host_state(before)) has_state_ = false;
  if (parts_.checkpointer != nullptr) parts_.checkpointer->undo_evaluation(before.at("checkpoints"));
}

RecoveryState TrainLoop::recovery_state() const {
  if (!has_state_) return {};
  // Copying the parameters from a device would take longer than it is worth.
  const bool on_cpu = parts_.group.device().is_cpu();
  return {state_.position.step, on_cpu ? digest_of(parts_.model.parameters()) : ""};
}

// The finite loss of this rank does not imply those of the others, unlike in sync_loss(), but a step with a gradient
// that is not finite was skipped, or has changed the parameters.
bool TrainLoop::can_stop_alone() const {
  if (!has_state_ || is_final_ || state_.position.step == 0 || parts_.checkpointer == nullptr) return false;
  if (parts_.group.world_size() != world_size_ || !parts_.model.is_reduction_state_known()) return false;
  return has_finite_weights();
}

// The collectives of a group that is not connected are those of a group of one rank.
Result<TrainSummary> TrainLoop::stop_alone() {
  parts_.stop.agree();
  RETURN_IF_ERROR(stop());
  summarize();
  return summary_;
}

nlohmann::json TrainLoop::state_for_joining() const {
  const RankStatus status = parts_.telemetry.status();
  nlohmann::json out = host_state();
  out["run"] = state_;
  out["world_size"] = world_size_;
  out["reduction"] = parts_.model.state_for_joining();
  out["recoveries"] = status.recoveries;
  out["recovery_seconds"] = status.recovery_seconds;
  return out;
}

Result<void> TrainLoop::take_state(const nlohmann::json& state) {
  RETURN_IF_ERROR(restore_host_state(state));
  if (parts_.checkpointer != nullptr) parts_.checkpointer->take_state(state.at("checkpoints"));
  world_size_ = state.at("world_size");
  const int64_t own_step = std::exchange(state_, state.at("run").get<RunState>()).position.step;
  if (own_step != state_.position.step) parts_.step.forget_loss();
  return {};
}

Result<void> TrainLoop::receive_tensors(int donor) {
  if (parts_.checkpointer != nullptr) parts_.checkpointer->wait_for_copy();
  parts_.model.broadcast_state(donor);
  for (const Stateful* part : stateful_) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : part->tensors()) tensors.push_back(tensor);
    parts_.group.broadcast(tensors, donor);
  }
  return {};
}

bool TrainLoop::fits_group() const {
  const SamplerOptions& options = sampler_.options();
  return options.rank == parts_.group.rank() && options.world_size == parts_.group.world_size();
}

Result<void> TrainLoop::resize() {
  ASSIGN_OR_RETURN(sampler_, make_sampler(parts_));
  RETURN_IF_ERROR(check_length());
  loader_.reset();  // the next one has the new size of a batch
  scheduler_.set_config(parts_.config.schedule);
  return parts_.step.update_learning_rates();
}

Result<void> TrainLoop::join(int donor) {
  parts_.telemetry.enter(Phase::kRestore);
  const bool is_donor = parts_.group.rank() == donor;
  const bool is_new = !has_joined_;
  if (stateful_.empty()) collect_stateful();
  const nlohmann::json state =
      nlohmann::json::parse(parts_.group.broadcast(is_donor ? state_for_joining().dump() : std::string(), donor));
  // The tensors of the donor have the same bits on the ranks that completed the same step, so that a transfer that
  // fails in the middle leaves the state of these ranks consistent.
  has_state_ = has_state_ && state_.position.step == state.at("run").at("position").at("step").get<int64_t>();
  RETURN_IF_ERROR(receive_tensors(donor));
  if (!is_donor) RETURN_IF_ERROR(take_state(state));
  has_state_ = true;
  // From here on this rank may be the next donor: if another rank is lost before this group is complete, it has left
  // the group that this donor had left.
  steps_before_join_ = parts_.step.steps_completed();
  if (is_new && !is_donor)
    parts_.telemetry.set_earlier_recoveries(state.at("recoveries").get<int64_t>(),
                                            state.at("recovery_seconds").get<double>());
  RETURN_IF_ERROR(parts_.model.join(state.at("reduction").get<std::string>()));
  bool save_lost = false;
  if (parts_.checkpointer != nullptr) {
    ASSIGN_OR_RETURN(save_lost, parts_.checkpointer->join(is_new, parts_.model, stateful_));
  }
  for (const int64_t lost : parts_.group.all_gather(int64_t{save_lost})) state_.save_due |= lost != 0;
  has_joined_ = true;
  if (world_size_ != parts_.group.world_size()) state_.target_steps = target_steps();
  world_size_ = parts_.group.world_size();
  summary_.interrupted = false;
  parts_.stop.restart();
  pace_ = StopPace(parts_.stop);
  parts_.telemetry.begin(state_.position.step, state_.target_steps, state_.position.epoch,
                         parts_.config.epochs.value_or(0));
  if (is_new) start_tracking();  // a rank 0 that replaces a lost one reports from here on
  return {};
}

}  // namespace oarlock

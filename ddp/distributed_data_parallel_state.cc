// The parts of DistributedDataParallelBase for recovery and for checkpoints.
#include <fmt/format.h>

#include <utility>

#include "common/error.h"
#include "common/status_macros.h"
#include "ddp/comm_hook.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/reducer.h"

namespace oarlock {
namespace {

std::vector<std::string> names_of(const std::vector<NamedTensor>& named) {
  std::vector<std::string> out;
  out.reserve(named.size());
  for (const NamedTensor& item : named) out.push_back(item.name);
  return out;
}

}  // namespace

// ---- recovery without a checkpoint ----

void DistributedDataParallelBase::synchronize_buffers() {
  if (buffers_after_backward_ && config_.broadcast_buffers) broadcast_buffers();
}

std::string DistributedDataParallelBase::recovery_obstacle() const {
  if (config_.comm_hook == CommHook::kPowerSgd) return "comm_hook: powersgd keeps an error on each rank";
  if (hook_state_->user_hook) return "register_comm_hook(): the state of the hook is not known";
  if (config_.static_graph) return "static_graph: each rank records its own graph";
  if (!config_.broadcast_buffers && !config_.sync_batch_norm && !buffers().empty())
    return "broadcast_buffers: false: the model's buffers differ between the ranks";
  return "";
}

std::string DistributedDataParallelBase::resize_obstacle(int world_size) const {
  // A group of one rank trains with batch normalization that is not synchronized, whose sums have other bits.
  if (config_.sync_batch_norm && (world_size == 1) != (group_.world_size() == 1))
    return "sync_batch_norm has no effect in a group of one rank";
  return "";
}

void DistributedDataParallelBase::leave(bool steps_completed) {
  zero_grad();
  if (std::exchange(has_joined_, false) && steps_completed)
    left_ = reducer_ ? std::make_unique<LeftReducer>(group_.world_size(), reducer_->state()) : nullptr;
  logger_.reset();
  reducer_.reset();
  hook_state_->shared_memory.reset();
}

std::string DistributedDataParallelBase::state_for_joining() const {
  if (!left_) return "";
  const ReducerState& reducer = left_->reducer;
  return nlohmann::json{{"world_size", left_->world_size},
                        {"buckets", reducer.buckets},
                        {"rebuilt", reducer.rebuilt},
                        {"ready_order", reducer.ready_order}}
      .dump();
}

Result<void> DistributedDataParallelBase::join(const std::string& state) {
  left_.reset();
  // Before the first collective: if another rank is lost meanwhile, this rank may be the donor of the next group.
  if (!state.empty()) {
    const nlohmann::json values = nlohmann::json::parse(state);
    left_ = std::make_unique<LeftReducer>();
    left_->world_size = values.at("world_size").get<int>();
    left_->reducer.buckets = values.at("buckets").get<std::vector<std::vector<size_t>>>();
    left_->reducer.rebuilt = values.at("rebuilt").get<bool>();
    left_->reducer.ready_order = values.at("ready_order").get<std::vector<int64_t>>();
  }
  if (group_.world_size() > 1) {
    RETURN_IF_ERROR(verify_against_rank_0());
    open_shared_memory();
    build_reducer(left_ && left_->world_size == group_.world_size() ? &left_->reducer : nullptr);
    sync_buffers_in_forward_ = true;
  }
  has_joined_ = true;
  return {};
}

// ---- checkpoints ----

void DistributedDataParallelBase::synchronize_reduction_state() {
  if (!reducer_) return;
  rebuild_buckets();  // as the next forward() would
  if (!config_.static_graph || !delayed_reduction_queued_ || !rank_states_.empty()) return;
  const ReducerState own = reducer_->state();
  for (const std::string& text : group_.all_gather(nlohmann::json{own.uses, own.used}.dump())) {
    const nlohmann::json lists = nlohmann::json::parse(text);
    rank_states_.push_back({.buckets = {}, .rebuilt = false, .ready_order = {}, .uses = lists[0], .used = lists[1]});
  }
}

bool DistributedDataParallelBase::is_reduction_state_collective() const {
  return hook_state_->powersgd && config_.powersgd.save_state && !hook_state_->powersgd->errors.empty();
}

bool DistributedDataParallelBase::is_reduction_state_known() const {
  return reducer_ || !left_ || left_->reducer.rebuilt || left_->reducer.ready_order.empty();
}

ReductionState DistributedDataParallelBase::reduction_state() const {
  const bool has_left = !has_joined_ && left_ && left_->world_size == group_.world_size();
  if (!reducer_ && !has_left) return {};
  std::vector<ReducerState> states = rank_states_;
  states.resize(static_cast<size_t>(group_.world_size()));
  const ReducerState own = reducer_ ? reducer_->state() : left_->reducer;
  states[0].buckets = own.buckets;
  states[0].rebuilt = own.rebuilt;
  ReductionState out{.values = to_json(states, names_of(trainable_parameters()), config_), .tensors = {}};
  if (hook_state_->powersgd && config_.powersgd.save_state) {
    out.values[kPowerSgdValues] = hook_state_->powersgd->values();
    out.tensors = hook_state_->powersgd->save(group_);
  }
  return out;
}

std::string DistributedDataParallelBase::drop_incompatible_state(ReductionState& saved, int world_size) const {
  const bool had_powersgd = saved.values.is_object() && saved.values.contains(kPowerSgdValues);
  std::string why;
  try {
    if (!reducer_ || world_size != group_.world_size()) {
      saved.values = nullptr;
      why = fmt::format("the checkpoint is of {} ranks, this run has {}", world_size, group_.world_size());
    } else if (!reducer_state_from_json(saved.values, names_of(trainable_parameters()), config_, 0, world_size)) {
      saved.values = nullptr;
      why = had_powersgd ? "the gradient buckets have changed" : "the checkpoint has no PowerSGD state";
    } else if (!had_powersgd) {
      why = "the checkpoint has no PowerSGD state";
    } else if (!hook_state_->powersgd) {
      why = "comm_hook has been changed";
    } else {
      why = hook_state_->powersgd->incompatibility(saved.values[kPowerSgdValues], saved.tensors, world_size);
    }
  } catch (const nlohmann::json::exception& error) {
    saved.values = nullptr;
    why = fmt::format("the checkpoint's PowerSGD state is invalid: {}", error.what());
  }
  if (!why.empty() && saved.values.is_object()) saved.values.erase(kPowerSgdValues);
  return hook_state_->powersgd || had_powersgd ? why : "";
}

void DistributedDataParallelBase::load_reduction_state(const ReductionState& saved) {
  const std::optional<ReducerState> state = reducer_state_from_json(saved.values, names_of(trainable_parameters()),
                                                                    config_, group_.rank(), group_.world_size());
  if (!state) return;
  build_reducer(&*state);
  left_ = std::make_unique<LeftReducer>(group_.world_size(), *state);
  delayed_reduction_queued_ = !state->uses.empty();
  if (!hook_state_->powersgd || !saved.values.contains(kPowerSgdValues)) return;
  std::vector<at::TensorOptions> like;
  const std::vector<NamedTensor> parameters = trainable_parameters();
  for (const std::vector<size_t>& bucket : state->buckets)
    like.push_back(parameters.at(bucket.at(0)).tensor.options().requires_grad(false));
  hook_state_->powersgd->load(saved.values[kPowerSgdValues], saved.tensors, group_, like);
}

}  // namespace oarlock

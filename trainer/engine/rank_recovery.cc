// Recovery without a checkpoint: a rank leaves a group that has lost a rank, regroups over the channel to its launcher,
// and joins the next group (docs/recovery-engine.md).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "ddp/library_errors.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/engine/rank_process.h"
#include "trainer/engine/train_step.h"

namespace oarlock {
namespace {

constexpr std::chrono::milliseconds kFencePatience{2000};  // until reading the fence is abandoned

}  // namespace

// Returns RecoveryState::fence. A file system that does not respond must not keep this rank from its group.
int64_t RankProcess::read_fence() const {
  if (environment_.rank != 0 || config_.checkpoint.dir.empty()) return -1;
  const CheckpointOwner owner{.uid = environment_.uid, .attempt = environment_.attempt};
  return run_interruptibly<int64_t>(
             [root = std::filesystem::path(config_.checkpoint.dir), owner] { return claimed_generation(root, owner); },
             stop_, kFencePatience, kFencePatience)
      .value_or(-1);
}

// Returns the failure of a claim of the checkpoint directory. If another group of this attempt has claimed it, another
// launcher has taken the place of that of node rank 0, which ends when this process reports it. The ranks of other
// nodes can join the group of that one.
tl::unexpected<Error> RankProcess::report_fenced_off(Error error) {
  RegroupChannel* const channel = membership_.channel();
  if (channel == nullptr || !is_fenced_off(error)) return tl::make_unexpected(std::move(error));
  if (environment_.rank != 0) return fail(ExitCode::kPeerLost, std::move(error.message));
  const int64_t fence = read_fence();
  const int64_t generation = membership_.assignment().generation;
  if (fence < generation) return tl::make_unexpected(std::move(error));  // of another attempt or job
  const Result<Assignment> next =
      channel->regroup(generation, {.completed_step = -1, .digest = {}, .fence = fence}, error.message, stop_);
  return tl::make_unexpected(next ? error : next.error());
}

Result<void> RankProcess::accept_assignment(const Assignment& assignment) const {
  // Rank 0 writes the checkpoints, whose directory this process may have acquired, and reports the progress.
  if ((assignment.rank == 0) != (environment_.rank == 0) || assignment.world_size > environment_.world_size) {
    return fail(ExitCode::kPeerLost,
                fmt::format("this process was started as rank {} of {}, and cannot be rank {} of {} in generation {}",
                            environment_.rank, environment_.world_size, assignment.rank, assignment.world_size,
                            assignment.generation));
  }
  if (!loop_ || assignment.donor < 0 || assignment.world_size == loop_->world_size()) return {};
  const std::string obstacle = model_->resize_obstacle(assignment.world_size);
  if (obstacle.empty()) return {};
  return fail(ExitCode::kPeerLost, fmt::format("the number of ranks cannot change from {} to {} without a restart: {}",
                                               loop_->world_size(), assignment.world_size, obstacle));
}

// Without a channel nothing below has an effect.
void RankProcess::enable_recovery() {
  if (membership_.channel() == nullptr) return;
  const std::string obstacle = step_->recovery_obstacle();
  can_recover_ = obstacle.empty();
  if (can_recover_) {
    step_->enable_undo();
    // In a group of one rank, nothing else detects that it must be left.
    stops_->watch_growth([this] {
      const int64_t generation = membership_.assignment().generation;
      return membership_.channel()->growth_requested(generation) ||
             membership_.channel()->regroup_requested(generation);
    });
    // Without an operator, nothing replaces the ranks that receive a signal, so that all of them stop and save.
    if (!environment_.job.empty()) stops_->set_quorum(StopQuorum::kAll);
  } else if (environment_.rank == 0) {
    telemetry_->logger().warn("after the loss of a rank, all ranks restart from the newest checkpoint",
                              {{"reason", obstacle}});
  }
}

Result<TrainSummary> RankProcess::run_loop() {
  Result<TrainSummary> summary = catch_errors([&]() -> Result<TrainSummary> {
    if (!membership_.is_replacement()) return loop_->run();
    RETURN_IF_ERROR(membership_.join(*this));
    return loop_->resume();
  });
  while (!summary && can_recover(summary.error())) {
    telemetry_->record_peer_lost();
    telemetry_->enter(Phase::kRendezvous);
    const Result<void> recovered = membership_.recover(summary.error(), *this);
    if (!recovered) return stop_in_recovery(recovered.error());
    summary = catch_errors([&] { return loop_->resume(); });
  }
  return summary;
}

bool RankProcess::can_recover(const Error& error) const {
  return can_recover_ && error.code == ExitCode::kPeerLost && loop_->can_recover();
}

// After a recovery has failed with `error`. If a signal was the reason, rank 0 saves its state before it ends, which
// all ranks would otherwise do together. The others report the loss of a rank, because nothing is saved on their
// behalf.
Result<TrainSummary> RankProcess::stop_in_recovery(const Error& error) {
  if (error.code != ExitCode::kTempFail || !stop_.is_raised()) return tl::make_unexpected(error);
  if (environment_.rank == 0 && loop_->can_stop_alone()) return catch_errors([&] { return loop_->stop_alone(); });
  return fail(ExitCode::kPeerLost, error.message);
}

bool RankProcess::is_final(const Error& error) const { return is_fenced_off(error); }

void RankProcess::leave_group() {
  telemetry_->enter(Phase::kRendezvous);
  loop_->leave();
}

Result<void> RankProcess::join_group(const LostRank& lost) {
  const Assignment& assignment = membership_.assignment();
  // Each rank sends the digest of its data, complemented and therefore negative if it has no state.
  const int64_t digest = digest_of(data_);
  std::vector<int> replaced;
  bool is_same = true;
  for (int rank = 0; const int64_t member : group_.all_gather(loop_->has_state() ? digest : ~digest)) {
    if (member < 0) replaced.push_back(rank);
    is_same = is_same && (member < 0 ? ~member : member) == digest;
    ++rank;
  }
  if (!is_same) RETURN_IF_ERROR(check_equal_on_all_ranks(AgreedKind::kData, data_, group_));
  if (checkpointer_) {
    Result<void> claimed = checkpointer_->claim(assignment.generation, assignment.store_prefix);
    if (!claimed) return report_fenced_off(std::move(claimed.error()));
  }
  const int before = loop_->world_size();
  RETURN_IF_ERROR(resize());
  RETURN_IF_ERROR(loop_->join(assignment.donor));
  const double seconds = std::chrono::duration<double>(clock_.steady() - lost.detected).count();
  const auto shared = nlohmann::json::parse(group_.broadcast(
      dump_json(nlohmann::json{{"seconds", seconds}, {"reason", lost.reason}, {"before", before}}), assignment.donor));
  const auto reason = shared.at("reason").get<std::string>();
  const bool logs = group_.rank() == assignment.donor;
  if (const int left = shared.at("before").get<int>(); left != group_.world_size()) {
    telemetry_->record_resize(left, group_.world_size(), reason, shared.at("seconds").get<double>(), logs);
  } else {
    telemetry_->record_recovery(fmt::format("{}", fmt::join(replaced, ",")), reason, shared.at("seconds").get<double>(),
                                logs);
  }
  return {};
}

// Adapts batches and learning rates to the group, as configure() does in a run that is resumed with this number of
// ranks.
Result<void> RankProcess::resize() {
  if (loop_->fits_group()) return {};
  ASSIGN_OR_RETURN(const BatchPlan plan, plan_batches(configured_, world_size(), task_->train_data().size()));
  plan_ = plan;
  const TrainerConfig scaled = apply_plan(configured_, plan_);
  config_.optimizer = scaled.optimizer;
  config_.schedule = scaled.schedule;
  model_->allow_shared_memory(shares_memory());
  return loop_->resize();
}

}  // namespace oarlock

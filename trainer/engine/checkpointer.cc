#include "trainer/engine/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/work_progress.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/engine/checkpoint_contents.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr auto kHighWaterInterval = std::chrono::milliseconds(500);
constexpr std::chrono::milliseconds kStopGrace{500};           // until reading is abandoned
constexpr std::chrono::milliseconds kHighWaterPatience{1000};  // until the last mark is written
constexpr std::chrono::milliseconds kMarksPatience{1000};      // until the marks are read, while other ranks wait
constexpr std::chrono::milliseconds kClaimPatience{2000};      // until the fence is claimed, while other ranks wait

// While rank 0 waits for a save, the ranks exchange messages at this interval.
constexpr std::chrono::milliseconds kWaitInterval{200};
// How long a stop waits for a save that makes no progress. With the delivery of tracked points this must fit into the
// grace period of a pod, which is 30 s by default. The files of a save may be synced at this rate, during which
// its progress is unknown.
constexpr std::chrono::seconds kStopPatience{15};
constexpr int64_t kMinSyncRate = int64_t{16} << 20;  // bytes per second

std::string joined_names(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

CheckpointerOptions checkpointer_options(const CheckpointConfig& config, const CheckpointOwner& owner,
                                         RunIdentity identity, const Monitor& monitor) {
  CheckpointerOptions out;
  out.store = {.root = config.dir, .owner = owner, .keep = config.keep};
  out.identity = std::move(identity);
  out.on_error = config.on_error;
  out.on_all_damaged = config.on_all_damaged;
  if (config.best.save) {
    out.best = config.best.metric.empty() ? monitor : Monitor{.metric = config.best.metric, .mode = config.best.mode};
  }
  return out;
}

Result<bool> Checkpointer::evaluated(int64_t step, const Metrics& metrics) {
  if (!options_.best) return false;
  const auto metric = metrics.find(options_.best->metric);
  if (metric == metrics.end()) {
    return fail(ExitCode::kConfig, fmt::format("checkpoint.best.metric: the evaluation has no metric '{}', only {}",
                                               options_.best->metric, joined_names(metrics)));
  }
  Result<std::string> own = "";
  if (group_.rank() == 0) {
    const double value = metric->second;
    static_cast<void>(read_missing_marks());  // otherwise, the next save compares the value
    const std::optional<Best>& before = candidate_ ? candidate_ : best_;
    const bool better = std::isfinite(value) && (!before || is_better(options_.best->mode, value, before->value));
    own = better ? "better" : "";
  }
  ASSIGN_OR_RETURN(const std::string answer, group_.broadcast(own));
  const bool is_best = !answer.empty();
  if (is_best) candidate_ = Best{.step = step, .value = metric->second};
  return is_best;
}

std::optional<BestEvaluation> Checkpointer::best() const {
  if (!options_.best || !best_) return std::nullopt;
  return BestEvaluation{.metric = options_.best->metric, .value = best_->value, .step = best_->step};
}

bool Checkpointer::is_saved(const TrainingPosition& position) const {
  return last_save_ == position && !(candidate_ && candidate_->step == position.step);
}

void Checkpointer::begin_save(const TrainingPosition& position, DistributedDataParallelBase& model,
                              const std::vector<Stateful*>& parts, ReductionState reduction) {
  std::set<std::string> written_in_forward;
  for (const NamedTensor& item : model.buffers()) written_in_forward.insert(item.name);
  copy_.begin(live_tensors(model, parts), written_in_forward);
  high_water_step_ = std::max(high_water_step_, position.step);
  Checkpoint checkpoint;
  checkpoint.state.step = position.step;
  checkpoint.state.high_water_step = high_water_step_;
  checkpoint.state.epoch = position.epoch;
  checkpoint.state.epoch_samples = position.epoch_samples;
  checkpoint.state.world_size = group_.world_size();
  checkpoint.state.extra = {{kExtraTask, options_.identity.task},
                            {kExtraSeed, options_.identity.seed},
                            {kExtraSettings, to_json_object(options_.identity.settings)},
                            {kExtraData, to_json_object(options_.identity.data)}};
  for (const Stateful* part : parts) checkpoint.state.sections[std::string(part->section())] = part->values();
  if (candidate_ && candidate_->step != position.step) candidate_.reset();  // the model has changed since
  const std::optional<Best>& best = candidate_ ? candidate_ : best_;
  if (best) {
    checkpoint.state.extra[kExtraBest] = {{"step", best->step},
                                          {"value", best->value},
                                          {"metric", options_.best->metric},
                                          {"mode", name_of(options_.best->mode)}};
  }
  checkpoint.tensors = copy_.tensors();
  checkpoint.model_metadata = options_.model_metadata;
  add_derived(model.module(), checkpoint.tensors[kModelTensors]);
  if (!reduction.values.is_null()) checkpoint.state.extra[kReductionSection] = std::move(reduction.values);
  if (!reduction.tensors.empty()) checkpoint.tensors[kReductionSection] = std::move(reduction.tensors);
  last_save_ = position;
  store_->start(std::move(checkpoint), best ? std::optional(best->step) : std::nullopt, [this] {
    copy_.finish();
    if (before_commit_) before_commit_();
  });
}

void Checkpointer::wait_for_copy() {
  if (!copy_.released()) telemetry_.enter(Phase::kCheckpoint);
  copy_.wait_for_release();
}

// Records and reports the outcome of a save.
Result<void> Checkpointer::finish_save(std::optional<FinishedSave> finished) {
  if (!finished) return {};
  const CheckpointState& state = finished->state;
  if (!finished->result) {
    last_save_.reset();
    telemetry_.record_checkpoint_failure(/*save=*/true);
    telemetry_.logger().warn("a checkpoint could not be saved; the older ones are intact",
                             {{"step", state.step}, {"reason", finished->result.error().message}});
    return tl::make_unexpected(finished->result.error());
  }
  if (candidate_ && candidate_->step == state.step) best_ = std::exchange(candidate_, std::nullopt);
  known_step_ = state.step;
  directory_ = finished->result->directory.string();
  telemetry_.record_checkpoint_saved(state.step, directory_, finished->result->bytes, finished->seconds);
  if (!finished->result->links) {
    last_save_.reset();  // the last save of the run sets them again
    telemetry_.record_checkpoint_failure(/*save=*/true);
    telemetry_.logger().warn("a checkpoint is saved, but the links to the checkpoints could not be set",
                             {{"step", state.step}, {"reason", finished->result->links.error().message}});
  }
  return finished->result->links;
}

std::function<Result<void>()> Checkpointer::writer_check() const {
  return [root = options_.store.root, owner = options_.store.owner]() -> Result<void> {
    Result<void> admitted = check_fence(root, owner);
    return admitted || is_fenced_off(admitted.error()) ? admitted : Result<void>();
  };
}

std::optional<Error> Checkpointer::fatal(const Result<void>& saved) const {
  if (saved) return std::nullopt;
  if (is_fenced_off(saved.error()) || options_.on_error == CheckpointErrors::kStop) return saved.error();
  return std::nullopt;
}

// Broadcasts rank 0's result and the step of the newest checkpoint.
Result<void> Checkpointer::share_result(const Result<void>& own) {
  ASSIGN_OR_RETURN(const std::string shared, group_.broadcast(own.map([&] { return std::to_string(known_step_); })));
  const int64_t step = std::stoll(shared);
  if (step != known_step_) telemetry_.record_known_checkpoint(step);
  known_step_ = step;
  return {};
}

// Whether a stop no longer waits for a save that has written so many bytes and made no progress since.
bool Checkpointer::has_given_up(SteadyTime since, int64_t written) const {
  return is_abandoned_ || clock_.steady() - since > kStopPatience + std::chrono::seconds(written / kMinSyncRate);
}

// Returns the outcome of the save in flight on rank 0, or nothing without one. Returns kTempFail if the ranks agree to
// stop and it makes no progress. The ranks exchange messages meanwhile, so that it may take longer than a collective
// may.
Result<std::optional<FinishedSave>> Checkpointer::wait_for_save() {
  int64_t written = 0;
  SteadyTime since = clock_.steady();  // of the last progress, or of the agreement to stop
  for (;;) {
    if (store_ && !finished_) finished_ = store_->wait(kWaitInterval);
    const bool is_waiting = store_ && store_->is_busy();
    const int64_t progress = work_progress(LongWork::kSave).done;
    if (!stop_.agreed() || std::exchange(written, progress) != progress) since = clock_.steady();
    is_abandoned_ = is_waiting && stop_.agreed() && has_given_up(since, written);
    std::array<double, 2> state = {is_waiting ? 1.0 : 0.0, is_abandoned_ ? 1.0 : 0.0};
    group_.all_reduce_sum(state);
    if (state[1] > 0) {
      return fail(ExitCode::kTempFail,
                  fmt::format("interrupted by a signal while {} does not respond: the last save is not complete, and a "
                              "new start resumes from an older checkpoint",
                              options_.store.root.string()));
    }
    if (state[0] == 0) return std::exchange(finished_, std::nullopt);
    stop_.agree();
  }
}

Result<void> Checkpointer::save(const TrainingPosition& position, DistributedDataParallelBase& model,
                                const std::vector<Stateful*>& parts, SaveUntil until) {
  telemetry_.enter(Phase::kCheckpoint);
  model.synchronize_reduction_state();
  requested_step_ = position.step;
  Result<std::optional<FinishedSave>> earlier = wait_for_save();
  if (!earlier) return tl::make_unexpected(earlier.error());
  Result<void> own;
  bool due = false;
  if (group_.rank() == 0) {
    if (!failure_) failure_ = fatal(finish_save(*std::move(earlier)));
    if (failure_) own = tl::make_unexpected(*failure_);
    const Result<void> marks = own ? read_missing_marks() : own;
    due = own && marks && !is_saved(position);
    if (own && !marks) {
      FinishedSave failed{.state = {}, .result = tl::make_unexpected(marks.error()), .seconds = 0};
      failed.state.step = position.step;
      const Result<void> reported = finish_save(std::move(failed));
      if (until == SaveUntil::kOnDisk) own = reported;
    }
  }
  if (model.is_reduction_state_collective()) due = !group_.broadcast(std::string(due ? "due" : "")).empty();
  ReductionState reduction = due ? model.reduction_state() : ReductionState{};
  if (group_.rank() == 0 && due) begin_save(position, model, parts, std::move(reduction));
  if (until == SaveUntil::kOnDisk) {
    if (high_water_) high_water_->raise(position.step);
    Result<std::optional<FinishedSave>> finished = wait_for_save();
    if (!finished) return tl::make_unexpected(finished.error());
    if (due) own = finish_save(*std::move(finished));
    if (high_water_) high_water_->flush(kHighWaterPatience);
  }
  return share_result(own);
}

bool Checkpointer::poll(int64_t step) {
  if (group_.rank() != 0) return false;
  if (const SteadyTime now = clock_.steady(); now - high_water_time_ >= kHighWaterInterval) {
    high_water_time_ = now;
    high_water_->raise(step);
  }
  if (!failure_ && store_->is_busy()) failure_ = fatal(finish_save(store_->poll()));
  return failure_.has_value();
}

Result<void> Checkpointer::agree_on_failure() {
  Result<std::string> own = "";
  if (failure_) own = tl::make_unexpected(*failure_);
  return group_.broadcast(own).map([](const std::string&) {});
}

void Checkpointer::drain(std::chrono::milliseconds timeout) {
  if (store_ && !is_abandoned_) static_cast<void>(finish_save(store_->wait(timeout)));
}

// ---- recovery without a checkpoint -----------------------------------------------------------------------------

Result<void> Checkpointer::claim(int64_t generation, const std::string& group) {
  CheckpointOwner& owner = options_.store.owner;
  if (owner.generation == generation && owner.group == group) return {};
  owner.generation = generation;
  owner.group = group;
  if (!store_) return {};
  store_->set_group(generation, group);
  const std::optional<Result<void>> claimed = run_interruptibly<Result<void>>(
      [store = store_->store()] { return store->claim(); }, stop_.flag(), kStopGrace, kClaimPatience);
  if (claimed && (*claimed || is_fenced_off(claimed->error()))) return *claimed;
  telemetry_.logger().warn("the checkpoint directory cannot be claimed for this group; the next save tries again",
                           {{"reason", claimed ? claimed->error().message : "it does not respond"}});
  return {};
}

Json Checkpointer::state_for_joining() const {
  Json out = {{"known_step", known_step_}, {"requested_step", requested_step_}};
  if (candidate_) out["candidate"] = {{"step", candidate_->step}, {"value", candidate_->value}};
  return out;
}

void Checkpointer::undo_evaluation(const Json& state) {
  candidate_.reset();
  if (state.contains("candidate"))
    candidate_ = Best{.step = state["candidate"].at("step"), .value = state["candidate"].at("value")};
}

void Checkpointer::take_state(const Json& state) {
  undo_evaluation(state);
  requested_step_ = state.at("requested_step");
  known_step_ = std::max(known_step_, state.at("known_step").get<int64_t>());
}

Result<bool> Checkpointer::join(bool is_new, DistributedDataParallelBase& model, const std::vector<Stateful*>& parts) {
  if (!is_new) return false;
  if (group_.rank() != 0) {
    if (known_step_ >= 0) telemetry_.record_known_checkpoint(known_step_);
    return false;
  }
  copy_.reserve(live_tensors(model, parts));
  const int64_t known = std::exchange(known_step_, -1);  // what is on disk counts
  const Result<Marks> marks = read_marks(std::chrono::milliseconds::max());
  if (!marks && options_.on_error == CheckpointErrors::kContinue) {
    if (stop_.flag().is_raised())
      return fail(ExitCode::kTempFail, std::string("interrupted by a signal while ") + kReadingCheckpoints);
    telemetry_.logger().warn("the newest checkpoint cannot be read; the next save tries again",
                             {{"reason", marks.error().message}});
    known_step_ = known;
    lacks_marks_ = true;
    return requested_step_ >= 0;
  }
  if (!marks) return tl::make_unexpected(marks.error());
  RETURN_IF_ERROR(take_marks(*marks));
  forget_worse_candidate();
  // A checkpoint may be saved again, with the mark of the best one, after an evaluation at the end of an epoch.
  const bool has_mark =
      !candidate_ || candidate_->step != requested_step_ || (best_ && best_->step == candidate_->step);
  return requested_step_ > known_step_ || (requested_step_ >= 0 && !marks->is_last) || !has_mark;
}

// Reads the marks of the newest checkpoint on disk. The other ranks wait in a collective, so that the time may be
// limited.
Result<Checkpointer::Marks> Checkpointer::read_marks(std::chrono::milliseconds limit) const {
  std::optional<Result<Marks>> marks = run_interruptibly<Result<Marks>>(
      [root = options_.store.root]() -> Result<Marks> {
        // A directory that is missing is not one without checkpoints: its volume may not be mounted.
        RETURN_IF_ERROR(make_writable_directory(root));
        Marks out{.high_water_step = read_high_water(root), .latest = {}, .is_last = false};
        ASSIGN_OR_RETURN(out.latest, read_latest_state(root));
        const std::optional<std::filesystem::path>& directory = out.latest.search.directory;
        out.is_last = directory && link_target(root, kLastLink) == directory->filename();
        return out;
      },
      stop_.flag(), kStopGrace, limit);
  if (marks) return std::move(*marks);
  if (stop_.flag().is_raised())
    return fail(ExitCode::kTempFail, std::string("interrupted by a signal while ") + kReadingCheckpoints);
  return fail(ExitCode::kIoErr, fmt::format("{} does not respond", options_.store.root.string()));
}

// The other ranks have the state of the run, so that damaged checkpoints do not end the run: they are left as they are.
Result<void> Checkpointer::take_marks(const Marks& marks) {
  high_water_step_ = std::max(high_water_step_, marks.high_water_step);
  for (const SkippedCheckpoint& damaged : marks.latest.search.skipped)
    telemetry_.logger().warn("a checkpoint is damaged; the ranks continue from memory", {{"reason", damaged.reason}});
  if (!marks.latest.search.directory) return {};
  RETURN_IF_ERROR(restore_marks(*marks.latest.state, *marks.latest.search.directory));
  telemetry_.record_known_checkpoint(known_step_);
  return {};
}

void Checkpointer::forget_worse_candidate() {
  if (!candidate_ || !best_ || candidate_->step == best_->step) return;
  if (!is_better(options_.best->mode, candidate_->value, best_->value)) candidate_.reset();
}

// Reads the marks on rank 0 if the directory was not available when this rank replaced a lost one. Without them, a save
// would remove the best checkpoint as an old one.
Result<void> Checkpointer::read_missing_marks() {
  if (!lacks_marks_) return {};
  ASSIGN_OR_RETURN(const Marks marks, read_marks(kMarksPatience));
  RETURN_IF_ERROR(take_marks(marks));
  lacks_marks_ = false;
  forget_worse_candidate();
  high_water_ = std::make_unique<AsyncHighWater>(options_.store.root);
  return {};
}

}  // namespace oarlock

// What a run saves and how it comes back: rank 0 writes and reads the files, the others get their state from it, so
// that ranks need no common file system.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/async_store.h"
#include "trainer/checkpoint/high_water.h"
#include "trainer/checkpoint/host_copy.h"
#include "trainer/checkpoint/stateful.h"
#include "trainer/config/checkpoint.h"
#include "trainer/distributed/distributed_model.h"
#include "trainer/distributed/process_group.h"
#include "trainer/distributed/reduction_state.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// How far a run has come.
struct Position {
  int64_t step = 0;           // optimizer steps done
  int64_t epoch = 0;          // the epoch under way, from 0
  int64_t epoch_samples = 0;  // of it, samples consumed by all ranks together

  bool operator==(const Position&) const = default;
};

// What must not change between the runs that share a folder.
struct RunIdentity {
  std::string task;
  uint64_t seed = 0;
};

struct CheckpointerOptions {
  StoreOptions store;
  RunIdentity identity;
  CheckpointErrors on_error = CheckpointErrors::kContinue;
  AllDamaged on_all_damaged = AllDamaged::kStop;
  std::optional<Monitor> best;  // none: no checkpoint is the best
};
CheckpointerOptions checkpointer_options(const CheckpointConfig& config, const CheckpointOwner& owner,
                                         RunIdentity identity, const Monitor& monitor);

enum class SaveUntil { kBegun, kOnDisk };

// Methods are called by all ranks together and fail on all of them alike, where nothing else is said.
//
// A save goes on at once; a thread copies the state into memory and writes it. One save is under way at a time: the
// next one waits for it. What becomes of it is seen by rank 0 at poll(), and told to the others by the next save. A
// save that fails is reported; by the policy `stop` it ends the run, and no later save is tried; by `continue` the next
// save tries again. That a newer attempt has taken the folder over (kTempFail) always ends the run.
class Checkpointer {
 public:
  // The references must outlive the checkpointer. Takes the folder's fence; fails as CheckpointStore::open does.
  // A signal stops it as it stops restore().
  static Result<std::unique_ptr<Checkpointer>> open(const CheckpointerOptions& options, const RankGroup& group,
                                                    StopAgreement& stop, Telemetry& telemetry, const Clock& clock);
  // Waits for the save under way.
  ~Checkpointer();

  // The newest valid checkpoint into the model and the parts of all ranks; nothing where there is none. Damaged ones
  // that are newer are set aside. A part that the checkpoint does not have begins afresh, with a warning; what the
  // checkpoint has beyond the parts is left out, with a warning. kConfig: it belongs to another task or seed. kDataErr:
  // to another model. kCheckpoint, kNoPermission, kTempFail: it cannot be read, or all are damaged; nothing was
  // changed. kTempFail, too, where a signal stops the ranks while rank 0 reads (StopAgreement::agreed()).
  Result<std::optional<Position>> restore(DistributedModel& model, const std::vector<Stateful*>& parts);

  // Where a run is over, for what looks at its best model: the best checkpoint's tensors into the model and the parts
  // of all ranks, and its step. Nothing happens where no checkpoint is the best. A signal stops it as it stops
  // restore().
  Result<std::optional<int64_t>> restore_best(DistributedModel& model, const std::vector<Stateful*>& parts);

  // Does nothing if the last save was of this position. Until it is on disk: fails when it is not, whatever the policy.
  Result<void> save(const Position& position, DistributedModel& model, const std::vector<Stateful*>& parts,
                    SaveUntil until);

  // Before this rank writes to the parameters or to what the parts hold: waits until the save has copied them, which a
  // thread does beside forward and backward. In the phase `checkpoint` afterwards, where it had to wait.
  void wait_for_copy();

  // After an evaluation at this step: whether the model is the best so far, so that it must be saved before the next
  // step. kConfig when the metric is not among them.
  Result<bool> evaluated(int64_t step, const Metrics& metrics);

  // After every step, by each rank for itself: looks whether the save under way is over, without waiting. True: the run
  // must end, and agree_on_failure() must be called by all ranks.
  bool poll(int64_t step);
  Result<void> agree_on_failure();

  // Before the process ends otherwise: lets the save under way finish, for as long.
  void settle(std::chrono::milliseconds patience);

  // Of the newest checkpoint saved or restored; on rank 0 only.
  const std::string& folder() const { return folder_; }

 private:
  struct Best {
    int64_t step = 0;
    double value = 0;
  };

  Checkpointer(CheckpointerOptions options, const RankGroup& group, StopAgreement& stop, Telemetry& telemetry,
               const Clock& clock);

  // On rank 0.
  Result<std::string> load_newest(const LatestCheckpoint& latest, DistributedModel& model,
                                  const std::vector<Stateful*>& parts);
  Result<std::string> load_best(const Result<Checkpoint>& best, DistributedModel& model,
                                const std::vector<Stateful*>& parts);
  std::optional<std::filesystem::path> best_folder() const;
  Result<void> load(const Checkpoint& checkpoint, DistributedModel& model, const std::vector<Stateful*>& parts);
  void keep_reduction(const Checkpoint& checkpoint, const DistributedModel& model);
  void restore_marks(const Checkpoint& checkpoint, const CheckpointSearch& search);
  Result<void> restart_from_nothing(const CheckpointSearch& search);
  Result<void> set_aside(const std::vector<SkippedCheckpoint>& damaged);
  void warn_of_sections(const Checkpoint& checkpoint, const std::vector<Stateful*>& parts);
  bool is_saved(const Position& position) const;
  void begin_save(const Position& position, DistributedModel& model, const std::vector<Stateful*>& parts,
                  ReductionState reduction);
  Result<void> finish_save(std::optional<FinishedSave> finished);
  std::optional<Error> fatal(const Result<void>& saved) const;

  Result<void> spread(const nlohmann::json& state, DistributedModel& model, const std::vector<Stateful*>& parts);
  Result<void> share(const Result<void>& own);

  CheckpointerOptions options_;
  const RankGroup& group_;
  StopAgreement& stop_;
  Telemetry& telemetry_;
  const Clock& clock_;

  // Of rank 0.
  HostCopy copy_;
  std::unique_ptr<AsyncStore> store_;
  std::unique_ptr<HighWater> high_water_;
  SteadyTime high_water_time_{};
  int64_t high_water_step_ = 0;
  std::optional<Position> under_way_;  // of the save that was begun last, until it has failed
  std::optional<Best> best_;           // on disk
  std::optional<Best> candidate_;      // better, not on disk yet
  std::optional<Error> failure_;       // that ends the run
  std::string folder_;
  ReductionState reduction_;  // that the run goes on with, while it is restored

  int64_t known_step_ = -1;  // of the newest checkpoint on disk, as far as this rank knows
};

}  // namespace oarlock

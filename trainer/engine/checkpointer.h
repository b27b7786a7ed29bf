// Saves and restores the state of a run. Rank 0 writes and reads the files, and the other ranks receive their state
// from it, so the ranks need no common file system.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/checkpoint.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/process_group.h"
#include "ddp/reduction_state.h"
#include "trainer/checkpoint/async_store.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/config/agreement.h"
#include "trainer/config/evaluation.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"
#include "trainer/report/run_summary.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// What a wait for reading was for, in messages about a signal.
inline constexpr char kReadingCheckpoints[] = "checkpoints were read; a new start reads them again";

// What a run trains, and on which data. Task and seed must be the same for all runs that share a directory. Other
// changes since the checkpoint are logged; data that are too few for the position of the checkpoint are an error.
struct RunIdentity {
  std::string task;
  uint64_t seed = 0;
  AgreedValues settings{};
  AgreedValues data{};
  int64_t train_samples = -1;  // -1: unknown
};

struct CheckpointerOptions {
  StoreOptions store;
  RunIdentity identity;
  SafetensorsMetadata model_metadata{};  // of model.safetensors and ema.safetensors
  CheckpointErrors on_error = CheckpointErrors::kContinue;
  AllDamaged on_all_damaged = AllDamaged::kStop;
  std::optional<Monitor> best;  // none: the best checkpoint is not tracked
  // Whether this process replaces a lost rank, and receives the state of the run from another one. With the policy
  // `continue`, a directory that is not available does not prevent that, as it does not end the other ranks.
  bool is_replacement = false;
};
CheckpointerOptions checkpointer_options(const CheckpointConfig& config, const CheckpointOwner& owner,
                                         RunIdentity identity, const Monitor& monitor);

// When save() returns.
enum class SaveUntil { kStarted, kOnDisk };

// Unless noted otherwise, all ranks call the methods together, from the training thread, and a failure is returned on
// all of them.
//
// Rank 0 uses the directory on other threads only, because a file server may not respond.
//
// save() returns immediately; a thread copies the state into memory and writes it. At most one save is in flight: the
// next one waits for it. If the ranks agree to stop (see StopAgreement) while the directory does not respond, the wait
// ends after a limited time: save() then fails with kTempFail, and the thread is abandoned until the process ends. Rank
// 0 detects the outcome of a save in poll(), and the next save broadcasts it. A failed save is logged. With the policy
// `stop` it ends the run, and no later save is attempted; with `continue` the next save tries again. A save whose
// links could not be set is a failed one, too. If a newer attempt or generation has taken over the directory
// (kTempFail), the run always ends.
class Checkpointer {
 public:
  // Acquires the fence of the directory. The references must outlive the checkpointer. Fails as CheckpointStore::open()
  // does, and with kTempFail if a signal interrupts it, as restore() does. See also
  // CheckpointerOptions::is_replacement.
  static Result<std::unique_ptr<Checkpointer>> open(const CheckpointerOptions& options, const ProcessGroup& group,
                                                    StopAgreement& stop, Telemetry& telemetry, const Clock& clock);
  // Waits for the save in flight.
  ~Checkpointer();

  // Loads the newest valid checkpoint into the model and the parts of all ranks, and returns its position, or nothing
  // if there is no checkpoint. Newer ones that are damaged are set aside, and the links are corrected. A part that the
  // checkpoint does not contain is initialized, and a section of the checkpoint without a part is ignored, each with a
  // warning. Fails with kConfig if the checkpoint belongs to another task or seed; with kDataErr if it belongs to
  // another model, or its position is behind the end of the training data; with kCheckpoint, kNoPermission or kTempFail
  // if it cannot be read or all are damaged, and then nothing was changed. Fails with kTempFail also if a signal stops
  // the ranks while rank 0 reads (StopAgreement::agreed()).
  Result<std::optional<TrainingPosition>> restore(DistributedDataParallelBase& model,
                                                  const std::vector<Stateful*>& parts);

  // At the end of a run, loads the tensors of the best checkpoint into the model and the parts of all ranks, and
  // returns its step. Does nothing and returns nothing if there is no best checkpoint. A signal interrupts it as it
  // does restore().
  Result<std::optional<int64_t>> restore_best(DistributedDataParallelBase& model, const std::vector<Stateful*>& parts);

  // Does nothing if the last save was of this position. With kOnDisk, waits for the save and returns its failure
  // whatever the policy.
  Result<void> save(const TrainingPosition& position, DistributedDataParallelBase& model,
                    const std::vector<Stateful*>& parts, SaveUntil until);

  // Must be called before this rank writes to the parameters or to the tensors of the parts: waits until the save in
  // flight has copied them, which a thread does concurrently with forward and backward. Enters the phase `checkpoint`
  // if it has to wait.
  void wait_for_copy();

  // Called after an evaluation at this step; returns whether the model is the best so far, so that it must be saved
  // before the next step. Fails with kConfig if the metric is missing.
  Result<bool> evaluated(int64_t step, const Metrics& metrics);

  // Called after every step, by each rank independently: checks without waiting whether the save in flight is complete.
  // Returns true if the run must end; then all ranks must call agree_on_failure().
  bool poll(int64_t step);
  Result<void> agree_on_failure();

  // `call` is called before each save is committed, by the thread that writes it.
  void before_commit(std::function<void()> call) { before_commit_ = std::move(call); }

  // Returns a function that fails if another process has taken over the directory, as is_fenced_off() reports. Rank 0
  // calls it immediately before it writes another file of the run. Any thread may call it, also later than the end of
  // this object. It succeeds if the fence cannot be read.
  std::function<Result<void>()> writer_check() const;

  // ---- recovery without a checkpoint (docs/recovery-engine.md) ----

  // Called by each rank when it has joined a later group than the one in which it has opened this object, and before
  // it trains in it: rank 0 claims the fence. Fails only as is_fenced_off() reports. If the directory is not available,
  // the next save tries again.
  Result<void> claim(int64_t generation, const std::string& group);

  // Returns the state of this object that a rank which replaces a lost one needs.
  nlohmann::json state_for_joining() const;
  // Called by every rank but the donor with the donor's state.
  void take_state(const nlohmann::json& state);
  // Called by every rank afterwards. `is_new` is true on a rank that replaces a lost one and has not completed join()
  // yet; as rank 0 it reads the marks of the newest checkpoint on disk, and allocates the memory of a save. Returns
  // whether the last save that the donor took part in is not on disk, because rank 0 was lost meanwhile.
  Result<bool> join(bool is_new, DistributedDataParallelBase& model, const std::vector<Stateful*>& parts);
  // Undoes the changes of evaluated() since state_for_joining() returned `state`.
  void undo_evaluation(const nlohmann::json& state);

  // Called before the process ends otherwise: waits at most this long for the save in flight.
  void drain(std::chrono::milliseconds timeout);

  // The directory of the newest checkpoint saved or restored; on rank 0 only.
  const std::string& directory() const { return directory_; }

  // The best evaluation whose checkpoint is on disk; none if it is not tracked, and on other ranks than 0.
  std::optional<BestEvaluation> best() const;

 private:
  struct Best {
    int64_t step = 0;
    double value = 0;
  };

  Checkpointer(CheckpointerOptions options, const ProcessGroup& group, StopAgreement& stop, Telemetry& telemetry,
               const Clock& clock);

  // Called on rank 0 only.
  struct Found {  // in the directory
    LatestCheckpoint latest;
    int64_t high_water_step = 0;
  };
  Result<std::string> load_newest(const Found& found, DistributedDataParallelBase& model,
                                  const std::vector<Stateful*>& parts);
  Result<std::string> load_best(const Result<std::optional<Checkpoint>>& best, DistributedDataParallelBase& model,
                                const std::vector<Stateful*>& parts);
  Result<void> load(const Checkpoint& checkpoint, DistributedDataParallelBase& model,
                    const std::vector<Stateful*>& parts);
  void keep_reduction(const Checkpoint& checkpoint, const DistributedDataParallelBase& model);
  Result<void> check_changes(const CheckpointState& state, const std::filesystem::path& directory) const;
  Result<void> restore_marks(const CheckpointState& state, const std::filesystem::path& directory);
  Result<void> check_restart(const CheckpointSearch& search) const;
  void warn_of_sections(const Checkpoint& checkpoint, const std::vector<Stateful*>& parts);
  bool is_saved(const TrainingPosition& position) const;
  void begin_save(const TrainingPosition& position, DistributedDataParallelBase& model,
                  const std::vector<Stateful*>& parts, ReductionState reduction);
  Result<void> finish_save(std::optional<FinishedSave> finished);
  std::optional<Error> fatal(const Result<void>& saved) const;
  bool has_given_up(SteadyTime since, int64_t written) const;
  struct Marks {  // of the newest checkpoint on disk
    int64_t high_water_step = 0;
    LatestState latest;
    bool is_last = false;  // "last" refers to it
  };
  Result<Marks> read_marks(std::chrono::milliseconds limit) const;
  Result<void> take_marks(const Marks& marks);
  Result<void> read_missing_marks();
  void forget_worse_candidate();  // after the marks on disk were read

  // Called by all ranks.
  Result<void> repair_directory(const std::vector<SkippedCheckpoint>& damaged, bool is_restored);
  Result<std::optional<FinishedSave>> wait_for_save();
  Result<void> broadcast(const nlohmann::json& state, DistributedDataParallelBase& model,
                         const std::vector<Stateful*>& parts);
  Result<void> share_result(const Result<void>& own);

  CheckpointerOptions options_;
  const ProcessGroup& group_;
  StopAgreement& stop_;
  Telemetry& telemetry_;
  const Clock& clock_;

  // Used by rank 0 only.
  std::function<void()> before_commit_;
  HostCopy copy_;
  std::unique_ptr<AsyncCheckpointStore> store_;
  std::unique_ptr<AsyncHighWater> high_water_;
  SteadyTime high_water_time_{};
  int64_t high_water_step_ = 0;
  std::optional<TrainingPosition> last_save_;  // of the save that was started last; none after it has failed
  std::optional<Best> best_;                   // on disk
  std::optional<Error> failure_;               // a failed save that ends the run
  std::optional<FinishedSave>
      finished_;               // not reported yet, during wait_for_save() and after a collective of it failed
  bool is_abandoned_ = false;  // the save in flight
  bool lacks_marks_ = false;   // the directory was not available in join(), nor since
  std::string directory_;
  ReductionState reduction_;  // to resume with, during restore()

  std::optional<Best> candidate_;  // better than best_; this rank has no confirmation yet that it is on disk
  int64_t requested_step_ = -1;    // of the last save()
  int64_t known_step_ = -1;        // of the newest checkpoint on disk, as known to this rank
};

}  // namespace oarlock

// What a run saves and how it comes back: rank 0 writes and reads the files, the others get their state from it, so
// that ranks need no common file system.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/checkpoint/store.h"
#include "trainer/distributed/distributed_model.h"
#include "trainer/distributed/process_group.h"
#include "trainer/optim/optimizer.h"
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

// Every method is called by all ranks together and fails on all of them alike.
class Checkpointer {
 public:
  // The references must outlive the checkpointer. Takes the folder's fence; fails as CheckpointStore::open does.
  static Result<std::unique_ptr<Checkpointer>> open(const StoreOptions& options, RunIdentity identity,
                                                    const RankGroup& group, Telemetry& telemetry, const Clock& clock);

  // The newest valid checkpoint into model and optimizer of all ranks; nothing where there is none. kConfig: it belongs
  // to another task or seed. kDataErr: to another model.
  Result<std::optional<Position>> restore(DistributedModel& model, Optimizer& optimizer);

  // Does nothing if the last checkpoint is of this position.
  Result<void> save(const Position& position, DistributedModel& model, const Optimizer& optimizer);

  // Of the newest checkpoint saved or restored; on rank 0 only.
  const std::string& folder() const { return folder_; }

 private:
  Checkpointer(const StoreOptions& options, RunIdentity identity, const RankGroup& group, Telemetry& telemetry,
               const Clock& clock)
      : options_(options), identity_(std::move(identity)), group_(group), telemetry_(telemetry), clock_(clock) {}

  // On rank 0: loads the newest into this rank's model and optimizer; the position as JSON, "" where there is none.
  Result<std::string> load_newest(DistributedModel& model, Optimizer& optimizer);
  Result<void> write(const Position& position, DistributedModel& model, const Optimizer& optimizer);

  StoreOptions options_;
  RunIdentity identity_;
  const RankGroup& group_;
  Telemetry& telemetry_;
  const Clock& clock_;
  std::unique_ptr<CheckpointStore> store_;  // rank 0's
  std::optional<Position> last_;
  std::string folder_;
};

}  // namespace oarlock

// One rank from its environment to its exit code: puts the parts together and says how it ended.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "common/contract.h"
#include "trainer/config/load.h"
#include "trainer/distributed/connection.h"
#include "trainer/engine/configured.h"
#include "trainer/engine/task_table.h"
#include "trainer/engine/train_loop.h"
#include "trainer/process/environment.h"
#include "trainer/process/termination.h"

namespace oarlock {

struct RunOptions {
  ConfigSource config;
  std::optional<std::string> checkpoint_dir;  // overrides the config's
  int metrics_port = 0;                       // of this rank; 0: none
  bool any_metrics_port = false;              // pick a free one
  std::string version;
  std::string revision;
};

struct Outcome {
  ExitCode code = ExitCode::kOk;
  std::string reason;   // for the termination message
  std::string message;  // one line
};

class RankProcess {
 public:
  // The references must outlive the object.
  RankProcess(RunOptions options, RankEnvironment environment, const TaskTable& tasks, const StopFlag& stop,
              const Clock& clock, const Logger& logger);

  // How to end after an exception that no other place has caught, with a diagnosis where a rank was lost. Any thread.
  LastWord explain(const std::exception_ptr& exception) const;

  // Trains to the end. Never throws. After a failure the object must not be destroyed: the threads of a group that has
  // lost a rank wait for it until their time-out; leave with _Exit().
  Outcome run();

  TerminationMessage termination_message(const Outcome& outcome) const;

 private:
  Result<TrainSummary> train();
  Activity activity() const;
  Result<Configured> load_configuration() const;
  Result<void> configure();
  Result<void> start_telemetry();
  void serve_metrics();
  Result<void> meet_ranks();
  Result<void> build();
  Result<void> fit_batches();
  Result<void> load_pretrained_weights(const torch::nn::Module& module);
  Result<void> open_checkpoints();
  std::string reason_for(const Error& error) const;
  // With this rank's host and device, where the device failed: the peers repeat it, and the operator records it.
  Error located(Error error) const;
  void log_plan();
  void report(const TrainSummary& summary, double seconds);

  RunOptions options_;
  RankEnvironment environment_;
  const TaskTable& tasks_;
  const StopFlag& stop_;
  const Clock& clock_;
  Logger logger_;

  // In the order in which they come to be; destroyed backwards.
  TrainerConfig config_;
  BatchPlan plan_;
  std::unique_ptr<Task> task_;
  at::Device device_ = at::kCPU;
  std::unique_ptr<Telemetry> telemetry_;
  c10::intrusive_ptr<c10d::Store> store_;
  RankGroup group_;
  std::optional<StopAgreement> stops_;            // once the ranks are connected
  std::unique_ptr<PeerWatch> watch_;              // null in a world of one
  std::unique_ptr<CollectiveWatch> collectives_;  // of NCCL, else null
  std::unique_ptr<DistributedModel> model_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::optional<TrainLoop> loop_;
};

}  // namespace oarlock

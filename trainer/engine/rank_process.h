// The composition root of one rank: from its environment to its exit code and termination message.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/contract.h"
#include "ddp/group_membership.h"
#include "ddp/init_distributed.h"
#include "ddp/process_group.h"
#include "recovery/regroup.h"
#include "trainer/config/load.h"
#include "trainer/device/device.h"
#include "trainer/engine/task.h"
#include "trainer/engine/task_setup.h"
#include "trainer/engine/train_loop.h"
#include "trainer/process/job_environment.h"
#include "trainer/process/termination.h"
#include "trainer/report/run_summary.h"

namespace oarlock {

struct RunOptions {
  ConfigSource config;
  std::optional<std::string> checkpoint_dir;  // overrides checkpoint.dir
  int metrics_port = 0;                       // of this rank; 0: metrics are not served
  bool any_metrics_port = false;              // use a free one
  // Opens the channel over which the ranks regroup after the loss of a rank. Empty: the loss of a rank ends the
  // process.
  std::function<Result<std::unique_ptr<RegroupChannel>>()> open_channel{};
  int cpu_sharers = 0;                             // ranks that share the CPUs of this process; 0: all of the node
  std::optional<InPodRestarts> in_pod_restarts{};  // before this process was started
  std::string version;
  std::string revision;
};

struct Outcome {
  ExitCode code = ExitCode::kOk;
  std::string reason;        // for the termination message
  std::string message;       // one line
  bool is_graceful = false;  // interrupted by a signal, and not because of a failure
  bool is_alone = false;     // the ranks were not connected yet, so no other rank reports the failure
};

// What the selection of a device depends on. Pure.
LocalRank local_rank_of(const JobEnvironment& environment);

class RankProcess final : private GroupMember {
 public:
  // The references must outlive the object.
  RankProcess(RunOptions options, JobEnvironment environment, const TaskTable& tasks, const StopFlag& stop,
              const Clock& clock, const Logger& logger);

  // The last message and exit code after an uncaught exception, with a diagnosis if a rank was lost. Thread-safe.
  ProcessExit explain(const std::exception_ptr& exception) const;

  // Trains until the end of the run. Never throws. After a failure the object must not be destroyed, because the
  // threads of a group that has lost a rank wait for it until their timeout; end the process with _Exit().
  Outcome run();

  TerminationMessage termination_message(const Outcome& outcome) const;

 private:
  Result<TrainSummary> train();
  PeerActivity activity() const;
  Result<ConfiguredTask> load_configuration() const;
  Result<void> configure();
  Result<void> start_telemetry();
  void serve_metrics();
  Result<void> connect();
  Result<DistributedOptions> connect_options() const;
  int64_t read_fence() const;
  tl::unexpected<Error> report_fenced_off(Error error);
  Result<void> build();

  // Recovery without a checkpoint (docs/recovery-engine.md), after a failure that can_recover() accepts.
  Result<void> accept_assignment(const Assignment& assignment) const;
  int world_size() const { return membership_.world_size(); }  // of the current group
  bool is_on_one_node() const;                                 // all ranks of the group
  bool shares_memory() const;
  Result<void> resize();
  bool can_recover(const Error& error) const;
  Result<TrainSummary> stop_in_recovery(const Error& error);
  void enable_recovery();
  Result<TrainSummary> run_loop();
  void leave_group() override;
  RecoveryState recovery_state() const override { return loop_->recovery_state(); }
  Result<void> join_group(const LostRank& lost) override;
  bool is_final(const Error& error) const override;

  Result<void> fit_batches();
  Result<void> check_smallest_batches();
  Result<void> load_pretrained_weights(const torch::nn::Module& module);
  Result<void> open_checkpoints();
  Result<void> open_tracking();
  void finish_tracking(const Outcome& outcome, const Result<TrainSummary>& summary);
  void report_times() const;
  Outcome outcome_of(const Result<TrainSummary>& summary);
  std::string reason_for(const Error& error) const;
  // Adds this rank's host and device to the message if the device failed. The peers repeat it, and the operator records
  // it.
  Error located(Error error) const;
  std::string monitored_metric() const;
  void show_header(int64_t step, int64_t target_steps);
  void report(const TrainSummary& summary, double seconds);

  RunOptions options_;
  JobEnvironment environment_;
  const TaskTable& tasks_;
  const StopFlag& stop_;
  const Clock& clock_;
  Logger logger_;
  SteadyTime begin_;  // of run()

  // In the order of creation; destroyed in reverse.
  TrainerConfig configured_;  // before apply_plan()
  TrainerConfig config_;
  nlohmann::json printed_config_;
  AgreedValues settings_;  // that must be equal on all ranks
  AgreedValues data_;      // the same of the data, once they are open
  BatchPlan plan_;
  std::unique_ptr<Task> task_;
  at::Device device_ = at::kCPU;
  bool has_lost_gpu_ = false;  // device_ is the CPU because a GPU or its driver failed
  std::unique_ptr<Telemetry> telemetry_;
  GroupMembership membership_;
  const ProcessGroup& group_;  // of membership_
  bool can_recover_ = false;
  std::optional<StopAgreement> stops_;  // set once the ranks are connected
  std::unique_ptr<DistributedDataParallelBase> model_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<RunTracking> tracking_;  // null on other ranks than 0, and if nothing is tracked
  std::unique_ptr<StepProfiler> profiler_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::optional<TrainLoop> loop_;
};

}  // namespace oarlock

// Records the history of a run and writes it to files after every evaluation (section "report").
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/clock.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/evaluation.h"
#include "trainer/distributed/process_group.h"
#include "trainer/report/history.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// All ranks call the methods together, from the training thread. Without files to write they do nothing. Rank 0 writes
// the files and logs a warning if that fails: a report must not end a run, and checkpoints contain the history too.
class RunReport final : public Stateful {
 public:
  // Relative paths are resolved in `folder`. The references must outlive the report.
  RunReport(const ReportConfig& config, const std::filesystem::path& folder, const ProcessGroup& group,
            Telemetry& telemetry, const Clock& clock);

  bool is_enabled() const { return !history_path_.empty() || !curves_path_.empty(); }

  // Called after every step with this rank's loss: a scalar on its device, the mean over `samples` samples of this
  // rank. Does not wait for the device. A loss that is not finite is ignored.
  void add_step(const at::Tensor& loss, int64_t samples, double learning_rate);

  // Sums the losses over all ranks. Called before the state is saved. Waits for the device.
  void reduce_losses();

  // Called after an evaluation at `step`, when `epoch` epochs are completed.
  void add_evaluation(int64_t step, double epoch, const std::map<std::string, double>& metrics);

  std::string_view section() const override { return "history"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  double seconds() const;
  void write(const std::filesystem::path& path, const std::string& content);

  std::filesystem::path history_path_;  // empty: none
  std::filesystem::path curves_path_;
  const ProcessGroup& group_;
  Telemetry& telemetry_;
  const Clock& clock_;
  SteadyTime begin_;
  double seconds_before_ = 0;  // duration of the run in earlier processes

  History history_;
  at::Tensor sums_;      // this rank's, not reduced yet: double [2] on its device, of loss * samples and of samples
  double loss_sum_ = 0;  // since the last entry, over all ranks
  double samples_ = 0;
  double learning_rate_ = 0;  // of the last step
};

}  // namespace oarlock

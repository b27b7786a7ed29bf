// Keeps the history of a run and writes it down after every evaluation (the section "report").
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/clock.h"
#include "trainer/checkpoint/stateful.h"
#include "trainer/config/report.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/history.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// Methods are called by all ranks together; without files to write they do nothing. Rank 0 writes, and what it could
// not write is logged: a run does not end because of a picture, and a checkpoint has the history, too.
class RunReport final : public Stateful {
 public:
  // Relative paths lie in `folder`. The references must outlive the report.
  RunReport(const ReportConfig& config, const std::filesystem::path& folder, const RankGroup& group,
            Telemetry& telemetry, const Clock& clock);

  bool wanted() const { return !history_path_.empty() || !curves_path_.empty(); }

  // After every step: this rank's loss, a scalar on its device, the mean over so many samples of this rank. Does not
  // wait for the device. A loss that is not finite does not count.
  void trained(const at::Tensor& loss, int64_t samples, double learning_rate);

  // Before the state is saved: adds up what the ranks have; waits for the device.
  void settle();

  // After an evaluation at this step, so many epochs into the run.
  void evaluated(int64_t step, double epoch, const std::map<std::string, double>& metrics);

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
  const RankGroup& group_;
  Telemetry& telemetry_;
  const Clock& clock_;
  SteadyTime begin_;
  double seconds_before_ = 0;  // that the run took in earlier processes

  History history_;
  at::Tensor sums_;      // this rank's, not added up yet: double [2] on its device, of loss * samples and of samples
  double loss_sum_ = 0;  // since the last entry, of all ranks
  double samples_ = 0;
  double learning_rate_ = 0;  // of the last step
};

}  // namespace oarlock

// The history of a run (section "report"): the results of its evaluations, as JSON columns and as curves, recorded and
// written to files after every evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "ddp/process_group.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/evaluation.h"

namespace oarlock {

struct HistoryEntry {
  double epoch = 0;                         // completed passes over the training data, with the current fraction
  int64_t step = 0;                         // completed optimizer steps
  double train_loss = 0;                    // mean over the samples since the previous entry; NaN without samples
  double learning_rate = 0;                 // of the last step
  double seconds = 0;                       // duration of the run so far, over all its processes
  std::map<std::string, double> metrics{};  // of the evaluation
};

// Entries in ascending order of steps.
using History = std::vector<HistoryEntry>;

// Appends an entry. Replaces entries of the same and later steps, which a resumed run evaluates again.
void add_entry(History& history, HistoryEntry entry);

// Returns {"epoch": [...], "step": [...], "train_loss": [...], "learning_rate": [...], "seconds": [...],
// "val_<metric>": [...]}, all lists of the same length; null for a number that is missing or not finite.
nlohmann::json to_columns(const History& history);

// The inverse of to_columns(). Fails with kDataErr for anything else.
Result<History> from_columns(const nlohmann::json& columns);

// Returns an SVG document with a chart over the epochs for the loss in training and evaluation, for each other metric,
// and for the learning rate. A number that is not finite leaves a gap in its curve. Without entries the charts are
// empty.
std::string render_curves(const History& history);

struct ReportFile {
  std::filesystem::path path;
  std::string content;
};

// Replaces the files atomically, and creates their directories. A failure is logged as a warning: a report must not end
// a run, and checkpoints contain the history, too.
void write_report(const std::vector<ReportFile>& files, const Logger& logger);

// ---- Recording ---------------------------------------------------------------------------------------------------

// All ranks call the methods together, from the training thread. Without files to write they do nothing. Rank 0 writes
// the files: write_report() below, which may block on a file server.
class RunReport final : public Stateful {
 public:
  // Relative paths are resolved in `directory`. The references must outlive the report.
  RunReport(const ReportConfig& config, const std::filesystem::path& directory, const ProcessGroup& group,
            const Clock& clock);

  bool is_enabled() const { return !history_path_.empty() || !curves_path_.empty(); }

  // Called after every step with this rank's loss: a scalar on its device, the mean over `samples` samples of this
  // rank. Does not wait for the device. A loss that is not finite is ignored.
  void add_step(const at::Tensor& loss, int64_t samples, double learning_rate);

  // Sums the losses over all ranks. Called before the state is saved. Waits for the device.
  void reduce_losses();

  // Called after an evaluation at `step`, when `epoch` epochs are completed. Returns the new content of the files on
  // rank 0, and nothing on the other ranks.
  std::vector<ReportFile> add_evaluation(int64_t step, double epoch, const std::map<std::string, double>& metrics);

  std::string_view section() const override { return "history"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  double seconds() const;

  std::filesystem::path history_path_;  // empty: none
  std::filesystem::path curves_path_;
  const ProcessGroup& group_;
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

#include "trainer/report/run_report.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr char kColumns[] = "columns";
constexpr char kLossSum[] = "loss_sum";
constexpr char kSamples[] = "samples";
constexpr char kLearningRate[] = "learning_rate";
constexpr char kSeconds[] = "seconds";

std::filesystem::path path_in(const std::filesystem::path& folder, const std::string& file) {
  return file.empty() ? std::filesystem::path() : folder / file;  // an absolute path is unchanged
}

}  // namespace

RunReport::RunReport(const ReportConfig& config, const std::filesystem::path& folder, const ProcessGroup& group,
                     Telemetry& telemetry, const Clock& clock)
    : history_path_(path_in(folder, config.history)),
      curves_path_(path_in(folder, config.curves)),
      group_(group),
      telemetry_(telemetry),
      clock_(clock),
      begin_(clock.steady()) {}

void RunReport::add_step(const at::Tensor& loss, int64_t samples, double learning_rate) {
  if (!is_enabled()) return;
  learning_rate_ = learning_rate;
  const at::NoGradGuard no_gradients;
  const at::Tensor value = loss.detach().to(at::kDouble);
  const at::Tensor own = at::stack({at::nan_to_num(value, 0.0, 0.0, 0.0), at::isfinite(value).to(at::kDouble)});
  sums_ = sums_.defined() ? sums_.add_(own, static_cast<double>(samples)) : own * static_cast<double>(samples);
}

void RunReport::reduce_losses() {
  if (!is_enabled()) return;
  std::array<double, 2> sums{};
  if (sums_.defined()) {
    const at::Tensor host = sums_.cpu();
    sums = {host[0].item<double>(), host[1].item<double>()};
  }
  group_.all_reduce_sum(sums);
  if (sums_.defined()) sums_.zero_();  // after the collective, which throws if a rank was lost
  loss_sum_ += sums[0];
  samples_ += sums[1];
}

void RunReport::add_evaluation(int64_t step, double epoch, const std::map<std::string, double>& metrics) {
  if (!is_enabled()) return;
  reduce_losses();
  const bool again = !history_.empty() && history_.back().step == step;  // after a resume at this step
  HistoryEntry entry{.epoch = epoch,
                     .step = step,
                     .train_loss = samples_ > 0 ? loss_sum_ / samples_ : std::numeric_limits<double>::quiet_NaN(),
                     .learning_rate = learning_rate_,
                     .seconds = seconds(),
                     .metrics = metrics};
  if (again && samples_ == 0) entry.train_loss = history_.back().train_loss;
  loss_sum_ = samples_ = 0;
  add_entry(history_, std::move(entry));
  if (group_.rank() != 0) return;
  if (!history_path_.empty()) write(history_path_, to_columns(history_).dump(2) + "\n");
  if (!curves_path_.empty()) write(curves_path_, render_curves(history_));
}

void RunReport::write(const std::filesystem::path& path, const std::string& content) {
  Result<void> written = path.has_parent_path() ? make_writable_folder(path.parent_path()) : Result<void>();
  if (written) written = write_file_atomically(path, content);
  if (!written)
    telemetry_.logger().warn("report: the history of the run was not written", {{"error", written.error().message}});
}

double RunReport::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(clock_.steady() - begin_).count();
}

nlohmann::json RunReport::values() const {
  return {{kColumns, to_columns(history_)},
          {kLossSum, loss_sum_},
          {kSamples, samples_},
          {kLearningRate, learning_rate_},
          {kSeconds, seconds()}};
}

Result<void> RunReport::restored(const nlohmann::json& values) {
  try {
    ASSIGN_OR_RETURN(history_, from_columns(values.at(kColumns)));
    loss_sum_ = values.at(kLossSum);
    samples_ = values.at(kSamples);
    learning_rate_ = values.at(kLearningRate);
    seconds_before_ = values.at(kSeconds);
    begin_ = clock_.steady();
    return {};
  } catch (const nlohmann::json::exception& error) {
    return fail(ExitCode::kDataErr, fmt::format("history: the checkpoint's state is damaged: {}", error.what()));
  }
}

}  // namespace oarlock

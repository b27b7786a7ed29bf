#include "cli/job_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/trainer_check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

// Exit codes from here on are no result of oarlock-trainer: a shell reports programs that cannot be executed, and those
// that a signal ended.
constexpr int kNoResult = 126;

// What oarlock-trainer reports of spec.trainer.
class TrainerPart {
 public:
  explicit TrainerPart(TrainerCheck trainer) : trainer_(std::move(trainer)) {}

  // Returns whether there is no problem, and records problems in `result`.
  Result<bool> is_valid(const InputFile& file, const api::TrainingJob& job, JobCheckResult& result) {
    if (!TrainerCheck::applies_to(job)) return true;
    const auto note = [&](const std::string& subject, const std::string& reason) {
      print_error(fmt::format("{}: note: {} is not checked: {}\n", printable(file.name()), subject, printable(reason)));
    };
    const std::string subject = "spec.trainer of " + shortened(job.metadata.name);
    if (const std::string image = TrainerCheck::foreign_image(job); !image.empty()) {
      note(subject, fmt::format("the image {} is not oarlock/trainer", shortened(image)));
      return true;
    }
    if (!trainer_.program()) {
      if (!std::exchange(has_noted_, true)) note("spec.trainer", trainer_.program().error().message);
      return true;
    }
    // Signals end this process except while the check runs: output may block.
    ASSIGN_OR_RETURN(const launch::SignalSource signals, launch::SignalSource::take());
    ASSIGN_OR_RETURN(const launch::GroupResult checked, trainer_.run(file, job, {}, launch::Stdio::kErrors, signals));
    signals.restore();
    if (checked.interrupted_by != 0) {
      result.exit_code = 128 + checked.interrupted_by;
      result.no_result = 0;
      is_interrupted_ = true;
    } else if (checked.exit_code >= kNoResult) {
      note(subject, fmt::format("oarlock-trainer ended with exit code {}", checked.exit_code));
      result.no_result = std::max(result.no_result, checked.exit_code);
    } else {
      result.exit_code = std::max(result.exit_code, checked.exit_code);
    }
    return checked.exit_code == 0 && !is_interrupted_;
  }

  bool is_interrupted() const { return is_interrupted_; }

 private:
  TrainerCheck trainer_;
  bool has_noted_ = false;  // that there is no oarlock-trainer
  bool is_interrupted_ = false;
};

Result<std::vector<InputFile>> open_files(const std::vector<std::string>& files, std::string_view command) {
  if (files.empty()) {
    return fail(ExitCode::kUsage, fmt::format("missing file; give it as oarlock {} FILE, or with -f FILE (- for "
                                              "standard input)",
                                              command));
  }
  if (std::ranges::count(files, "-") > 1) return fail(ExitCode::kUsage, "standard input (-) is given twice");
  std::vector<InputFile> out;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(InputFile input, InputFile::open(file));
    out.push_back(std::move(input));
  }
  return out;
}

}  // namespace

Result<JobCheckResult> check_jobs(const std::vector<std::string>& files, const JobCheckOptions& options,
                                  const OnValidJob& on_valid) {
  JobCheckResult out;
  ASSIGN_OR_RETURN(out.files, open_files(files, options.command));
  const TemplateCheck check = options.any_pod_fields ? TemplateCheck::kNone : TemplateCheck::kPodSchema;
  std::vector<Result<JobFile>> read;
  for (const InputFile& file : out.files) read.push_back(read_jobs(file, check));

  const RealClock clock;
  launch::Console console(fmt::format("oarlock {}", options.command));
  TrainerPart trainer(TrainerCheck(clock, console));
  for (size_t i = 0; i < read.size(); ++i) {
    const std::optional<Error> problems = read[i] ? read[i]->problems : read[i].error();
    if (problems) {
      print_error(problems->message + "\n");
      out.exit_code = std::max(out.exit_code, to_int(problems->code));
    }
    if (!read[i]) continue;
    for (const api::TrainingJob& job : read[i]->jobs) {
      bool is_valid = true;
      if (!options.any_trainer_keys) {
        ASSIGN_OR_RETURN(is_valid, trainer.is_valid(out.files[i], job, out));
      }
      if (trainer.is_interrupted()) return out;
      if (is_valid && !problems) RETURN_IF_ERROR(on_valid(out.files[i], job));
    }
  }
  return out;
}

}  // namespace oarlock::cli

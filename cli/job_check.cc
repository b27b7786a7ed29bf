#include "cli/job_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/job_warnings.h"
#include "cli/launch/console.h"
#include "cli/launch/supervisor.h"
#include "cli/trainer_check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "yaml/reader.h"

namespace oarlock::cli {
namespace {

// Exit codes from here on are no result of oarlock-trainer: a shell reports programs that cannot be executed, and those
// that a signal ended.
constexpr int kNoResult = 126;

// What oarlock-trainer reports of spec.trainer.
class TrainerPart {
 public:
  // `clock` and `console` must outlive this object.
  // `program` is the one that the user has named; empty: oarlock-trainer.
  TrainerPart(const Clock& clock, launch::Console& console, const std::string& program)
      : clock_(clock), console_(console), is_named_(!program.empty()), trainer_(clock, console, program) {}

  // Begins with a file of so many jobs. `shown` is the number of lines with problems of this file so far.
  void begin_file(const InputFile& file, size_t jobs, size_t shown) {
    file_ = {.file = &file, .jobs = jobs, .shown = shown};
  }

  // Returns whether spec.trainer of the next job of the file has no problem, and records problems in `result`.
  Result<bool> is_valid(const api::TrainingJob& job, JobCheckResult& result) {
    ++file_.position;
    if (job.spec.trainer.empty()) return true;
    const std::string subject = "spec.trainer of " + shortened(job.metadata.name);
    if (const std::string obstacle = TrainerCheck::obstacle(job); !is_named_ && !obstacle.empty()) {
      note(subject, obstacle);
      return true;
    }
    if (!trainer_.program()) {
      if (is_named_) return tl::make_unexpected(trainer_.program().error());
      if (!std::exchange(has_noted_, true)) note("spec.trainer", trainer_.program().error().message);
      return true;
    }
    const Key key(job.spec.trainer, job.spec.nodes, job.spec.elastic ? job.spec.elastic->min_nodes : job.spec.nodes,
                  job.spec.processes_per_node);
    auto known = file_.checked.find(key);
    if (known != file_.checked.end() && known->second.exit_code == 0) return true;
    if (file_.shown >= yaml::Problems::kMaxShown) {
      ++file_.not_shown;
      return false;
    }
    if (known == file_.checked.end()) {
      if (file_.checked.size() == kMaxTrainerChecks) {
        ++file_.beyond_limit;
        return false;
      }
      ASSIGN_OR_RETURN(const launch::GroupResult ended, check(job));
      if (ended.interrupted_by != 0) {
        result.exit_code = 128 + ended.interrupted_by;
        result.no_result = 0;
        is_interrupted_ = true;
        return false;
      }
      known = file_.checked.emplace(key, Checked{job.metadata.name, ended.exit_code}).first;
    } else if (known->second.exit_code < kNoResult) {
      print_error(fmt::format("{}: {} has the same problems as that of {}\n", printable(file_.file->name()), subject,
                              shortened(known->second.job)));
      ++file_.shown;
    }
    const int exit_code = known->second.exit_code;
    if (exit_code >= kNoResult) {
      note(subject, fmt::format("oarlock-trainer ended with exit code {}", exit_code));
      result.no_result = std::max(result.no_result, exit_code);
    } else {
      result.exit_code = std::max(result.exit_code, exit_code);
    }
    return exit_code == 0;
  }

  // Reports the jobs of the file that were not checked.
  void end_file(JobCheckResult& result) const {
    const auto more_jobs = [](size_t count) { return fmt::format("{} more {}", count, count == 1 ? "job" : "jobs"); };
    if (file_.not_shown > 0) {
      print_error(fmt::format("{}: and {} whose spec.trainer is not checked\n", printable(file_.file->name()),
                              more_jobs(file_.not_shown)));
    }
    if (file_.beyond_limit > 0) {
      note("spec.trainer of " + more_jobs(file_.beyond_limit),
           fmt::format("the file has more than {} different ones; split it", kMaxTrainerChecks));
      result.no_result = std::max(result.no_result, to_int(ExitCode::kUsage));
    }
  }

  bool is_interrupted() const { return is_interrupted_; }

 private:
  // The input of a check except for the environment: spec.trainer, and the sizes of the group.
  using Key = std::tuple<std::string, int, int, int>;
  struct Checked {
    std::string job;  // the first one with this input
    int exit_code = 0;
  };
  struct File {
    const InputFile* file = nullptr;
    size_t jobs = 0;
    size_t position = 0;  // of the current job, from 1
    size_t shown = 0;     // lines with problems
    size_t not_shown = 0;
    size_t beyond_limit = 0;
    std::map<Key, Checked> checked = {};
  };

  void note(const std::string& subject, const std::string& reason) const {
    print_error(
        fmt::format("{}: note: {} is not checked: {}\n", printable(file_.file->name()), subject, printable(reason)));
  }

  // Runs oarlock-trainer, and counts the lines with problems.
  Result<launch::GroupResult> check(const api::TrainingJob& job) {
    // Signals end this process except while the check runs: output may block.
    ASSIGN_OR_RETURN(const launch::SignalSource signals, launch::SignalSource::take());
    if (file_.jobs > 1) {
      console_.show_progress(fmt::format("checking spec.trainer of {} ({} of {})", shortened(job.metadata.name),
                                         file_.position, file_.jobs));
    }
    const size_t lines_before = console_.err().lines();
    ASSIGN_OR_RETURN(launch::GroupResult ended, trainer_.run(*file_.file, job, {}, signals));
    if (ended.exit_code > 0 && ended.exit_code < kNoResult) file_.shown += console_.err().lines() - lines_before;
    console_.show_progress("");
    const auto signal = console_.flush(signals, clock_, clock_.steady() + launch::kFlushTimeout);
    if (signal && ended.interrupted_by == 0) ended.interrupted_by = *signal;
    signals.restore();
    return ended;
  }

  const Clock& clock_;
  launch::Console& console_;
  const bool is_named_;
  TrainerCheck trainer_;
  File file_;
  bool has_noted_ = false;  // that there is no oarlock-trainer
  bool is_interrupted_ = false;
};

// The number of lines of a message.
size_t line_count(std::string_view message) { return static_cast<size_t>(std::ranges::count(message, '\n')) + 1; }

void print_warnings(const InputFile& file, const api::TrainingJob& job) {
  for (const std::string& warning : job_warnings(job)) {
    print_error(
        fmt::format("{}: warning: {}: {}\n", printable(file.name()), shortened(job.metadata.name), printable(warning)));
  }
}

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
                                  const OnValidJob& on_valid, const OnValidProfile& on_valid_profile) {
  JobCheckResult out;
  ASSIGN_OR_RETURN(out.files, open_files(files, options.command));
  const TemplateCheck check = options.any_pod_fields ? TemplateCheck::kNone : TemplateCheck::kPodSchema;
  std::vector<Result<JobFile>> read;
  for (const InputFile& file : out.files) read.push_back(read_jobs(file, check));

  const RealClock clock;
  launch::Console console(fmt::format("oarlock {}", options.command));
  TrainerPart trainer(clock, console, options.trainer);
  for (size_t i = 0; i < read.size(); ++i) {
    const std::optional<Error> problems = read[i] ? read[i]->problems : read[i].error();
    if (problems) {
      print_error(problems->message + "\n");
      out.exit_code = std::max(out.exit_code, to_int(problems->code));
    }
    if (!read[i]) continue;
    for (const api::AppliedProfile& profile : read[i]->profiles) {
      if (!problems) RETURN_IF_ERROR(on_valid_profile(out.files[i], profile));
    }
    trainer.begin_file(out.files[i], read[i]->jobs.size(), problems ? line_count(problems->message) : 0);
    for (const api::TrainingJob& job : read[i]->jobs) {
      bool is_valid = true;
      if (!options.any_trainer_keys) {
        ASSIGN_OR_RETURN(is_valid, trainer.is_valid(job, out));
      }
      if (trainer.is_interrupted()) return out;
      if (!problems) print_warnings(out.files[i], job);
      if (is_valid && !problems) RETURN_IF_ERROR(on_valid(out.files[i], job));
    }
    trainer.end_file(out);
  }
  return out;
}

}  // namespace oarlock::cli

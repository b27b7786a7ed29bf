// oarlock report: progress of a script that oarlock launch runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "cli/command.h"
#include "cli/launch/process.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr char kReportDescription[] = "Report the progress of a rank to its oarlock launch (docs/guides/progress.md).";

constexpr char kReportFooter[] = R"(
The names step, target_steps, checkpoint_step, loss, samples_per_second, phase and rank have a meaning; all others are
metrics. Without OARLOCK_PROGRESS, which oarlock launch sets, the command does nothing. It never waits.

examples:
  oarlock report step=10 target_steps=1000 loss=0.53
  oarlock report checkpoint_step=10
  oarlock report phase=eval accuracy=0.91
)";

Result<void> add_value(const std::string& word, ProgressReport& report) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (equals == std::string::npos || name.empty())
    return fail(ExitCode::kUsage, fmt::format("'{}' is not NAME=VALUE, such as step=10", shortened(word)));
  const std::string value = word.substr(equals + 1);
  if (name == "phase") {
    report.phase = value;
    return {};
  }
  const std::pair<const char*, std::optional<int64_t>*> counts[] = {
      {"step", &report.step}, {"target_steps", &report.target_steps}, {"checkpoint_step", &report.checkpoint_step}};
  for (const auto& [count, target] : counts) {
    if (name != count) continue;
    *target = parse_integer<int64_t>(value);
    if (target->value_or(-1) >= 0) return {};
    return fail(ExitCode::kUsage, fmt::format("{}={} is not a number of steps", name, shortened(value)));
  }
  if (name == "rank") {
    report.rank = parse_integer<int>(value);
    if (report.rank.value_or(-1) >= 0) return {};
    return fail(ExitCode::kUsage, fmt::format("rank={} is not a rank", shortened(value)));
  }
  const std::optional<double> number = parse_double(value);
  if (!number) return fail(ExitCode::kUsage, fmt::format("{}={} is not a number", name, shortened(value)));
  if (!std::isfinite(*number)) return {};  // a loss may be, and the training continues
  if (name == "loss") {
    report.loss = number;
  } else if (name == "samples_per_second") {
    report.samples_per_second = number;
  } else {
    report.metrics[name] = *number;
  }
  return {};
}

Result<int> report_progress(const Words& words) {
  ProgressReport report;
  for (const std::string& word : words) RETURN_IF_ERROR(add_value(word, report));
  const std::string path = launch::environment_variable(kEnvProgress);
  if (path.empty()) return 0;
  if (!report.rank) report.rank = parse_integer<int>(launch::environment_variable(kEnvRank));
  const std::string line = to_json(report) + "\n";
  // Also open for reading, so that the end of the launcher causes no SIGPIPE.
  const FileDescriptor fifo(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  std::error_code unknown;
  if (fifo.open() && !std::filesystem::is_fifo(path, unknown)) {
    print_error(fmt::format("oarlock report: {}: is not a FIFO; nothing is reported\n", path));
    return 0;
  }
  // A script must not end because its progress is not known.
  if (!fifo.open() || (::write(fifo.get(), line.data(), line.size()) < 0 && errno != EAGAIN))
    print_error(fmt::format("oarlock report: {}: {}; nothing is reported\n", path, std::strerror(errno)));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  auto words = std::make_shared<Words>();
  CLI::App* report = app.add_subcommand("report", kReportDescription);
  report->footer(kReportFooter);
  set_usage(*report, "oarlock report NAME=VALUE...");
  report->add_option("values", *words, "such as step=10")->type_name("NAME=VALUE")->required();
  report->callback([words, &chosen] { chosen = [words] { return report_progress(*words); }; });
}

}  // namespace oarlock::cli

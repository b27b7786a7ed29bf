// oarlock: the command-line tool for users. Each subcommand has its own file and returns an exit code or an Error.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "cli/cluster/commands.h"
#include "cli/command.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

int report(const std::string& command, const Error& error) {
  std::istringstream lines(error.message);
  for (std::string line; std::getline(lines, line);) print_error(fmt::format("{}: error: {}\n", command, line));
  return to_int(error.code);
}

bool has_subcommand(const CLI::App& app, const std::string& name) {
  const auto subcommands = app.get_subcommands(nullptr);
  return std::any_of(subcommands.begin(), subcommands.end(),
                     [&](const CLI::App* sub) { return sub->get_name() == name; });
}

// Lists the subcommands that have no group yet under this heading of the help.
void set_group(CLI::App& app, const std::string& heading) {
  const std::string no_group = CLI::App().get_group();
  for (CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_group() == no_group) sub->group(heading);
  }
}

// Commands of kubectl and other programs, and the command that does the same.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"apply", "submit"},    {"create", "submit"},   {"check", "validate"},  {"lint", "validate"},
    {"template", "render"}, {"describe", "status"}, {"get", "list"},        {"ls", "list"},
    {"ps", "list"},         {"train", "run"},       {"torchrun", "launch"}, {"stop", "suspend"},
    {"cancel", "delete"},   {"kill", "delete"},     {"rm", "delete"},       {"start", "resume"}};

Error unknown_subcommand(const std::string& typed, const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) known.push_back(sub->get_name());
  const auto other = std::ranges::find(kOtherNames, typed, &std::pair<std::string_view, std::string_view>::first);
  const std::string nearest = other == std::end(kOtherNames) ? suggest(typed, known) : std::string(other->second);
  return {ExitCode::kUsage,
          fmt::format("unknown command '{}'{}; the commands are: {}", typed,
                      nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest), fmt::join(known, ", "))};
}

// CLI11's own message lists the arguments in reverse order.
Error unexpected_arguments(const CLI::App& app, const std::string& command) {
  std::string hint = fmt::format("see {} --help", command);
  if (command == "oarlock convert")
    hint = "write the command line after '--': oarlock convert torchrun -- torchrun train.py";
  if (const std::vector<std::string> rest = app.remaining(true); command == "oarlock run" && !rest.empty()) {
    const std::string option = rest.front().starts_with("--") ? rest.front().substr(2) : "";
    if (!option.empty() && option.find('=') == std::string::npos)
      hint = fmt::format("settings of the trainer have the form {}=VALUE; {}", shortened(option), hint);
  }
  return {ExitCode::kUsage, fmt::format("unexpected arguments: {}; {}",
                                        shortened(fmt::format("{}", fmt::join(app.remaining(true), " "))), hint)};
}

int run_main(Words words) {
  std::optional<Words> after_marker;
  if (const auto marker = std::find(words.begin(), words.end(), "--");
      marker != words.end() && (words.front() == "launch" || words.front() == "convert")) {
    after_marker.emplace(marker + 1, words.end());
    words.erase(marker, words.end());
  }
  CLI::App app("Distributed training on Kubernetes and on this machine.", "oarlock");
  app.set_version_flag("--version", "oarlock " OARLOCK_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\nexamples:\n  oarlock run -f trainingjob.yaml\n  oarlock submit -f trainingjob.yaml\n  oarlock status my-job\n "
      " oarlock launch "
      "--nproc 2 -- python3 train.py\n\nSee docs/exit-codes.md "
      "for the exit codes.");
  Chosen chosen;
  add_run(app, chosen);
  add_launch(app, after_marker, chosen);
  add_report(app, chosen);
  add_validate(app, chosen);
  add_render(app, chosen);
  add_convert(app, after_marker, chosen);
  add_doctor(app, chosen);
  add_install(app, chosen);
  set_group(app, "Jobs and ranks on this machine");
  add_cluster_commands(app, chosen);
  set_group(app, "Jobs in a cluster");
  add_help(app, chosen);
  set_group(app, "Help");

  std::string command = "oarlock";
  if (!words.empty() && !words.front().starts_with('-') && !has_subcommand(app, words.front())) {
    return report(command, unknown_subcommand(words.front(), app));
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 requires reverse order
    app.parse(std::move(words));
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ExtrasError&) {
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    return report(command, unexpected_arguments(app, command));
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    return report(command, {ExitCode::kUsage, fmt::format("{}; see {} --help", error.what(), command)});
  }
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  const Result<int> exit_code = chosen();
  return exit_code ? *exit_code : report(command, exit_code.error());
}

}  // namespace
}  // namespace oarlock::cli

int main(int argc, char** argv) {
  if (const oarlock::Result<void> opened = oarlock::open_standard_streams(); !opened)
    return oarlock::to_int(opened.error().code);
  try {
    return oarlock::exit_code_after_flush("oarlock", oarlock::cli::run_main({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    oarlock::print_error(fmt::format("oarlock: error: {}; this is a bug, please report it\n", error.what()));
    return oarlock::to_int(oarlock::ExitCode::kSoftware);
  }
}

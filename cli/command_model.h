// The commands of `oarlock` as plain values, read from the definitions of CLI11, and the texts that are generated from
// them: shell completions, man pages and the help of all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace oarlock::cli {

enum class ValueKind { kNone, kAny, kFile, kDirectory, kChoice };

struct OptionModel {
  std::vector<std::string> names;  // with hyphens; empty for a positional argument
  std::string help;
  std::string value_name;  // "FILE"; empty for a flag
  ValueKind value = ValueKind::kNone;
  std::vector<std::string> choices;  // for kChoice
};

struct CommandModel {
  std::string name;   // "run"
  std::string path;   // "oarlock run"
  std::string usage;  // without "usage: "
  std::string description;
  std::string footer;
  std::vector<OptionModel> options;  // options first, then positional arguments
  std::vector<CommandModel> commands;
  bool runs_program = false;  // a command of the user follows
};

// Reads an application with its subcommands, except hidden ones. `app` must be complete.
CommandModel command_model(const CLI::App& app);

// Returns the script of a shell: "bash", "zsh" or "fish"; "" for any other name.
std::string completion_script(const CommandModel& root, const std::string& shell);

// Returns a man page in the macros of man(7) for one command; the page of `root` lists all commands.
std::string man_page(const CommandModel& command, const CommandModel& root, const std::string& version);

// Returns the help of one command, also while another one is selected; CLI::App::help() would return that of the
// selected one. `parent` is the path of the command above it, "" for the application.
std::string help_text(const CLI::App& app, const std::string& parent);

// Returns the help of the application and of each command, separated by lines with their names.
std::string help_of_all(const CLI::App& app);

}  // namespace oarlock::cli

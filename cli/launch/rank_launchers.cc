#include "cli/launch/rank_launchers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/convert/command.h"
#include "cli/convert/shell_script.h"

namespace oarlock::launch {
namespace {

using Span = std::vector<std::string>;

constexpr int kMaxNesting = 4;  // of shells in shells

constexpr std::string_view kRankLaunchers[] = {"deepspeed", "horovodrun", "srun"};
constexpr std::string_view kRankModules[] = {"deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch",
                                             "horovod.runner", "accelerate.commands.accelerate_cli"};
constexpr std::string_view kShells[] = {"sh", "bash", "dash", "ash", "zsh"};
// Programs whose arguments are options, and then a command.
constexpr std::string_view kWrappers[] = {"env",       "exec",      "nohup",   "nice",    "ionice",
                                          "time",      "timeout",   "stdbuf",  "tini",    "setsid",
                                          "dumb-init", "catatonit", "taskset", "numactl", "command"};
// Package managers, which run a command with the subcommand "run", and their options with a value.
constexpr std::string_view kManagers[] = {"uv", "conda", "poetry", "micromamba", "pixi"};
constexpr std::string_view kManagerOptions[] = {
    "-n",        "-p",      "-e",      "--name", "--prefix",    "--with",          "--python",      "--env-file",
    "--project", "--extra", "--group", "-C",     "--directory", "--manifest-path", "--environment", "--cwd"};

bool is_one_of(std::string_view word, auto& names) { return std::ranges::find(names, word) != std::end(names); }

std::string base_name(const std::string& word) { return word.substr(word.rfind('/') + 1); }

bool has_second(const Span& words, std::string_view second) { return words.size() > 1 && words[1] == second; }

bool is_rank_launcher(const Span& words) {
  const std::string program = base_name(words.front());
  return convert::launcher_of(words) != convert::LauncherKind::kNone || is_one_of(program, kRankLaunchers) ||
         (program == "tune" && has_second(words, "run")) || (program == "oarlock" && has_second(words, "launch"));
}

bool starts_ranks_at(const Span& words, int nesting);

// The script of `python3 -u /usr/local/bin/torchrun`, or the module of -m.
bool python_starts_ranks(const Span& words) {
  size_t at = 1;
  while (at < words.size() && words[at].starts_with('-') && words[at] != "-m") ++at;
  if (at == words.size()) return false;
  if (words[at] == "-m") return at + 1 < words.size() && is_one_of(words[at + 1], kRankModules);
  return is_rank_launcher({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()});
}

bool shell_starts_ranks(const Span& words, int nesting) {
  size_t at = 1;
  const auto is_option = [](const std::string& word) { return word.size() > 1 && (word[0] == '-' || word[0] == '+'); };
  while (at < words.size() && is_option(words[at]) && !(words[at][1] != '-' && words[at].ends_with('c')))
    at += words[at].ends_with('o') ? 2 : 1;  // -o, -euo: with the name of an option
  if (at + 1 >= words.size() || !is_option(words[at])) return false;
  const auto commands = convert::read_shell_script(words[at + 1], "", {});
  if (!commands) return false;
  return std::ranges::any_of(*commands, [nesting](const convert::ShellCommand& command) {
    Span texts;
    for (const convert::ShellWord& word : command.words) texts.push_back(word.text);
    return starts_ranks_at(texts, nesting + 1);
  });
}

// Returns where the command of a wrapper begins; 0: it has none.
size_t command_of_wrapper(const std::string& program, const Span& words) {
  size_t at = 1;
  if (is_one_of(program, kManagers)) {
    if (!has_second(words, "run")) return 0;
    for (++at; at < words.size() && words[at].starts_with('-'); ++at) {
      if (is_one_of(words[at], kManagerOptions)) ++at;
    }
    return at < words.size() ? at : 0;
  }
  if (!is_one_of(program, kWrappers) || (program == "command" && words.size() > 1 && words[1].starts_with('-')))
    return 0;
  const auto is_argument = [](const std::string& word) {  // an option, a number, a duration or a variable
    return word.empty() || word[0] == '-' || (word[0] >= '0' && word[0] <= '9') || word.find('=') != std::string::npos;
  };
  while (at < words.size() && is_argument(words[at])) ++at;
  return at < words.size() ? at : 0;
}

bool starts_ranks_at(const Span& words, int nesting) {
  if (words.empty() || nesting > kMaxNesting) return false;
  const std::string program = base_name(words.front());
  if (is_rank_launcher(words)) return true;
  if (is_one_of(program, kShells)) return shell_starts_ranks(words, nesting);
  if (program.starts_with("python")) return python_starts_ranks(words);
  const size_t at = command_of_wrapper(program, words);
  return at > 0 && starts_ranks_at({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()}, nesting + 1);
}

}  // namespace

bool starts_ranks(const std::vector<std::string>& words) { return starts_ranks_at(words, 0); }

}  // namespace oarlock::launch

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
// Programs whose arguments are options and a command.
constexpr std::string_view kWrappers[] = {
    "env",    "exec", "nohup", "nice",   "ionice",    "time",      "timeout", "stdbuf",     "numactl", "tini",
    "setsid", "uv",   "conda", "poetry", "dumb-init", "catatonit", "taskset", "micromamba", "pixi",    "command"};

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
  const auto is_script_option = [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && word[1] != '-' && word.ends_with('c');
  };
  while (at < words.size() && !is_script_option(words[at])) ++at;
  if (at + 1 >= words.size()) return false;
  const auto commands = convert::read_shell_script(words[at + 1], "", {});
  if (!commands) return false;
  return std::ranges::any_of(*commands, [nesting](const convert::ShellCommand& command) {
    Span texts;
    for (const convert::ShellWord& word : command.words) texts.push_back(word.text);
    return starts_ranks_at(texts, nesting + 1);
  });
}

bool starts_ranks_at(const Span& words, int nesting) {
  if (words.empty() || nesting > kMaxNesting) return false;
  const std::string program = base_name(words.front());
  if (is_rank_launcher(words)) return true;
  if (is_one_of(program, kShells)) return shell_starts_ranks(words, nesting);
  if (program.starts_with("python")) return python_starts_ranks(words);
  if (!is_one_of(program, kWrappers)) return false;
  // The first word after the wrapper that is a known program begins the command.
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string name = base_name(words[i]);
    const Span rest(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
    if (is_rank_launcher(rest)) return true;
    if (is_one_of(name, kShells) || is_one_of(name, kWrappers) || name.starts_with("python"))
      return starts_ranks_at(rest, nesting + 1);
  }
  return false;
}

}  // namespace

bool starts_ranks(const std::vector<std::string>& words) { return starts_ranks_at(words, 0); }

}  // namespace oarlock::launch

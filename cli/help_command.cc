// oarlock help, version, completion and man: the documentation of the program.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/command_model.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr char kCompletion[] =
    "Print the completion script of a shell. It completes commands, options, their values, and files.";

constexpr char kCompletionFooter[] = R"(
bash:  source <(oarlock completion bash)    in ~/.bashrc, or
       oarlock completion bash > ~/.local/share/bash-completion/completions/oarlock
zsh:   source <(oarlock completion zsh)     in ~/.zshrc, after compinit, or
       oarlock completion zsh > DIR/_oarlock, where DIR is in $fpath
fish:  oarlock completion fish > ~/.config/fish/completions/oarlock.fish
)";

constexpr char kManFooter[] = R"(
examples:
  oarlock man | man -l -
  oarlock man run | man -l -
  oarlock man convert > ~/.local/share/man/man1/oarlock-convert.1
)";

// Returns the command with these names below `app`; null if there is none.
const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& names) {
  const CLI::App* current = &app;
  for (const std::string& name : names) {
    const auto subcommands = current->get_subcommands([](const CLI::App*) { return true; });
    const auto found = std::ranges::find_if(subcommands, [&](const CLI::App* sub) { return sub->get_name() == name; });
    if (found == subcommands.end()) return nullptr;
    current = *found;
  }
  return current;
}

const CommandModel* find_model(const CommandModel& root, const std::vector<std::string>& names) {
  const CommandModel* current = &root;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(current->commands, name, &CommandModel::name);
    if (found == current->commands.end()) return nullptr;
    current = &*found;
  }
  return current;
}

tl::unexpected<Error> no_such_command(const CLI::App& app, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const CommandModel& command : command_model(app).commands) known.push_back(command.name);
  return fail(ExitCode::kUsage,
              fmt::format("there is no command '{}'; the commands are: {}",
                          shortened(fmt::format("{}", fmt::join(names, " "))), fmt::join(known, ", ")));
}

Result<int> print(const std::string& text) {
  return write_standard_output(text).map([] { return 0; });
}

Result<int> print_help(const CLI::App& app, const std::vector<std::string>& names, bool all) {
  if (all) return print(help_of_all(app));
  const CLI::App* command = find_command(app, names);
  if (command == nullptr) return no_such_command(app, names);
  std::string parent;
  for (size_t i = 0; i < names.size(); ++i) parent += (i == 0 ? "oarlock" : " " + names[i - 1]);
  return print(help_text(*command, parent));
}

Result<int> print_man(const CLI::App& app, const std::vector<std::string>& names) {
  const CommandModel root = command_model(app);
  const CommandModel* command = find_model(root, names);
  if (command == nullptr) return no_such_command(app, names);
  return print(man_page(*command, root, OARLOCK_VERSION));
}

}  // namespace

void add_help(CLI::App& app, Chosen& chosen) {
  struct HelpFlags {
    std::vector<std::string> names;
    bool all = false;
    std::string shell;
  };
  auto flags = std::make_shared<HelpFlags>();

  CLI::App* completion = app.add_subcommand("completion", kCompletion);
  set_usage(*completion, "oarlock completion bash|zsh|fish");
  completion->footer(kCompletionFooter);
  completion->add_option("shell", flags->shell, "the shell")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, flags, &chosen] {
    chosen = [&app, flags] { return print(completion_script(command_model(app), flags->shell)); };
  });

  CLI::App* man = app.add_subcommand("man", "Print the man page of oarlock or of one of its commands.");
  set_usage(*man, "oarlock man [COMMAND...]");
  man->footer(kManFooter);
  man->add_option("command", flags->names, "the command; default: oarlock itself")->type_name("COMMAND");
  man->callback([&app, flags, &chosen] { chosen = [&app, flags] { return print_man(app, flags->names); }; });

  CLI::App* help = app.add_subcommand("help", "Print the help of oarlock or of one of its commands.");
  set_usage(*help, "oarlock help [COMMAND...]");
  help->add_option("command", flags->names, "the command; default: oarlock itself")->type_name("COMMAND");
  help->add_flag("--all", flags->all, "of every command");
  help->callback(
      [&app, flags, &chosen] { chosen = [&app, flags] { return print_help(app, flags->names, flags->all); }; });

  CLI::App* version = app.add_subcommand("version", "Print the version.");
  set_usage(*version, "oarlock version");
  version->callback([&chosen] { chosen = [] { return print("oarlock " OARLOCK_VERSION "\n"); }; });
}

}  // namespace oarlock::cli

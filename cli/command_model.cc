#include "cli/command_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "cli/command.h"

namespace oarlock::cli {
namespace {

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_name().empty() && !sub->get_group().empty()) out.push_back(sub);
  }
  return out;
}

OptionModel option_model(const CLI::Option& option) {
  OptionModel out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.help = option_help(option);
  if (option.get_items_expected_max() == 0) return out;
  const std::string type = option.get_type_name();
  out.value_name = value_name(type);
  out.choices = choices_of(type);
  if (!out.choices.empty()) {
    out.value = ValueKind::kChoice;
  } else if (out.value_name == "FILE" || out.value_name.starts_with("FILE|") || out.value_name == "PATH") {
    out.value = ValueKind::kFile;
  } else {
    out.value = out.value_name == "DIR" ? ValueKind::kDirectory : ValueKind::kAny;
  }
  return out;
}

CommandModel model_of(const CLI::App& app, const std::string& parent) {
  CommandModel out;
  out.name = app.get_name();
  out.path = parent.empty() ? out.name : parent + " " + out.name;
  out.description = app.get_description();
  out.footer = app.get_footer();
  const auto* formatter = dynamic_cast<const CLI::Formatter*>(app.get_formatter().get());
  std::string usage = formatter == nullptr ? "" : formatter->make_usage(&app, parent);
  while (!usage.empty() && (usage.back() == '\n' || usage.back() == ' ')) usage.pop_back();
  const size_t colon = usage.find(": ");
  out.usage = colon == std::string::npos ? out.path + " [OPTIONS]" : usage.substr(colon + 2);
  if (out.usage.starts_with("[OPTIONS]") || parent.empty()) out.usage = out.path + " COMMAND [OPTIONS]";
  for (const bool positional : {false, true}) {
    for (const CLI::Option* option : app.get_options()) {
      const bool is_positional = option->get_snames().empty() && option->get_lnames().empty();
      if (is_positional == positional && !option->get_group().empty()) out.options.push_back(option_model(*option));
    }
  }
  out.runs_program = app.get_prefix_command();
  for (const CLI::App* sub : subcommands_of(app)) out.commands.push_back(model_of(*sub, out.path));
  return out;
}

// Calls fn for a command and all below it.
template <typename Fn>
void each_command(const CommandModel& command, Fn fn) {
  fn(command);
  for (const CommandModel& sub : command.commands) each_command(sub, fn);
}

std::string first_sentence(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.' && (i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\n')) break;
    out += text[i] == '\n' ? ' ' : text[i];
  }
  return out;
}

// ---- Completion ------------------------------------------------------------------------------------------------

// Quotes for a shell with '...'.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

std::string key_of(const CommandModel& command) {
  std::string key = command.path;
  std::ranges::replace(key, ' ', '/');
  return key;
}

std::vector<std::string> words_of(const CommandModel& command) {
  std::vector<std::string> words;
  for (const CommandModel& sub : command.commands) words.push_back(sub.name);
  for (const OptionModel& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
    if (option.names.empty()) words.insert(words.end(), option.choices.begin(), option.choices.end());
  }
  return words;
}

bool takes_file(const CommandModel& command) {
  return command.runs_program || std::ranges::any_of(command.options, [](const OptionModel& option) {
           return option.names.empty() && option.value == ValueKind::kFile;
         });
}

std::string bash_script(const CommandModel& root) {
  std::string commands, words, values;
  each_command(root, [&](const CommandModel& command) {
    const std::string key = key_of(command);
    for (const CommandModel& sub : command.commands)
      commands += fmt::format("      {}:{}) path={} ;;\n", key, sub.name, key_of(sub));
    words +=
        fmt::format("    {}) words={} files={} ;;\n", key,
                    shell_quoted(fmt::format("{}", fmt::join(words_of(command), " "))), takes_file(command) ? 1 : 0);
    for (const OptionModel& option : command.options) {
      if (option.names.empty() || option.value == ValueKind::kNone) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(key + ":" + name);
      std::string action = "COMPREPLY=()";
      if (option.value == ValueKind::kFile) action = "COMPREPLY=($(compgen -f -- \"$current\"))";
      if (option.value == ValueKind::kDirectory) action = "COMPREPLY=($(compgen -d -- \"$current\"))";
      if (option.value == ValueKind::kChoice)
        action = fmt::format("COMPREPLY=($(compgen -W {} -- \"$current\"))",
                             shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      values += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), action);
    }
  });
  return fmt::format(R"(# bash completion of oarlock. Load it with: source <(oarlock completion bash)
_oarlock() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path={} words= files=0 i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$current"))
      return
    fi
    case "$path:${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$path:$previous" in
{}  esac
  case $path in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files == 1 && $current != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}}
complete -o filenames -o bashdefault -F _oarlock oarlock kubectl-oarlock
)",
                     root.name, commands, values, words);
}

// Escapes what _arguments treats specially in a description.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_function(const CommandModel& command) {
  std::string name = "_" + key_of(command);
  std::ranges::replace(name, '/', '_');
  return name;
}

std::string zsh_value(const OptionModel& option) {
  const std::string name = option.value_name.empty() ? "value" : zsh_text(option.value_name);
  if (option.value == ValueKind::kFile) return fmt::format(":{}:_files", name);
  if (option.value == ValueKind::kDirectory) return fmt::format(":{}:_files -/", name);
  if (option.value == ValueKind::kChoice) return fmt::format(":{}:({})", name, fmt::join(option.choices, " "));
  return option.value == ValueKind::kAny ? fmt::format(":{}: ", name) : "";
}

std::string zsh_script(const CommandModel& root) {
  std::string out =
      "#compdef oarlock kubectl-oarlock\n"
      "# zsh completion of oarlock. Load it with: source <(oarlock completion zsh)\n";
  each_command(root, [&](const CommandModel& command) {
    std::string arguments;
    for (const OptionModel& option : command.options) {
      for (const std::string& name : option.names)
        arguments +=
            " \\\n    " + shell_quoted(fmt::format("*{}[{}]{}", name, zsh_text(option.help), zsh_value(option)));
    }
    if (command.commands.empty()) {
      const auto choice = std::ranges::find_if(
          command.options, [](const OptionModel& option) { return option.names.empty() && !option.choices.empty(); });
      if (choice != command.options.end()) {
        arguments += fmt::format(" \\\n    '1{}'", zsh_value(*choice));
      } else if (command.runs_program) {
        arguments += " \\\n    '*::command:_normal'";
      } else if (takes_file(command)) {
        arguments += " \\\n    '*:file:_files'";
      }
      out += fmt::format("\n{}() {{\n  _arguments -s{}\n}}\n", zsh_function(command), arguments);
      return;
    }
    std::string names, cases;
    for (const CommandModel& sub : command.commands) {
      names += "\n      " + shell_quoted(fmt::format("{}:{}", sub.name, zsh_text(first_sentence(sub.description))));
      cases += fmt::format("        {}) {} ;;\n", sub.name, zsh_function(sub));
    }
    out += fmt::format(R"(
{}() {{
  local line state
  _arguments -C{} \
    '1: :->command' '*::argument:->arguments'
  case $state in
    command)
      local -a commands
      commands=({}
      )
      _describe command commands
      ;;
    arguments)
      case $line[1] in
{}      esac
      ;;
  esac
}}
)",
                       zsh_function(command), arguments, names, cases);
  });
  return out + fmt::format(
                   "\nif [[ $funcstack[1] == _oarlock ]]; then\n  {0} \"$@\"\nelse\n  compdef {0} oarlock "
                   "kubectl-oarlock\nfi\n",
                   zsh_function(root));
}

std::string fish_script(const CommandModel& root) {
  std::string out =
      "# fish completion of oarlock. Load it with: oarlock completion fish | source\ncomplete -c oarlock -f\n";
  each_command(root, [&](const CommandModel& command) {
    // The condition of a command: the words of its path were typed, and none of a command below it.
    std::string condition = "__fish_use_subcommand";
    std::vector<std::string> below;
    for (const CommandModel& sub : command.commands) below.push_back(sub.name);
    if (&command != &root) {
      std::istringstream path(command.path);
      std::string word;
      path >> word;
      condition.clear();
      while (path >> word)
        condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ", word);
      if (!below.empty()) condition += fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(below, " "));
    }
    for (const CommandModel& sub : command.commands)
      out += fmt::format("complete -c oarlock -n {} -a {} -d {}\n", shell_quoted(condition), sub.name,
                         shell_quoted(first_sentence(sub.description)));
    for (const OptionModel& option : command.options) {
      std::string line = fmt::format("complete -c oarlock -n {}", shell_quoted(condition));
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.value == ValueKind::kFile || option.value == ValueKind::kDirectory)
        line += option.names.empty() ? " -F" : " -r -F";
      if (option.value == ValueKind::kChoice)
        line += fmt::format(" -x -a {}", shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      if (option.value == ValueKind::kAny && !option.names.empty()) line += " -x";
      if (option.names.empty() && option.value != ValueKind::kFile && option.value != ValueKind::kChoice) continue;
      out += line + fmt::format(" -d {}\n", shell_quoted(first_sentence(option.help)));
    }
    if (command.runs_program) out += fmt::format("complete -c oarlock -n {} -F\n", shell_quoted(condition));
  });
  return out;
}

// ---- Man pages -------------------------------------------------------------------------------------------------

// Escapes text for roff.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool at_line_start = i == 0 || text[i - 1] == '\n';
    if (at_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_entry(const OptionModel& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + roff(name) + "\\fR");
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (!option.value_name.empty())
    head += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", roff(option.value_name));
  std::string help = option.help;
  if (!option.choices.empty()) help += fmt::format(" (one of: {})", fmt::join(option.choices, ", "));
  return fmt::format(".TP\n{}\n{}\n", head, roff(help));
}

}  // namespace

CommandModel command_model(const CLI::App& app) { return model_of(app, ""); }

std::string completion_script(const CommandModel& root, const std::string& shell) {
  if (shell == "bash") return bash_script(root);
  if (shell == "zsh") return zsh_script(root);
  return shell == "fish" ? fish_script(root) : "";
}

std::string man_page(const CommandModel& command, const CommandModel& root, const std::string& version) {
  std::string title = command.path;
  std::ranges::replace(title, ' ', '-');
  std::string upper = title;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = fmt::format(".TH \"{}\" 1 \"\" \"Oarlock {}\" \"Oarlock\"\n", roff(upper), roff(version));
  out += fmt::format(".SH NAME\n{} \\- {}\n", roff(title), roff(first_sentence(command.description)));
  out += fmt::format(".SH SYNOPSIS\n.nf\n{}\n.fi\n", roff(command.usage));
  out += fmt::format(".SH DESCRIPTION\n{}\n", roff(command.description));
  if (!command.commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const CommandModel& sub : command.commands)
      out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(sub.name), roff(first_sentence(sub.description)));
  }
  if (!command.options.empty()) {
    out += ".SH OPTIONS\n";
    for (const OptionModel& option : command.options) out += option_entry(option);
  }
  if (!command.footer.empty()) out += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.footer));
  std::vector<std::string> others;
  if (&command != &root) {
    others.push_back("\\fBoarlock\\fR(1)");
  } else {
    for (const CommandModel& sub : root.commands)
      others.push_back(fmt::format("\\fBoarlock\\-{}\\fR(1)", roff(sub.name)));
  }
  return out + fmt::format(".SH SEE ALSO\n{}\n", fmt::join(others, ",\n"));
}

std::string help_text(const CLI::App& app, const std::string& parent) {
  const std::string path = parent.empty() ? app.get_name() : parent + " " + app.get_name();
  return app.get_formatter()->make_help(&app, path, CLI::AppFormatMode::Normal);
}

std::string help_of_all(const CLI::App& app) {
  std::string out;
  const auto add = [&](const auto& self, const CLI::App& current, const std::string& path) -> void {
    const std::string own = path.empty() ? current.get_name() : path + " " + current.get_name();
    out += fmt::format("{}==== {} ====\n{}", out.empty() ? "" : "\n", own, help_text(current, path));
    for (const CLI::App* sub : subcommands_of(current)) self(self, *sub, own);
  };
  add(add, app, "");
  return out;
}

}  // namespace oarlock::cli

#include "cli/convert/converters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "cli/convert/shell_script.h"
#include "cli/convert/slurm_options.h"
#include "common/contract.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// Converts one job script.
class SbatchConversion {
 public:
  SbatchConversion(std::string file, const ConvertOptions& options) : options_(options), report_(std::move(file)) {}

  Result<Converted> run(const std::string& script) {
    read_directives(script);
    resolve_counts();
    ASSIGN_OR_RETURN(const std::vector<ShellCommand> commands, read_shell_script(script, report_.file(), variables()));
    const ShellCommand* training = nullptr;
    std::vector<std::string> words;
    for (const ShellCommand& command : commands) {
      Result<std::vector<std::string>> found = training_words(command);
      if (!found) return tl::make_unexpected(found.error());
      if (found->empty()) continue;
      if (training != nullptr)
        return problem(command.line, fmt::format("a second command that trains; the first one is in line {}. Convert "
                                                 "each in its own script",
                                                 training->line));
      training = &command;
      words = std::move(*found);
    }
    if (!report_.errors().empty()) return fail(ExitCode::kConfig, fmt::format("{}", fmt::join(report_.errors(), "\n")));
    if (training == nullptr) {
      return fail(ExitCode::kConfig,
                  fmt::format("{}: no command that trains was found: srun, torchrun, accelerate launch or python",
                              report_.file()));
    }
    resolve_counts();
    return build(*training, words);
  }

 private:
  tl::unexpected<Error> problem(int line, const std::string& message) const {
    return fail(ExitCode::kConfig, fmt::format("{}:{}: {}", report_.file(), line, message));
  }

  void read_directives(const std::string& script) {
    std::istringstream in(script);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      const std::string_view text = trim(line);
      if (text.empty()) continue;
      if (!text.starts_with('#')) return;  // sbatch reads options up to the first command
      if (!text.starts_with("#SBATCH")) continue;
      std::istringstream words{std::string(text.substr(7))};
      std::vector<std::string> options;
      for (std::string word; words >> word && !word.starts_with('#');) options.push_back(word);
      slurm_options_.read(options, number, "#SBATCH");
    }
  }

  void resolve_counts() {
    if (!request_.nodes && request_.tasks && request_.tasks_per_node)
      request_.nodes = (*request_.tasks + *request_.tasks_per_node - 1) / *request_.tasks_per_node;
    nodes_ = request_.nodes.value_or(1);
    if (request_.tasks_per_node) {
      tasks_per_node_ = *request_.tasks_per_node;
    } else {
      tasks_per_node_ = request_.tasks ? std::max<int64_t>(1, (*request_.tasks + nodes_ - 1) / nodes_) : 1;
    }
    gpus_ = request_.gpus_per_node;
    if (!gpus_ && request_.gpus_per_task) gpus_ = *request_.gpus_per_task * tasks_per_node_;
    if (!gpus_ && request_.gpus) gpus_ = std::max<int64_t>(1, *request_.gpus / nodes_);
  }

  // The variables of Slurm that the script can use. $(NAME) is a reference to a variable of the container.
  std::map<std::string, std::string> variables() const {
    std::map<std::string, std::string> out = {
        {"SLURM_NNODES", std::to_string(nodes_)},
        {"SLURM_JOB_NUM_NODES", std::to_string(nodes_)},
        {"SLURM_NTASKS", std::to_string(nodes_ * tasks_per_node_)},
        {"SLURM_NPROCS", std::to_string(nodes_ * tasks_per_node_)},
        {"SLURM_NTASKS_PER_NODE", std::to_string(tasks_per_node_)},
        {"SLURM_NODEID", fmt::format("$({})", kEnvNodeRank)},
        {"SLURM_JOB_NAME", request_.name},
        {"SLURM_JOB_ID", fmt::format("$({})", kEnvUid)},
        {"SLURM_JOBID", fmt::format("$({})", kEnvUid)},
    };
    if (tasks_per_node_ == 1) out["SLURM_PROCID"] = fmt::format("$({})", kEnvNodeRank);
    if (gpus_) {
      out["SLURM_GPUS_ON_NODE"] = std::to_string(*gpus_);
      out["SLURM_GPUS_PER_NODE"] = std::to_string(*gpus_);
    }
    if (request_.cpus_per_task) out["SLURM_CPUS_PER_TASK"] = std::to_string(*request_.cpus_per_task);
    return out;
  }

  static std::string program_of(const std::string& word) { return word.substr(word.rfind('/') + 1); }

  // Returns the words of a command that trains, without srun. Empty for any other command, which is noted if it does
  // something that the pods would need.
  Result<std::vector<std::string>> training_words(const ShellCommand& command) {
    std::vector<std::string> words;
    for (const ShellWord& word : command.words) words.push_back(word.text);
    size_t first = 0;
    static constexpr const char* kWrappers[] = {"exec", "time", "nohup", "eval", "command"};
    while (first < words.size() && std::ranges::find(kWrappers, words[first]) != std::end(kWrappers)) ++first;
    if (first == words.size()) return std::vector<std::string>{};
    const bool is_srun = program_of(words[first]) == "srun";
    if (is_srun) {
      SlurmRequest before = request_;
      const size_t notes_before = report_.notes().size();
      const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(first) + 1, words.end());
      const size_t program = slurm_options_.read(rest, command.line, "srun");
      first += 1 + program;
      static constexpr const char* kPreparations[] = {"hostname", "echo",       "true", "sleep",
                                                      "mkdir",    "nvidia-smi", "date"};
      if (first < words.size() &&
          std::ranges::find(kPreparations, program_of(words[first])) != std::end(kPreparations)) {
        before.directory = request_.directory;  // --chdir counts in any case
        request_ = before;
        report_.notes().resize(notes_before);
        return std::vector<std::string>{};
      }
      if (first == words.size()) {
        if (command.words.back().unknown.empty()) return std::vector<std::string>{};
        return problem(command.line, "srun has no command that is known before the script runs");
      }
    }
    std::vector<std::string> out(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    if (!is_srun && !is_training(out)) {
      note_preparation(command, out);
      const ShellWord& start = command.words[first];
      if (!start.unknown.empty() && start.text.starts_with('$'))
        return problem(command.line, fmt::format("the command is {}, whose value is known only when the script runs; "
                                                 "write the command itself",
                                                 shortened(start.unknown)));
      return std::vector<std::string>{};
    }
    if (!is_training(out) && launcher_of(out) == LauncherKind::kNone && is_srun &&
        !command.words[first].unknown.empty())
      return problem(command.line, fmt::format("the program is {}, whose value is known only when the script runs; "
                                               "write the command itself",
                                               shortened(command.words[first].unknown)));
    if (command.is_conditional)
      report_.note(command.line, out.front(), "is in an if, a loop or a function; it is converted as if it ran once");
    for (size_t i = first; i < command.words.size(); ++i) {
      if (command.words[i].unknown.empty()) continue;
      unknown_.push_back({command.words[i].text, command.words[i].unknown});
    }
    return out;
  }

  static bool is_training(const std::vector<std::string>& words) {
    if (words.empty()) return false;
    if (launcher_of(words) != LauncherKind::kNone) return true;
    const std::string program = program_of(words.front());
    if (program == "oarlock-trainer" || program == "oarlock" || program == "deepspeed" || program == "tune")
      return true;
    if (!program.starts_with("python") || words.size() < 2) return false;
    return words[1] != "-c" && words[1] != "--version" && words[1] != "-V";
  }

  void note_preparation(const ShellCommand& command, const std::vector<std::string>& words) {
    const std::string program = program_of(words.front());
    if (program == "module" || program == "ml" || program == "source" || program == "." || program == "conda" ||
        program == "pip" || program == "pip3" || program == "spack") {
      report_.note(command.line, shortened(fmt::format("{}", fmt::join(words, " "))),
                   "prepares the environment; the image must contain it");
    } else if (program == "cp" || program == "rsync" || program == "tar" || program == "wget" || program == "curl" ||
               program == "unzip" || program == "git") {
      report_.note(command.line, shortened(fmt::format("{}", fmt::join(words, " "))),
                   "is not carried over; use an init container, or a volume that has the data");
    } else if (program == "cd") {
      if (words.size() > 1 && command.words.back().unknown.empty()) request_.directory = words[1];
    }
  }

  // Sets the command or the arguments of the container, and the ranks that it starts on each node.
  void set_command(const ShellCommand& training, const std::string& program, LaunchCommand& launch, JobDraft& draft,
                   Json& trainer) {
    if (launch.launcher != LauncherKind::kNone) {
      draft.processes = launch.processes;
      if (draft.processes.empty() && gpus_ && *gpus_ > 1) draft.processes = "auto";
      trainer["command"] = launch.words;
    } else if (program == "oarlock-trainer") {
      if (tasks_per_node_ > 1) draft.processes = std::to_string(tasks_per_node_);
      trainer["args"] = launch.words;  // the entry point of its image starts the ranks
    } else {
      if (tasks_per_node_ > 1) {
        draft.processes = std::to_string(tasks_per_node_);
        launch.words = with_torchrun(launch.words);
        report_.note(training.line, program,
                     fmt::format("srun started {} tasks on each node; torchrun starts the ranks instead, with RANK and "
                                 "LOCAL_RANK in place of SLURM_PROCID and SLURM_LOCALID",
                                 tasks_per_node_));
      } else if (nodes_ > 1) {
        report_.note(training.line, program, "RANK and WORLD_SIZE replace SLURM_PROCID and SLURM_NTASKS");
      }
      trainer["command"] = launch.words;
    }
  }

  Result<Converted> build(const ShellCommand& training, const std::vector<std::string>& words) {
    const NoteSink sink = [&](const std::string& what, const std::string& message) {
      report_.note(training.line, what, message);
    };
    Result<LaunchCommand> launch = convert_command(words, nodes_, sink);
    if (!launch) return problem(training.line, launch.error().message);
    for (const auto& [text, unknown] : unknown_) {
      const bool is_kept = std::ranges::any_of(launch->words, [&](const auto& word) { return word == text; });
      if (is_kept)
        report_.note(
            training.line, shortened(text),
            fmt::format("{} is known only when the script runs; replace it in spec.template", shortened(unknown)));
    }

    JobDraft draft;
    const std::string slurm_name = request_.name.empty() ? stem_of(report_.file()) : request_.name;
    draft.metadata["name"] = options_.name.empty() ? object_name(slurm_name) : options_.name;
    draft.nodes = nodes_;
    if (const std::string started = take_node_bounds(*launch, draft); !started.empty())
      report_.note(training.line, launch->words.front(),
                   fmt::format("starts {}, but the script requests {}; the request counts", started, nodes_));
    const std::string program = program_of(launch->words.front());
    Json trainer = {{"name", kTrainerContainer}};
    const std::string image = options_.image.empty() ? request_.image : options_.image;
    if (!image.empty()) trainer["image"] = image;
    set_command(training, program, *launch, draft, trainer);
    if (!request_.directory.empty()) trainer["workingDir"] = request_.directory;
    add_environment(training, *launch, trainer);
    add_resources(trainer);
    if (launch->port) draft.port = launch->port;
    if (launch->max_restarts) draft.max_restarts = launch->max_restarts;
    if (request_.requeue == false) draft.max_restarts = 0;
    draft.active_deadline_seconds = request_.time_seconds;
    draft.pod = {{"spec", {{"containers", Json::array({trainer})}}}};
    if (image.empty() && program != "oarlock-trainer")
      report_.notes().push_back(report_.file() + ": " +
                                to_note("spec.template", "no image is known; give it with --image"));
    Converted out;
    ASSIGN_OR_RETURN(out.job, finish_job(draft, report_.file()));
    out.notes = std::move(report_.notes());
    return out;
  }

  void add_environment(const ShellCommand& training, const LaunchCommand& launch, Json& trainer) {
    static constexpr const char* kOwn[] = {kEnvMasterAddr, kEnvMasterPort, kEnvRank,          kEnvWorldSize,
                                           kEnvLocalRank,  kEnvNodeRank,   "LOCAL_WORLD_SIZE"};
    // The names of PATH-like variables would replace those of the image.
    static constexpr const char* kOfMachine[] = {"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SHELL", "TMPDIR"};
    for (const auto& [name, value] : training.exported) {
      if (std::ranges::find(kOwn, name) != std::end(kOwn)) {
        report_.note(training.line, name, "is set by the operator");
      } else if (std::ranges::find(kOfMachine, name) != std::end(kOfMachine)) {
        report_.note(training.line, name, "describes the machine; the image has its own");
      } else if (!value.unknown.empty()) {
        report_.note(training.line, name,
                     fmt::format("its value, {}, is known only when the script runs; not carried over",
                                 shortened(value.unknown)));
      } else {
        set_variable(trainer, name, value.text);
      }
    }
    for (const auto& [name, value] : launch.environment) set_variable(trainer, name, value);
  }

  void add_resources(Json& trainer) const {
    Json resources = Json::object();
    if (request_.cpus_per_task) {
      const int64_t cpus = *request_.cpus_per_task * tasks_per_node_;
      resources["requests"]["cpu"] = cpus;
      if (!request_.memory_per_cpu.empty()) {
        const std::string unit = request_.memory_per_cpu.substr(request_.memory_per_cpu.size() - 2);
        const auto each = parse_integer<int64_t>(request_.memory_per_cpu.substr(0, request_.memory_per_cpu.size() - 2));
        int64_t all = 0;
        if (each && !__builtin_mul_overflow(*each, cpus, &all))
          resources["limits"]["memory"] = fmt::format("{}{}", all, unit);
      }
    }
    if (!request_.memory.empty()) resources["limits"]["memory"] = request_.memory;
    const std::optional<int64_t> gpus = options_.gpus ? std::optional<int64_t>(*options_.gpus) : gpus_;
    if (gpus) resources["limits"][kGpuResource] = *gpus;
    if (!resources.empty()) trainer["resources"] = resources;
  }

  const ConvertOptions& options_;
  ScriptReport report_;
  SlurmRequest request_;
  SlurmOptions slurm_options_{request_, report_};
  int64_t nodes_ = 1;
  int64_t tasks_per_node_ = 1;
  std::optional<int64_t> gpus_;
  std::vector<std::pair<std::string, std::string>>
      unknown_;  // words of the command, and the variables that they depend on
};

}  // namespace

bool is_job_script(const std::string& text) {
  return text.starts_with("#!") || text.starts_with("#SBATCH") || text.find("\n#SBATCH") != std::string::npos;
}

Result<Converted> convert_sbatch(const std::string& script, const std::string& file, const ConvertOptions& options) {
  if (!is_utf8(script)) return fail(ExitCode::kConfig, file + ": is not UTF-8 text");
  std::string text;  // with the line ends of Unix
  for (size_t i = 0; i < script.size(); ++i) {
    if (script[i] != '\r' || i + 1 == script.size() || script[i + 1] != '\n') text += script[i];
  }
  return SbatchConversion(file, options).run(text);
}

}  // namespace oarlock::convert

#include "cli/convert/sbatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "cli/convert/shell_script.h"
#include "common/contract.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

constexpr char kGpuResource[] = "nvidia.com/gpu";

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = first_utf8_character(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value < 0) return std::nullopt;
  return value;
}

// Returns a name that Kubernetes accepts, made from a file name or the name of a Slurm job.
std::string object_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (is_plain) name += lower;
    if (!is_plain && !name.empty() && !name.ends_with('-')) name += '-';
  }
  name.resize(std::min<size_t>(name.size(), 50));
  while (name.ends_with('-')) name.pop_back();
  if (name.empty() || name.front() < 'a') name.insert(0, "job-");
  while (name.ends_with('-')) name.pop_back();
  return name;
}

std::string stem_of(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.substr(0, file.find('.'));
}

// The requests of a Slurm job, as far as they are numbers.
struct SlurmRequest {
  std::string name;
  std::optional<int64_t> nodes, tasks, tasks_per_node, cpus_per_task;
  std::optional<int64_t> gpus, gpus_per_node, gpus_per_task;
  std::string memory;          // of a node, a quantity of Kubernetes
  std::string memory_per_cpu;  // likewise
  std::optional<int64_t> time_seconds;
  std::optional<bool> requeue;
  std::string image;
};

// What becomes of an option of sbatch and srun.
enum class SlurmEffect {
  kName,
  kNodeCount,
  kTasks,
  kTasksPerNode,
  kCpusPerTask,
  kGres,
  kGpus,
  kGpusPerNode,
  kGpusPerTask,
  kMemory,
  kMemoryPerCpu,
  kTime,
  kRequeue,
  kNoRequeue,
  kContainer,
  kMounts,
  kPlacement,
  kOutput,
  kFolder,
  kArray,
  kExclusive,
  kSilent,
  kUnsupported
};

struct SlurmOption {
  std::string_view name;
  char letter;     // '\0' if there is none
  bool has_value;  // "--name=value" or "--name value"; options with an optional value are without, and need "="
  SlurmEffect effect;
};

using enum SlurmEffect;

constexpr SlurmOption kSlurmOptions[] = {
    {"job-name", 'J', true, kName},
    {"nodes", 'N', true, kNodeCount},
    {"ntasks", 'n', true, kTasks},
    {"ntasks-per-node", '\0', true, kTasksPerNode},
    {"cpus-per-task", 'c', true, kCpusPerTask},
    {"gres", '\0', true, kGres},
    {"gpus", 'G', true, kGpus},
    {"gpus-per-node", '\0', true, kGpusPerNode},
    {"gpus-per-task", '\0', true, kGpusPerTask},
    {"mem", '\0', true, kMemory},
    {"mem-per-cpu", '\0', true, kMemoryPerCpu},
    {"time", 't', true, kTime},
    {"requeue", '\0', false, kRequeue},
    {"no-requeue", '\0', false, kNoRequeue},
    {"container-image", '\0', true, kContainer},
    {"container-mounts", '\0', true, kMounts},
    {"container-workdir", '\0', true, kFolder},
    {"container-name", '\0', true, kSilent},
    {"container-writable", '\0', false, kSilent},
    {"no-container-mount-home", '\0', false, kSilent},
    {"partition", 'p', true, kPlacement},
    {"constraint", 'C', true, kPlacement},
    {"nodelist", 'w', true, kPlacement},
    {"exclude", 'x', true, kPlacement},
    {"account", 'A', true, kPlacement},
    {"qos", 'q', true, kPlacement},
    {"reservation", '\0', true, kPlacement},
    {"switches", '\0', true, kPlacement},
    {"licenses", 'L', true, kPlacement},
    {"dependency", 'd', true, kUnsupported},
    {"begin", 'b', true, kUnsupported},
    {"array", 'a', true, kArray},
    {"exclusive", '\0', false, kExclusive},
    {"output", 'o', true, kOutput},
    {"error", 'e', true, kOutput},
    {"chdir", 'D', true, kFolder},
    {"input", 'i', true, kSilent},
    {"open-mode", '\0', true, kSilent},
    {"mail-type", '\0', true, kUnsupported},
    {"mail-user", '\0', true, kSilent},
    {"signal", '\0', true, kUnsupported},
    {"comment", '\0', true, kSilent},
    {"export", '\0', true, kSilent},
    {"get-user-env", '\0', false, kSilent},
    {"verbose", 'v', false, kSilent},
    {"quiet", 'Q', false, kSilent},
    {"hint", '\0', true, kSilent},
    {"distribution", 'm', true, kSilent},
    {"threads-per-core", '\0', true, kSilent},
    {"ntasks-per-socket", '\0', true, kSilent},
    {"gpu-bind", '\0', true, kSilent},
    {"gpus-per-socket", '\0', true, kSilent},
    {"cpu-bind", '\0', true, kSilent},
    {"mem-bind", '\0', true, kSilent},
    {"mpi", '\0', true, kSilent},
    {"kill-on-bad-exit", 'K', false, kSilent},
    {"label", 'l', false, kSilent},
    {"unbuffered", 'u', false, kSilent},
    {"wait", 'W', true, kSilent},
    {"overlap", '\0', false, kSilent},
    {"exact", '\0', false, kSilent},
    {"parsable", '\0', false, kSilent},
    {"wckey", '\0', true, kSilent},
    {"nice", '\0', false, kSilent},
    {"priority", '\0', true, kPlacement},
    {"network", '\0', true, kPlacement},
    {"deadline", '\0', true, kUnsupported},
    {"time-min", '\0', true, kSilent},
    {"oversubscribe", 's', false, kSilent},
    {"overcommit", 'O', false, kSilent},
};

// Converts Slurm's "16G", "64000" (MiB) to a quantity; "" if it is none.
std::string to_quantity(const std::string& text) {
  size_t end = 0;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  std::string unit = text.substr(end);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (unit.ends_with('B')) unit.pop_back();
  if (unit.empty()) unit = "M";
  if (end == 0 || unit.size() != 1 || std::string_view("KMGT").find(unit) == std::string_view::npos) return "";
  return fmt::format("{}{}i", text.substr(0, end), unit);
}

// Parses the forms of --time: M, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
std::optional<int64_t> to_seconds(const std::string& text) {
  int64_t days = 0;
  std::string rest = text;
  const size_t hyphen = text.find('-');
  if (hyphen != std::string::npos) {
    const auto number = parse_number(text.substr(0, hyphen));
    if (!number || *number > 36500) return std::nullopt;
    days = *number;
    rest = text.substr(hyphen + 1);
  }
  std::vector<int64_t> parts;
  std::istringstream in(rest);
  for (std::string part; std::getline(in, part, ':');) {
    const auto number = parse_number(part);
    if (!number || *number > 100'000'000) return std::nullopt;
    parts.push_back(*number);
  }
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  int64_t seconds = 0;
  if (hyphen != std::string::npos) {  // begins with hours
    parts.resize(3, 0);
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
  } else if (parts.size() == 1) {
    seconds = parts[0] * 60;
  } else if (parts.size() == 2) {
    seconds = parts[0] * 60 + parts[1];
  } else {
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
  }
  return days * 86400 + seconds;
}

// Converts one job script.
class SbatchConversion {
 public:
  SbatchConversion(std::string file, const ConvertOptions& options) : file_(std::move(file)), options_(options) {}

  Result<Converted> run(const std::string& script) {
    read_directives(script);
    resolve_counts();
    ASSIGN_OR_RETURN(const std::vector<ShellCommand> commands, read_shell_script(script, file_, variables()));
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
    if (!errors_.empty()) return fail(ExitCode::kConfig, fmt::format("{}", fmt::join(errors_, "\n")));
    if (training == nullptr) {
      return fail(
          ExitCode::kConfig,
          fmt::format("{}: no command that trains was found: srun, torchrun, accelerate launch or python", file_));
    }
    resolve_counts();
    return build(*training, words);
  }

 private:
  tl::unexpected<Error> problem(int line, const std::string& message) const {
    return fail(ExitCode::kConfig, fmt::format("{}:{}: {}", file_, line, message));
  }

  void note(int line, const std::string& what, const std::string& message) {
    if (notes_.size() < Report::kMaxNotes)
      notes_.push_back(fmt::format("{}:{}: {}", file_, line, to_note(what, message)));
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
      read_options(options, number, "#SBATCH");
    }
  }

  // Reads options of sbatch or srun, and returns the index of the first word that is none.
  size_t read_options(const std::vector<std::string>& words, int line, const std::string& program) {
    size_t at = 0;
    while (at < words.size() && words[at].size() > 1 && words[at].front() == '-') {
      const std::string word = words[at++];
      const bool is_long = word.starts_with("--");
      std::string name = is_long ? word.substr(2) : word.substr(1, 1);
      std::optional<std::string> value;
      if (const size_t equals = word.find('='); is_long && equals != std::string::npos) {
        name = word.substr(2, equals - 2);
        value = word.substr(equals + 1);
      } else if (!is_long && word.size() > 2) {
        value = word.substr(word[2] == '=' ? 3 : 2);
      }
      const auto* found = std::ranges::find_if(kSlurmOptions, [&](const SlurmOption& option) {
        return is_long ? option.name == name : option.letter == name.front();
      });
      const std::string shown = (is_long ? "--" : "-") + name;
      if (found == std::end(kSlurmOptions)) {
        note(line, shown, fmt::format("is not a known option of {}; not carried over", program));
        // Its value, if the next word is one.
        if (is_long && !value && program == "#SBATCH" && at < words.size() && !words[at].starts_with('-')) ++at;
        continue;
      }
      if (found->has_value && !value) {
        if (at == words.size()) {
          errors_.push_back(fmt::format("{}:{}: {} needs a value", file_, line, shown));
          return at;
        }
        value = words[at++];
      }
      apply(*found, shown, value.value_or(""), line);
    }
    return at;
  }

  void number(std::optional<int64_t>& target, const std::string& shown, const std::string& value, int line) {
    const auto parsed = parse_number(value);
    if (!parsed || *parsed < 1 || *parsed > 1'000'000) {
      errors_.push_back(
          fmt::format("{}:{}: {} is '{}'; a number from 1 is expected", file_, line, shown, shortened(value)));
      return;
    }
    target = parsed;
  }

  void apply(const SlurmOption& option, const std::string& shown, const std::string& value, int line) {
    switch (option.effect) {
      case kName:
        request_.name = value;
        return;
      case kNodeCount: {
        const size_t hyphen = value.find('-');
        number(request_.nodes, shown, hyphen == std::string::npos ? value : value.substr(hyphen + 1), line);
        if (hyphen != std::string::npos)
          note(line, shown, fmt::format("'{}': the job has the maximum, and a fixed size", shortened(value)));
        return;
      }
      case kTasks:
        return number(request_.tasks, shown, value, line);
      case kTasksPerNode:
        return number(request_.tasks_per_node, shown, value, line);
      case kCpusPerTask:
        return number(request_.cpus_per_task, shown, value, line);
      case kGres: {
        if (value != "gpu" && !value.starts_with("gpu:")) {
          note(line, shown, fmt::format("'{}' is not a GPU; not carried over", shortened(value)));
          return;
        }
        return gpu_number(request_.gpus_per_node, shown, value == "gpu" ? "1" : value.substr(4), line);
      }
      case kGpus:
        return gpu_number(request_.gpus, shown, value, line);
      case kGpusPerNode:
        return gpu_number(request_.gpus_per_node, shown, value, line);
      case kGpusPerTask:
        return gpu_number(request_.gpus_per_task, shown, value, line);
      case kMemory:
      case kMemoryPerCpu: {
        std::string& target = option.effect == kMemory ? request_.memory : request_.memory_per_cpu;
        if (value == "0") return note(line, shown, "'0', all memory of a node, has no counterpart; set a request");
        target = to_quantity(value);
        if (target.empty())
          errors_.push_back(
              fmt::format("{}:{}: {} is '{}'; a size such as 64G is expected", file_, line, shown, shortened(value)));
        return;
      }
      case kTime: {
        if (value == "UNLIMITED" || value == "INFINITE" || value == "0") return;
        request_.time_seconds = to_seconds(value);
        if (!request_.time_seconds || *request_.time_seconds < 1)
          errors_.push_back(fmt::format("{}:{}: {} is '{}'; a time such as 24:00:00 or 2-12 is expected", file_, line,
                                        shown, shortened(value)));
        return;
      }
      case kRequeue:
        request_.requeue = true;
        return;
      case kNoRequeue:
        request_.requeue = false;
        return;
      case kContainer: {
        std::string image = value;
        if (image.starts_with("docker://")) image = image.substr(9);
        std::ranges::replace(image, '#', '/');
        if (image.ends_with(".sqsh") || image.starts_with('/') || image.starts_with('.')) {
          note(line, shown, "a file is not an image of a registry; give the image with --image");
        } else {
          request_.image = image;
        }
        return;
      }
      case kMounts:
        return note(line, shown, "mount a PersistentVolumeClaim in spec.template instead");
      case kPlacement:
        return note(line, shown,
                    fmt::format("'{}': choose nodes with nodeSelector, tolerations or affinity in "
                                "spec.template, and priority with priorityClassName",
                                shortened(value)));
      case kOutput:
        return note(line, shown, "kubectl logs shows the output; it is not written to a file");
      case kFolder:
        folder_ = value == "." ? "" : value;
        return;
      case kArray:
        errors_.push_back(fmt::format(
            "{}:{}: {}: a job array has no counterpart; submit one TrainingJob for each index", file_, line, shown));
        return;
      case kExclusive:
        return note(line, shown, "request all CPUs, memory or GPUs of a node, so that no other pod fits");
      case kUnsupported:
        return note(line, shown, "has no counterpart; not carried over");
      case kSilent:
        return;
    }
  }

  // Parses "4" and "a100:4".
  void gpu_number(std::optional<int64_t>& target, const std::string& shown, const std::string& value, int line) {
    const size_t colon = value.rfind(':');
    const std::string text = colon == std::string::npos ? value : value.substr(colon + 1);
    if (colon != std::string::npos || !parse_number(value)) {
      note(line, shown,
           fmt::format("the type in '{}' is not carried over; choose nodes with nodeSelector in spec.template",
                       shortened(value)));
    }
    if (colon == std::string::npos && !parse_number(value)) {  // "gpu:a100": one of them
      target = 1;
      return;
    }
    number(target, shown, text, line);
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
      const SlurmRequest before = request_;
      const size_t notes_before = notes_.size();
      const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(first) + 1, words.end());
      const size_t program = read_options(rest, command.line, "srun");
      first += 1 + program;
      static constexpr const char* kPreparations[] = {"hostname", "echo",       "true", "sleep",
                                                      "mkdir",    "nvidia-smi", "date"};
      if (first < words.size() &&
          std::ranges::find(kPreparations, program_of(words[first])) != std::end(kPreparations)) {
        request_ = before;
        notes_.resize(notes_before);
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
      note(command.line, out.front(), "is in an if, a loop or a function; it is converted as if it ran once");
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
      note(command.line, shortened(fmt::format("{}", fmt::join(words, " "))),
           "prepares the environment; the image must contain it");
    } else if (program == "cp" || program == "rsync" || program == "tar" || program == "wget" || program == "curl" ||
               program == "unzip" || program == "git") {
      note(command.line, shortened(fmt::format("{}", fmt::join(words, " "))),
           "is not carried over; use an init container, or a volume that has the data");
    } else if (program == "cd") {
      if (words.size() > 1 && command.words.back().unknown.empty()) folder_ = words[1];
    }
  }

  Result<Converted> build(const ShellCommand& training, const std::vector<std::string>& words) {
    const NoteSink sink = [&](const std::string& what, const std::string& message) {
      note(training.line, what, message);
    };
    Result<LaunchCommand> launch = convert_command(words, nodes_, sink);
    if (!launch) return problem(training.line, launch.error().message);
    for (const auto& [text, unknown] : unknown_) {
      const bool is_kept = std::ranges::any_of(launch->words, [&](const auto& word) { return word == text; });
      if (is_kept)
        note(training.line, shortened(text),
             fmt::format("{} is known only when the script runs; replace it in spec.template", shortened(unknown)));
    }

    JobDraft draft;
    const std::string slurm_name = request_.name.empty() ? stem_of(file_) : request_.name;
    draft.metadata["name"] = options_.name.empty() ? object_name(slurm_name) : options_.name;
    draft.nodes = nodes_;
    if (launch->nodes && *launch->nodes != nodes_)
      note(training.line, launch->words.front(),
           fmt::format("starts {} nodes, but the script requests {}; the request counts", *launch->nodes, nodes_));
    const std::string program = program_of(launch->words.front());
    Json trainer = {{"name", kTrainerContainer}};
    const std::string image = options_.image.empty() ? request_.image : options_.image;
    if (!image.empty()) trainer["image"] = image;
    if (launch->launcher != LauncherKind::kNone) {
      draft.processes = launch->processes;
      if (draft.processes.empty() && gpus_ && *gpus_ > 1) draft.processes = "auto";
      trainer["command"] = launch->words;
    } else if (program == "oarlock-trainer") {
      if (tasks_per_node_ > 1) draft.processes = std::to_string(tasks_per_node_);
      trainer["args"] = launch->words;  // the entry point of its image starts the ranks
    } else {
      if (tasks_per_node_ > 1) {
        draft.processes = std::to_string(tasks_per_node_);
        launch->words = with_torchrun(launch->words);
        note(training.line, program,
             fmt::format("srun started {} tasks on each node; torchrun starts the ranks instead, with RANK and "
                         "LOCAL_RANK in place of SLURM_PROCID and SLURM_LOCALID",
                         tasks_per_node_));
      } else if (nodes_ > 1) {
        note(training.line, program, "RANK and WORLD_SIZE replace SLURM_PROCID and SLURM_NTASKS");
      }
      trainer["command"] = launch->words;
    }
    if (!folder_.empty()) trainer["workingDir"] = folder_;
    add_environment(training, *launch, trainer);
    add_resources(trainer);
    if (launch->port) draft.port = launch->port;
    if (launch->max_restarts) draft.max_restarts = launch->max_restarts;
    if (request_.requeue == false) draft.max_restarts = 0;
    draft.active_deadline_seconds = request_.time_seconds;
    draft.pod = {{"spec", {{"containers", Json::array({trainer})}}}};
    if (image.empty() && program != "oarlock-trainer")
      notes_.push_back(file_ + ": " + to_note("spec.template", "no image is known; give it with --image"));
    Converted out;
    ASSIGN_OR_RETURN(out.job, finish_job(draft, file_));
    out.notes = std::move(notes_);
    return out;
  }

  void add_environment(const ShellCommand& training, const LaunchCommand& launch, Json& trainer) {
    static constexpr const char* kOwn[] = {kEnvMasterAddr, kEnvMasterPort, kEnvRank,          kEnvWorldSize,
                                           kEnvLocalRank,  kEnvNodeRank,   "LOCAL_WORLD_SIZE"};
    // The names of PATH-like variables would replace those of the image.
    static constexpr const char* kOfMachine[] = {"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SHELL", "TMPDIR"};
    for (const auto& [name, value] : training.exported) {
      if (std::ranges::find(kOwn, name) != std::end(kOwn)) {
        note(training.line, name, "is set by the operator");
      } else if (std::ranges::find(kOfMachine, name) != std::end(kOfMachine)) {
        note(training.line, name, "describes the machine; the image has its own");
      } else if (!value.unknown.empty()) {
        note(training.line, name,
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
        const int64_t each =
            parse_number(request_.memory_per_cpu.substr(0, request_.memory_per_cpu.size() - 2)).value_or(0);
        if (each < 1'000'000'000'000) resources["limits"]["memory"] = fmt::format("{}{}", each * cpus, unit);
      }
    }
    if (!request_.memory.empty()) resources["limits"]["memory"] = request_.memory;
    const std::optional<int64_t> gpus = options_.gpus ? std::optional<int64_t>(*options_.gpus) : gpus_;
    if (gpus) resources["limits"][kGpuResource] = *gpus;
    if (!resources.empty()) trainer["resources"] = resources;
  }

  const std::string file_;
  const ConvertOptions& options_;
  SlurmRequest request_;
  int64_t nodes_ = 1;
  int64_t tasks_per_node_ = 1;
  std::optional<int64_t> gpus_;
  std::string folder_;
  std::vector<std::pair<std::string, std::string>> unknown_;  // words of the command, and what they depend on
  std::vector<std::string> notes_;
  std::vector<std::string> errors_;
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

Result<Converted> convert_command_line(const std::vector<std::string>& words, LauncherKind kind,
                                       const ConvertOptions& options) {
  const char* example = kind == LauncherKind::kTorchrun
                            ? "oarlock convert torchrun -- torchrun --nproc-per-node 4 train.py"
                            : "oarlock convert accelerate -- accelerate launch train.py";
  if (words.empty()) return fail(ExitCode::kUsage, fmt::format("missing command; write it after --: {}", example));
  if (!std::ranges::all_of(words, is_utf8)) return fail(ExitCode::kUsage, "the command is not UTF-8 text");
  if (launcher_of(words) != kind)
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is not {}; write the whole command after --: {}", shortened(words.front()),
                            kind == LauncherKind::kTorchrun ? "torchrun or python -m torch.distributed.run"
                                                            : "accelerate launch",
                            example));
  Converted out;
  const NoteSink sink = [&](const std::string& what, const std::string& message) {
    out.notes.push_back(to_note(what, message));
  };
  ASSIGN_OR_RETURN(const LaunchCommand launch, convert_command(words, std::nullopt, sink));
  JobDraft draft;
  draft.nodes = launch.nodes.value_or(1);
  draft.processes = launch.processes;
  draft.max_restarts = launch.max_restarts;
  draft.port = launch.port;
  Json trainer = {{"name", kTrainerContainer}};
  if (!options.image.empty()) trainer["image"] = options.image;
  trainer["command"] = launch.words;
  for (const auto& [name, value] : launch.environment) set_variable(trainer, name, value);
  if (options.gpus) trainer["resources"]["limits"][kGpuResource] = *options.gpus;
  // The script names the job: the first word that ends in .py, or the word after -m.
  std::string program;
  for (size_t i = 1; i < launch.words.size() && program.empty(); ++i) {
    const bool is_module = launch.words[i - 1] == "-m" && !launch.words[i].starts_with("torch.distributed");
    if (launch.words[i].ends_with(".py") || is_module) program = launch.words[i];
  }
  draft.metadata["name"] =
      options.name.empty() ? object_name(stem_of(program.empty() ? "train" : program)) : options.name;
  draft.pod = {{"spec", {{"containers", Json::array({trainer})}}}};
  if (options.image.empty()) out.notes.push_back(to_note("spec.template", "no image is known; give it with --image"));
  if (!options.gpus)
    out.notes.push_back(to_note("spec.template", draft.processes == "auto"
                                                     ? "one rank for each GPU, but their number is not known; give it "
                                                       "with --gpus"
                                                     : "no GPUs are requested; give their number on each node with "
                                                       "--gpus if the ranks use them"));
  if (program.ends_with(".py") && !program.starts_with('/'))
    out.notes.push_back(to_note(program, "is relative to the working directory of the image"));
  ASSIGN_OR_RETURN(out.job, finish_job(draft, "oarlock convert"));
  return out;
}

}  // namespace oarlock::convert

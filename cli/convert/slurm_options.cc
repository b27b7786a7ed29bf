#include "cli/convert/slurm_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "cli/convert/command.h"
#include "cli/convert/report.h"
#include "common/number.h"
#include "common/text.h"

namespace oarlock::convert {

// The conversion of an option of sbatch and srun.
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
  kPlacement,
  kDirectory,
  kArray,
  kSilent,
  kNote
};

struct SlurmOption {
  std::string_view name;
  char letter;     // '\0' if there is none
  bool has_value;  // "--name=value" or "--name value"; options with an optional value are without, and need "="
  SlurmEffect effect;
  const char* note = "";  // the message of kNote
};

namespace {

using enum SlurmEffect;

constexpr char kUnsupported[] = "has no counterpart; not carried over";
constexpr char kNoFiles[] = "kubectl logs shows the output; it is not written to a file";
constexpr char kMountClaim[] = "mount a PersistentVolumeClaim in spec.template instead";
constexpr char kWholeNode[] = "request all CPUs, memory or GPUs of a node, so that no other pod fits";

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
    {"container-mounts", '\0', true, kNote, kMountClaim},
    {"container-workdir", '\0', true, kDirectory},
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
    {"dependency", 'd', true, kNote, kUnsupported},
    {"begin", 'b', true, kNote, kUnsupported},
    {"array", 'a', true, kArray},
    {"exclusive", '\0', false, kNote, kWholeNode},
    {"output", 'o', true, kNote, kNoFiles},
    {"error", 'e', true, kNote, kNoFiles},
    {"chdir", 'D', true, kDirectory},
    {"input", 'i', true, kSilent},
    {"open-mode", '\0', true, kSilent},
    {"mail-type", '\0', true, kNote, kUnsupported},
    {"mail-user", '\0', true, kSilent},
    {"signal", '\0', true, kNote, kUnsupported},
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
    {"deadline", '\0', true, kNote, kUnsupported},
    {"time-min", '\0', true, kSilent},
    {"oversubscribe", 's', false, kSilent},
    {"overcommit", 'O', false, kSilent},
};

std::optional<int64_t> parse_number(std::string_view text) {
  const std::optional<int64_t> value = parse_integer<int64_t>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

// Converts Slurm's "16G", "64000" (MiB) to a quantity; "" for any other text.
std::string to_quantity(const std::string& text) {
  size_t end = 0;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  std::string unit = text.substr(end);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (unit.ends_with('B')) unit.pop_back();
  if (unit.empty()) unit.push_back('M');
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

}  // namespace

void ScriptReport::note(int line, const std::string& what, const std::string& message) {
  if (notes_.size() < Report::kMaxNotes)
    notes_.push_back(fmt::format("{}:{}: {}", file_, line, to_note(what, message)));
}

void ScriptReport::error(int line, const std::string& message) {
  errors_.push_back(fmt::format("{}:{}: {}", file_, line, message));
}

size_t SlurmOptions::read(const std::vector<std::string>& words, int line, const std::string& program) {
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
      return is_long ? option.name == name : option.letter == name.front() && option.letter != '\0';
    });
    const std::string shown = (is_long ? "--" : "-") + name;
    if (found == std::end(kSlurmOptions)) {
      report_.note(line, shown, fmt::format("is not a known option of {}; not carried over", program));
      // Its value, if the next word is one.
      if (is_long && !value && program == "#SBATCH" && at < words.size() && !words[at].starts_with('-')) ++at;
      continue;
    }
    if (found->has_value && !value) {
      if (at == words.size()) {
        report_.error(line, fmt::format("{} needs a value", shown));
        return at;
      }
      value = words[at++];
    }
    apply(*found, shown, value.value_or(""), line);
  }
  return at;
}

void SlurmOptions::number(std::optional<int64_t>& target, const std::string& shown, const std::string& value,
                          int line) {
  const auto parsed = parse_number(value);
  if (!parsed || *parsed < 1 || *parsed > 1'000'000) {
    report_.error(line, fmt::format("{} is '{}'; a number from 1 is expected", shown, shortened(value)));
    return;
  }
  target = parsed;
}

void SlurmOptions::apply(const SlurmOption& option, const std::string& shown, const std::string& value, int line) {
  switch (option.effect) {
    case kName:
      request_.name = value;
      return;
    case kNodeCount:
      return node_count(shown, value, line);
    case kTasks:
      return number(request_.tasks, shown, value, line);
    case kTasksPerNode:
      return number(request_.tasks_per_node, shown, value, line);
    case kCpusPerTask:
      return number(request_.cpus_per_task, shown, value, line);
    case kGres:
      return generic_resource(shown, value, line);
    case kGpus:
      return gpu_number(request_.gpus, shown, value, line);
    case kGpusPerNode:
      return gpu_number(request_.gpus_per_node, shown, value, line);
    case kGpusPerTask:
      return gpu_number(request_.gpus_per_task, shown, value, line);
    case kMemory:
      return memory(request_.memory, shown, value, line);
    case kMemoryPerCpu:
      return memory(request_.memory_per_cpu, shown, value, line);
    case kTime:
      return time_limit(shown, value, line);
    case kRequeue:
      request_.requeue = true;
      return;
    case kNoRequeue:
      request_.requeue = false;
      return;
    case kContainer:
      return container_image(shown, value, line);
    case kPlacement:
      return report_.note(line, shown,
                          fmt::format("'{}': choose nodes with nodeSelector, tolerations or affinity in "
                                      "spec.template, and priority with priorityClassName",
                                      shortened(value)));
    case kDirectory:
      request_.directory = value == "." ? "" : value;
      return;
    case kArray:
      return report_.error(
          line, fmt::format("{}: a job array has no counterpart; submit one TrainingJob for each index", shown));
    case kNote:
      return report_.note(line, shown, option.note);
    case kSilent:
      return;
  }
}

void SlurmOptions::node_count(const std::string& shown, const std::string& value, int line) {
  const size_t hyphen = value.find('-');
  number(request_.nodes, shown, hyphen == std::string::npos ? value : value.substr(hyphen + 1), line);
  if (hyphen != std::string::npos)
    report_.note(line, shown, fmt::format("'{}': the job has the maximum, and a fixed size", shortened(value)));
}

void SlurmOptions::generic_resource(const std::string& shown, const std::string& value, int line) {
  if (value != "gpu" && !value.starts_with("gpu:")) {
    report_.note(line, shown, fmt::format("'{}' is not a GPU; not carried over", shortened(value)));
    return;
  }
  gpu_number(request_.gpus_per_node, shown, value == "gpu" ? "1" : value.substr(4), line);
}

void SlurmOptions::memory(std::string& target, const std::string& shown, const std::string& value, int line) {
  if (value == "0") return report_.note(line, shown, "'0', all memory of a node, has no counterpart; set a request");
  target = to_quantity(value);
  if (target.empty())
    report_.error(line, fmt::format("{} is '{}'; a size such as 64G is expected", shown, shortened(value)));
}

void SlurmOptions::time_limit(const std::string& shown, const std::string& value, int line) {
  if (value == "UNLIMITED" || value == "INFINITE" || value == "0") return;
  request_.time_seconds = to_seconds(value);
  if (!request_.time_seconds || *request_.time_seconds < 1)
    report_.error(line,
                  fmt::format("{} is '{}'; a time such as 24:00:00 or 2-12 is expected", shown, shortened(value)));
}

void SlurmOptions::container_image(const std::string& shown, const std::string& value, int line) {
  std::string image = value;
  if (image.starts_with("docker://")) image = image.substr(9);
  std::ranges::replace(image, '#', '/');
  if (image.ends_with(".sqsh") || image.starts_with('/') || image.starts_with('.')) {
    report_.note(line, shown, "a file is not an image of a registry; give the image with --image");
  } else {
    request_.image = image;
  }
}

void SlurmOptions::gpu_number(std::optional<int64_t>& target, const std::string& shown, const std::string& value,
                              int line) {
  const size_t colon = value.rfind(':');
  const std::string text = colon == std::string::npos ? value : value.substr(colon + 1);
  if (colon != std::string::npos || !parse_number(value)) {
    report_.note(line, shown,
                 fmt::format("the type in '{}' is not carried over; choose nodes with nodeSelector in spec.template",
                             shortened(value)));
  }
  if (colon == std::string::npos && !parse_number(value)) {  // "gpu:a100": one of them
    target = 1;
    return;
  }
  number(target, shown, text, line);
}

}  // namespace oarlock::convert

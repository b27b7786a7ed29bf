#include "cli/convert/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "common/contract.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

using Strings = std::vector<std::string>;

// The meaning of an option of a launcher for a TrainingJob.
enum class OptionEffect {
  kKeep,       // stays in the command
  kNodes,      // torchrun's N or MIN:MAX
  kProcesses,  // ranks on each node
  kTotal,      // ranks on all nodes
  kRestarts,   // restarts of the whole group
  kPort,       // rendezvous port
  kEndpoint,   // HOST:PORT
  kReplaced,   // the operator provides the value
  kPlacement,  // where mpirun starts processes
  kModule,     // the program is a module
  kVariable,   // mpirun -x NAME[=VALUE]
  kVariable2,  // mpirun -genv NAME VALUE
  kMca,        // mpirun -mca NAME VALUE
};

struct LauncherOption {
  std::string_view name;  // without leading hyphens, '_' as '-'
  int values = 0;         // words that follow
  OptionEffect effect = OptionEffect::kKeep;
};

using enum OptionEffect;

constexpr LauncherOption kTorchrunOptions[] = {
    {"nnodes", 1, kNodes},
    {"nproc-per-node", 1, kProcesses},
    {"max-restarts", 1, kRestarts},
    {"master-port", 1, kPort},
    {"rdzv-endpoint", 1, kEndpoint},
    {"node-rank", 1, kReplaced},
    {"master-addr", 1, kReplaced},
    {"local-addr", 1, kReplaced},
    {"rdzv-backend", 1, kReplaced},
    {"rdzv-id", 1, kReplaced},
    {"rdzv-conf", 1, kReplaced},
    {"standalone", 0, kReplaced},
    {"monitor-interval", 1, kKeep},
    {"start-method", 1, kKeep},
    {"event-log-handler", 1, kKeep},
    {"role", 1, kKeep},
    {"module", 0, kModule},
    {"m", 0, kModule},
    {"no-python", 0, kKeep},
    {"run-path", 0, kKeep},
    {"log-dir", 1, kKeep},
    {"redirects", 1, kKeep},
    {"r", 1, kKeep},
    {"tee", 1, kKeep},
    {"t", 1, kKeep},
    {"local-ranks-filter", 1, kKeep},
    {"duplicate-stdout-filters", 1, kKeep},
    {"duplicate-stderr-filters", 1, kKeep},
    {"logs-specs", 1, kKeep},
    {"numa-binding", 1, kKeep},
    {"signals-to-handle", 1, kKeep},
    {"shutdown-timeout", 1, kKeep},
    {"virtual-local-rank", 0, kKeep},
    {"use-env", 0, kReplaced},  // of torch.distributed.launch; the default of torchrun
};

constexpr LauncherOption kAccelerateOptions[] = {
    {"num-machines", 1, kNodes},
    {"num-processes", 1, kTotal},
    {"max-restarts", 1, kRestarts},
    {"main-process-port", 1, kPort},
    {"machine-rank", 1, kReplaced},
    {"main-process-ip", 1, kReplaced},
    {"rdzv-backend", 1, kReplaced},
    {"rdzv-conf", 1, kReplaced},
    {"same-network", 0, kReplaced},
    {"deepspeed-hostfile", 1, kReplaced},
    {"deepspeed-multinode-launcher", 1, kReplaced},
    {"mpirun-hostfile", 1, kReplaced},
    {"mpirun-ccl", 1, kReplaced},
    {"module", 0, kModule},
    {"m", 0, kModule},
    {"no-python", 0, kKeep},
    {"config-file", 1, kKeep},
    {"quiet", 0, kKeep},
    {"q", 0, kKeep},
    {"debug", 0, kKeep},
    {"cpu", 0, kKeep},
    {"multi-gpu", 0, kKeep},
    {"tpu", 0, kKeep},
    {"ipex", 0, kKeep},
    {"enable-cpu-affinity", 0, kKeep},
    {"mixed-precision", 1, kKeep},
    {"num-cpu-threads-per-process", 1, kKeep},
    {"gpu-ids", 1, kKeep},
    {"dynamo-backend", 1, kKeep},
    {"dynamo-mode", 1, kKeep},
    {"dynamo-use-fullgraph", 0, kKeep},
    {"dynamo-use-dynamic", 0, kKeep},
    {"dynamo-use-regional-compilation", 0, kKeep},
    {"monitor-interval", 1, kKeep},
    {"role", 1, kKeep},
    {"log-dir", 1, kKeep},
    {"tee", 1, kKeep},
    {"gradient-accumulation-steps", 1, kKeep},
    {"use-deepspeed", 0, kKeep},
    {"deepspeed-config-file", 1, kKeep},
    {"zero-stage", 1, kKeep},
    {"offload-optimizer-device", 1, kKeep},
    {"offload-param-device", 1, kKeep},
    {"gradient-clipping", 1, kKeep},
    {"zero3-init-flag", 1, kKeep},
    {"zero3-save-16bit-model", 1, kKeep},
    {"use-fsdp", 0, kKeep},
    {"fsdp-version", 1, kKeep},
    {"fsdp-offload-params", 1, kKeep},
    {"fsdp-min-num-params", 1, kKeep},
    {"fsdp-sharding-strategy", 1, kKeep},
    {"fsdp-reshard-after-forward", 1, kKeep},
    {"fsdp-auto-wrap-policy", 1, kKeep},
    {"fsdp-transformer-layer-cls-to-wrap", 1, kKeep},
    {"fsdp-backward-prefetch", 1, kKeep},
    {"fsdp-state-dict-type", 1, kKeep},
    {"fsdp-forward-prefetch", 1, kKeep},
    {"fsdp-use-orig-params", 1, kKeep},
    {"fsdp-cpu-ram-efficient-loading", 1, kKeep},
    {"fsdp-sync-module-states", 1, kKeep},
    {"fsdp-activation-checkpointing", 1, kKeep},
    {"use-megatron-lm", 0, kKeep},
};

constexpr LauncherOption kMpirunOptions[] = {
    {"np", 1, kTotal},
    {"n", 1, kTotal},
    {"c", 1, kTotal},
    {"ppn", 1, kProcesses},
    {"npernode", 1, kProcesses},
    {"perhost", 1, kProcesses},
    {"H", 1, kPlacement},
    {"host", 1, kPlacement},
    {"hosts", 1, kPlacement},
    {"hostfile", 1, kPlacement},
    {"machinefile", 1, kPlacement},
    {"f", 1, kPlacement},
    {"bind-to", 1, kPlacement},
    {"map-by", 1, kPlacement},
    {"rank-by", 1, kPlacement},
    {"N", 1, kProcesses},
    {"oversubscribe", 0, kPlacement},
    {"allow-run-as-root", 0, kPlacement},
    {"tag-output", 0, kPlacement},
    {"report-bindings", 0, kPlacement},
    {"v", 0, kPlacement},
    {"verbose", 0, kPlacement},
    {"l", 0, kPlacement},
    {"prefix", 1, kPlacement},
    {"iface", 1, kPlacement},
    {"launcher", 1, kPlacement},
    {"x", 1, kVariable},
    {"genv", 2, kVariable2},
    {"env", 2, kVariable2},
    {"genvall", 0, kPlacement},
    {"mca", 2, kMca},
    {"gmca", 2, kMca},
};

std::string file_name(const std::string& word) { return word.substr(word.rfind('/') + 1); }

bool is_python(const std::string& word) { return file_name(word).starts_with("python"); }

// A launcher in a command: its kind, and the words up to its first option.
struct FoundLauncher {
  LauncherKind kind = LauncherKind::kNone;
  size_t begin = 0;
  size_t end = 0;
};

bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

FoundLauncher find_launcher(const Strings& words) {
  size_t at = 0;
  if (at < words.size() && file_name(words[at]) == "env") ++at;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (at == words.size()) return {};
  const std::string program = file_name(words[at]);
  if (program == "torchrun") return {LauncherKind::kTorchrun, at, at + 1};
  if (program == "mpirun" || program == "mpiexec" || program == "mpiexec.hydra")
    return {LauncherKind::kMpirun, at, at + 1};
  if (program == "accelerate" && at + 1 < words.size() && words[at + 1] == "launch")
    return {LauncherKind::kAccelerate, at, at + 2};
  if (!is_python(program)) return {};
  size_t option = at + 1;  // python -u -m torch.distributed.run
  while (option < words.size() && words[option].starts_with('-') && words[option] != "-m") ++option;
  if (option + 1 >= words.size() || words[option] != "-m") return {};
  const std::string& module = words[option + 1];
  if (module == "torch.distributed.run" || module == "torch.distributed.launch")
    return {LauncherKind::kTorchrun, at, option + 2};
  if (module == "accelerate.commands.launch") return {LauncherKind::kAccelerate, at, option + 2};
  return {};
}

std::span<const LauncherOption> options_of(LauncherKind kind) {
  if (kind == LauncherKind::kTorchrun) return kTorchrunOptions;
  if (kind == LauncherKind::kAccelerate) return kAccelerateOptions;
  return kMpirunOptions;
}

std::string name_of(LauncherKind kind) {
  if (kind == LauncherKind::kTorchrun) return "torchrun";
  return kind == LauncherKind::kAccelerate ? "accelerate launch" : "mpirun";
}

// Converts the options of one launcher.
class LauncherConversion {
 public:
  LauncherConversion(LauncherKind kind, const NoteSink& note) : kind_(kind), note_(note) { out_.launcher = kind; }

  Result<LaunchCommand> run(const Strings& words, const FoundLauncher& launcher, std::optional<int64_t> nodes) {
    for (size_t i = 0; i < launcher.begin; ++i) {
      if (!is_assignment(words[i])) continue;
      const size_t equals = words[i].find('=');
      out_.environment[words[i].substr(0, equals)] = words[i].substr(equals + 1);
    }
    size_t at = launcher.end;
    for (; at < words.size() && words[at].starts_with('-') && words[at] != "--"; ++at) {
      if (const Result<size_t> last = option(words, at); last) {
        at = *last;
      } else {
        return tl::make_unexpected(last.error());
      }
    }
    if (at < words.size() && words[at] == "--") ++at;
    if (at == words.size()) return fail(ExitCode::kUsage, name_of(kind_) + ": no program follows the options");
    const Strings program(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
    const Strings start(words.begin() + static_cast<std::ptrdiff_t>(launcher.begin),
                        words.begin() + static_cast<std::ptrdiff_t>(launcher.end));
    RETURN_IF_ERROR(assemble(start, program, nodes));
    return std::move(out_);
  }

 private:
  // Converts the option at `at`, and returns the index of its last word.
  Result<size_t> option(const Strings& words, size_t at) {
    std::string name = words[at].substr(
        words[at].find_first_not_of('-') == std::string::npos ? words[at].size() : words[at].find_first_not_of('-'));
    Strings values;
    const size_t equals = name.find('=');
    const bool is_long = words[at].starts_with("--") || kind_ == LauncherKind::kMpirun;
    if (equals != std::string::npos && is_long) {
      values.push_back(name.substr(equals + 1));
      name.resize(equals);
    }
    std::string normal = name;
    if (kind_ != LauncherKind::kMpirun) std::ranges::replace(normal, '_', '-');
    const auto known = options_of(kind_);
    const auto found = std::ranges::find(known, normal, &LauncherOption::name);
    const std::string shown = words[at].substr(0, words[at].find('='));
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const LauncherOption& option : known) names.push_back("--" + std::string(option.name));
      const std::string nearest = suggest("--" + normal, names);
      return fail(ExitCode::kUsage, fmt::format("{}: {} is not a known option{}", name_of(kind_), shortened(shown),
                                                nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    }
    size_t last = at;
    while (values.size() < static_cast<size_t>(found->values)) {
      if (++last >= words.size())
        return fail(ExitCode::kUsage, fmt::format("{}: {} needs a value", name_of(kind_), shortened(shown)));
      values.push_back(words[last]);
    }
    if (found->values == 0 && !values.empty())
      return fail(ExitCode::kUsage, fmt::format("{}: {} has no value", name_of(kind_), shortened(shown)));
    RETURN_IF_ERROR(apply(*found, shown, values));
    if (found->effect == kKeep || found->effect == kModule)
      kept_.insert(kept_.end(), words.begin() + static_cast<std::ptrdiff_t>(at),
                   words.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    return last;
  }

  Result<void> apply(const LauncherOption& option, const std::string& shown, const Strings& values) {
    const std::string value = values.empty() ? "" : values.front();
    switch (option.effect) {
      case kNodes:
        return set_nodes(shown, value);
      case kProcesses:
        return set_processes(shown, value);
      case kTotal:
        return set_number(out_.total_processes, shown, value, 1);
      case kRestarts:
        return set_number(out_.max_restarts, shown, value, 0);
      case kPort:
        RETURN_IF_ERROR(set_number(out_.port, shown, value, 0));
        if (out_.port == 0) out_.port.reset();  // any free port; so the operator's default will do
        return {};
      case kEndpoint: {
        const size_t colon = value.rfind(':');
        const std::string port = colon == std::string::npos ? "" : value.substr(colon + 1);
        if (const auto number = parse_integer<int64_t>(port); number && *number > 0) out_.port = number;
        note_(shown, "replaced by MASTER_ADDR and MASTER_PORT, which the operator sets");
        return {};
      }
      case kReplaced:
        note_(shown, "replaced by the environment that the operator sets");
        return {};
      case kPlacement:
        note_(shown, "has no meaning without mpirun");
        return {};
      case kMca:
        note_(fmt::format("{} {}", shown, value), "configures MPI, which is not used");
        return {};
      case kVariable2:
        out_.environment[value] = values.back();
        return {};
      case kVariable: {
        const size_t equals = value.find('=');
        if (equals == std::string::npos) return {};  // the environment of the container has it
        out_.environment[value.substr(0, equals)] = value.substr(equals + 1);
        return {};
      }
      case kModule:
      case kKeep:
        return {};
    }
    return {};
  }

  Result<void> set_number(std::optional<int64_t>& target, const std::string& shown, const std::string& value,
                          int64_t least) {
    target = parse_integer<int64_t>(value);
    if (!target && is_computed(shown, value)) return {};
    if (!target || *target < least)
      return fail(ExitCode::kUsage, fmt::format("{}: {} is '{}'; a number from {} is expected", name_of(kind_), shown,
                                                shortened(value), least));
    return {};
  }

  // Returns whether the value is computed when the command runs, and notes it.
  bool is_computed(const std::string& shown, const std::string& value) {
    if (value.find('$') == std::string::npos) return false;
    note_(shown, fmt::format("'{}' is not known before the job runs; not carried over", shortened(value)));
    return true;
  }

  Result<void> set_nodes(const std::string& shown, const std::string& value) {
    const size_t colon = value.find(':');
    out_.min_nodes.reset();
    if (colon == std::string::npos || kind_ != LauncherKind::kTorchrun) return set_number(out_.nodes, shown, value, 1);
    std::optional<int64_t> least;
    RETURN_IF_ERROR(set_number(least, shown, value.substr(0, colon), 1));
    RETURN_IF_ERROR(set_number(out_.nodes, shown, value.substr(colon + 1), 1));
    if (least && out_.nodes && *least > *out_.nodes)
      return fail(ExitCode::kUsage, fmt::format("{}: {} is '{}'; the minimum is above the maximum", name_of(kind_),
                                                shown, shortened(value)));
    if (out_.nodes && least != out_.nodes) out_.min_nodes = least;
    return {};
  }

  Result<void> set_processes(const std::string& shown, const std::string& value) {
    if (value == "gpu" || value == "auto") {
      out_.processes = "auto";
      return {};
    }
    if (value == "cpu") {
      note_(shown, "'cpu' has no counterpart; give the number of ranks on each node");
      return {};
    }
    std::optional<int64_t> number;
    RETURN_IF_ERROR(set_number(number, shown, value, 1));
    if (number) out_.processes = std::to_string(*number);
    return {};
  }

  Result<void> assemble(const Strings& start, const Strings& program, std::optional<int64_t> nodes) {
    if (kind_ == LauncherKind::kMpirun) return assemble_mpi(program, nodes);
    out_.words = start;
    std::ranges::replace(out_.words, "torch.distributed.launch", "torch.distributed.run");
    if (kind_ == LauncherKind::kAccelerate) {
      RETURN_IF_ERROR(divide(out_.nodes ? out_.nodes : nodes, "--num_processes"));
      if (out_.nodes.value_or(nodes.value_or(1)) > 1 || out_.total_processes) add_accelerate_topology(nodes);
    }
    out_.words.insert(out_.words.end(), kept_.begin(), kept_.end());
    out_.words.insert(out_.words.end(), program.begin(), program.end());
    return {};
  }

  // accelerate reads options, but not torchrun's variables. The kubelet expands $(NAME).
  void add_accelerate_topology(std::optional<int64_t> given_nodes) {
    const int64_t nodes = out_.nodes.value_or(given_nodes.value_or(1));
    const auto add = [&](const char* option, const std::string& value) {
      out_.words.insert(out_.words.end(), {option, value});
    };
    if (out_.total_processes) add("--num_processes", std::to_string(*out_.total_processes));
    if (nodes == 1) return;
    add("--num_machines", std::to_string(nodes));
    add("--machine_rank", fmt::format("$({})", kEnvNodeRank));
    add("--main_process_ip", fmt::format("$({})", kEnvMasterAddr));
    add("--main_process_port", fmt::format("$({})", kEnvMasterPort));
  }

  // Divides the number of all ranks by the number of nodes.
  Result<void> divide(std::optional<int64_t> nodes, const char* option) {
    if (!out_.total_processes || !nodes || *nodes < 1) return {};
    if (*out_.total_processes % *nodes != 0)
      return fail(ExitCode::kUsage, fmt::format("{}: {} {} is not a multiple of the {} nodes", name_of(kind_), option,
                                                *out_.total_processes, *nodes));
    out_.processes = std::to_string(*out_.total_processes / *nodes);
    return {};
  }

  Result<void> assemble_mpi(const Strings& program, std::optional<int64_t> nodes) {
    if (std::ranges::find(program, ":") != program.end())
      return fail(ExitCode::kUsage, "mpirun: ':' begins another program; the ranks of a TrainingJob run one program");
    RETURN_IF_ERROR(divide(nodes, "-np"));
    if (is_python(program.front()) && program.size() > 1) {
      out_.words = out_.processes == "1" ? program : with_torchrun(program);
      note_(
          "mpirun",
          "the ranks are started without MPI: the script must use torch.distributed with the backend nccl or gloo and "
          "init_method env://, not mpi4py, and not Horovod");
      return {};
    }
    return fail(ExitCode::kUsage,
                fmt::format("mpirun: '{}' is not a Python script; a TrainingJob has neither mpirun nor SSH between its "
                            "pods, so a program of MPI stays with the MPI operator",
                            shortened(program.front())));
  }

  const LauncherKind kind_;
  const NoteSink& note_;
  LaunchCommand out_;
  Strings kept_;
};

}  // namespace

LauncherKind launcher_of(const std::vector<std::string>& words) { return find_launcher(words).kind; }

std::vector<std::string> with_torchrun(const std::vector<std::string>& words) {
  std::vector<std::string> out = {"torchrun"};
  size_t script = 1;  // after the options of the interpreter
  while (script < words.size() && words[script].starts_with('-') && words[script] != "-m" && words[script] != "-c")
    script += words[script] == "-W" || words[script] == "-X" ? 2 : 1;
  const auto is_kept = [](const std::string& option) { return option != "-u"; };  // torchrun gives -u itself
  const bool has_options = script < words.size() &&
                           std::any_of(words.begin() + 1, words.begin() + static_cast<std::ptrdiff_t>(script), is_kept);
  if (!words.empty() && is_python(words.front()) && script < words.size() && words[script] != "-c" && !has_options) {
    out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(script), words.end());
    return out;
  }
  out.emplace_back("--no-python");
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

bool mentions_launcher(const std::vector<std::string>& words) {
  if (launcher_of(words) != LauncherKind::kNone) return true;
  constexpr std::string_view kLaunchers[] = {
      "torchrun",  "torch.distributed.run", "torch.distributed.launch", "accelerate launch",
      "deepspeed", "oarlock launch"};
  const auto names = [&](const std::string& word) {
    return std::ranges::any_of(kLaunchers, [&](std::string_view name) { return word.find(name) != std::string::npos; });
  };
  if (words.size() > 1 && file_name(words[0]) == "tune" && words[1] == "run") return true;  // torchtune
  if (words.size() > 1 && file_name(words[0]) == "oarlock" && words[1] == "launch") return true;
  return std::ranges::any_of(words, names);
}

Result<LaunchCommand> convert_command(std::vector<std::string> words, std::optional<int64_t> nodes,
                                      const NoteSink& note) {
  const FoundLauncher launcher = find_launcher(words);
  if (launcher.kind != LauncherKind::kNone) return LauncherConversion(launcher.kind, note).run(words, launcher, nodes);
  LaunchCommand out;
  out.words = std::move(words);
  return out;
}

}  // namespace oarlock::convert

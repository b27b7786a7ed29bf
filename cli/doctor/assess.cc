#include "cli/doctor/assess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/number.h"
#include "common/text.h"

namespace oarlock::doctor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

class Assessment {
 public:
  explicit Assessment(const Facts& facts) : facts_(facts) {}

  std::vector<Finding> run() {
    gpus();
    nccl();
    trainer();
    for (const PortFact& port : facts_.ports) check_port(port);
    names();
    shared_memory();
    clock();
    directory();
    limits();
    memory();
    cpus();
    return std::move(findings_);
  }

 private:
  void add(const char* check, Level level, std::string summary, std::string remedy = "") {
    findings_.push_back({check, level, std::move(summary), std::move(remedy)});
  }

  bool uses_gpus() const { return facts_.gpu_device_files > 0 || !facts_.gpus.empty(); }

  void gpus() {
    const char* check = "gpu";
    if (!uses_gpus()) {
      if (facts_.has_nvidia_pci_device && facts_.kernel_driver.empty())
        return add(check, Level::kProblem, "an NVIDIA GPU is on the PCI bus, but no driver is loaded",
                   "install NVIDIA's driver, or load its module (modprobe nvidia)");
      if (facts_.has_nvidia_pci_device || !facts_.kernel_driver.empty())
        return add(check, Level::kWarning,
                   "the machine has NVIDIA GPUs, but this environment has no device /dev/nvidia0",
                   facts_.place == Place::kPod ? "request them: resourcesPerNode: {limits: {nvidia.com/gpu: 1}}"
                                               : "request them from the scheduler, or give the container its devices");
      return add(check, Level::kNote, "no NVIDIA GPU; training runs on the CPU",
                 "nothing, if that is intended; otherwise run this on a machine or in a pod with GPUs");
    }
    if (!facts_.nvml_error.empty())
      return add(check, Level::kProblem,
                 fmt::format("{} GPU device files, but the driver library cannot be used: {}", facts_.gpu_device_files,
                             facts_.nvml_error),
                 "install the driver's libraries of the version of the kernel module (nvidia-smi must work); in a "
                 "container, use the NVIDIA container runtime");
    std::string names;
    for (const GpuFact& gpu : facts_.gpus) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", gpu.name);
      if (gpu.memory_bytes > 0) names += fmt::format(" ({})", size_text(gpu.memory_bytes));
    }
    add(check, Level::kOk,
        fmt::format("{}: {}; driver {}, CUDA up to {}", counted(facts_.gpus.size(), "GPU"), names,
                    facts_.driver_version, facts_.cuda_version));
    if (!facts_.kernel_driver.empty() && !facts_.driver_version.empty() &&
        facts_.kernel_driver != facts_.driver_version)
      add(check, Level::kProblem,
          fmt::format("the kernel module has version {}, the driver library {}", facts_.kernel_driver,
                      facts_.driver_version),
          "reboot after an update of the driver, or reload its module");
    if (facts_.restricts_devices && facts_.cuda_visible_devices.empty())
      add(check, Level::kWarning, "CUDA_VISIBLE_DEVICES is empty, which hides every GPU", "unset CUDA_VISIBLE_DEVICES");
    if (facts_.local_world_size > 1 && !facts_.gpus.empty() &&
        facts_.local_world_size > static_cast<int>(facts_.gpus.size()))
      add(check, Level::kProblem,
          fmt::format("{} ranks on this node, but {}", facts_.local_world_size, counted(facts_.gpus.size(), "GPU")),
          "use at most one rank for each GPU: --nproc gpu, or processesPerNode: auto");
  }

  void nccl() {
    if (!facts_.nccl_version.empty()) return add("nccl", Level::kOk, "NCCL " + facts_.nccl_version);
    if (!uses_gpus()) return add("nccl", Level::kOk, "not needed without GPUs");
    add("nccl", Level::kWarning, fmt::format("libnccl.so.2 was not found: {}", facts_.nccl_error),
        "nothing, if the program has its own, as PyTorch's wheels have; otherwise install libnccl2, or set "
        "LD_LIBRARY_PATH");
  }

  void trainer() {
    const char* check = "trainer";
    if (facts_.trainer_path.empty())
      return add(check, Level::kNote, "oarlock-trainer is neither next to this program nor in PATH",
                 "nothing, if your jobs have their own programs; otherwise use the trainer's image, or build it "
                 "(cmake --preset release)");
    if (!facts_.trainer_error.empty())
      return add(check, Level::kProblem,
                 fmt::format("{} does not start: {}", facts_.trainer_path, facts_.trainer_error),
                 "install the LibTorch that it was linked with, or set LD_LIBRARY_PATH to its lib directory");
    add(check, Level::kOk, fmt::format("{} ({})", facts_.trainer_version, facts_.trainer_path));
    const size_t space = facts_.trainer_version.find(' ');
    const std::string version =
        space == std::string::npos ? "" : facts_.trainer_version.substr(space + 1, facts_.version.size());
    if (!version.empty() && version != facts_.version)
      add(check, Level::kWarning, fmt::format("the trainer has version {}, this program {}", version, facts_.version),
          "use programs of the same version");
  }

  void check_port(const PortFact& port) {
    if (port.error.empty()) return add("port", Level::kOk, fmt::format("{} {} is free", port.use, port.port));
    add("port", Level::kWarning, fmt::format("{} {}: {}", port.use, port.port, port.error),
        facts_.place == Place::kPod
            ? "nothing, if the job of this pod is running; otherwise another container has it: set spec.rendezvous.port"
            : "end the program that has it (ss -ltnp), or choose another one: --master-port");
  }

  void names() {
    const char* check = "names";
    if (!facts_.master_address.empty()) {
      if (!facts_.master_error.empty()) {
        add(check, Level::kProblem,
            fmt::format("MASTER_ADDR {} cannot be resolved: {}", facts_.master_address, facts_.master_error),
            facts_.place == Place::kPod
                ? "check that the headless Service of the job exists (kubectl get svc) and that the pods reach the DNS "
                  "server; a NetworkPolicy must allow UDP and TCP port 53"
                : "use an address, or a name that DNS or /etc/hosts of every node has");
      } else {
        add(check, Level::kOk,
            fmt::format("MASTER_ADDR {} is {}", facts_.master_address, fmt::join(facts_.master_addresses, ", ")));
      }
    }
    if (!facts_.own_error.empty()) {
      add(check, Level::kWarning,
          fmt::format("this machine's host name {} cannot be resolved: {}", facts_.own_name, facts_.own_error),
          "Gloo resolves it: add it to /etc/hosts, or set GLOO_SOCKET_IFNAME to the network interface");
    } else {
      add(check, Level::kOk, fmt::format("this machine's host name {} can be resolved", facts_.own_name));
    }
    constexpr double kSlow = 1;
    if (facts_.lookup_seconds > kSlow)
      add(check, Level::kWarning, fmt::format("a lookup took {:.1f} s", facts_.lookup_seconds),
          "check the DNS servers and search domains in /etc/resolv.conf; every rank does such lookups when it starts");
  }

  void shared_memory() {
    const char* check = "shared memory";
    const std::string remedy =
        facts_.place == Place::kPod
            ? "mount a Memory-backed emptyDir at /dev/shm (pods of a TrainingJob have one)"
            : "start the container with --shm-size=8g or --ipc=host, or enlarge it: mount -o remount,size=8g /dev/shm";
    if (facts_.shm_bytes < 0)
      return add(check, Level::kProblem, "there is no /dev/shm; NCCL, Gloo and data loaders need it", remedy);
    const std::string summary =
        fmt::format("/dev/shm has {}, {} of it free", size_text(facts_.shm_bytes), size_text(facts_.shm_free_bytes));
    if (facts_.shm_bytes <= 64 * kMiB)
      return add(check, Level::kProblem, summary + "; NCCL needs about 33 MiB for each communicator and GPU", remedy);
    if (facts_.shm_free_bytes < kGiB) return add(check, Level::kWarning, summary, remedy);
    add(check, Level::kOk, summary);
  }

  void clock() {
    const char* check = "clock";
    constexpr double kMaxSkew = 5;
    if (facts_.server_skew_seconds) {
      const double skew = *facts_.server_skew_seconds;
      if (std::abs(skew) > kMaxSkew) {
        add(check, Level::kWarning,
            fmt::format("the clock of the API server is {:.0f} s {} that of this machine", std::abs(skew),
                        skew > 0 ? "ahead of" : "behind"),
            "synchronize the clocks (chrony, systemd-timesyncd); tokens, leases and times in logs depend on them");
      } else {
        add(check, Level::kOk, "agrees with the clock of the API server");
      }
    }
    if (!facts_.clock_synchronized) return;
    if (*facts_.clock_synchronized) return add(check, Level::kOk, "the kernel reports that it is synchronized");
    add(check, facts_.place == Place::kMachine ? Level::kNote : Level::kOk,
        "the kernel does not report that it is synchronized",
        facts_.place == Place::kMachine
            ? "run chrony or systemd-timesyncd, unless the host of this machine sets its clock"
            : "");
  }

  void directory() {
    const char* check = "checkpoints";
    const DirectoryFact& directory = facts_.directory;
    if (directory.path.empty()) return;
    const auto failed = [&](const char* what, const std::string& error, const char* remedy) {
      if (error.empty()) return false;
      // The current directory need not be one for checkpoints: / in a container is often read-only.
      add(check, directory.is_given ? Level::kProblem : Level::kNote,
          fmt::format("{}: {}: {}", directory.is_given ? directory.path : "the current directory", what, error),
          remedy);
      return true;
    };
    if (failed("no directory can be created", directory.create_error,
               "choose a directory that this user can write: --checkpoint-dir, OARLOCK_CHECKPOINT_DIR, or fsGroup in a "
               "pod"))
      return;
    if (failed("a file cannot be written", directory.write_error, "check free space, quota and permissions")) return;
    if (failed("fsync fails", directory.sync_error, "use a file system with durable writes for checkpoints")) return;
    if (failed("rename fails", directory.rename_error,
               "use a file system with atomic renames; object stores mounted by FUSE often have none"))
      return;
    if (failed("a symbolic link cannot be made", directory.symlink_error,
               "use a file system with symbolic links; the newest checkpoint is one"))
      return;
    const std::string summary = fmt::format("{}: write, fsync, rename and symbolic links work; {} free", directory.path,
                                            directory.free_bytes < 0 ? "unknown" : size_text(directory.free_bytes));
    if (directory.free_bytes >= 0 && directory.free_bytes < kGiB)
      return add(check, Level::kWarning, summary, "free some space; a save needs room for one more checkpoint");
    constexpr double kSlow = 1;
    if (directory.sync_seconds > kSlow)
      return add(check, Level::kWarning,
                 fmt::format("{}; fsync of 4 MiB took {:.1f} s", summary, directory.sync_seconds),
                 "use a faster file system, or save less often: checkpoint.every_steps");
    add(check, Level::kOk, summary);
  }

  void limits() {
    constexpr int64_t kFiles = 4096;
    if (facts_.open_files >= 0 && facts_.open_files < kFiles) {
      add("limits", Level::kWarning, fmt::format("the hard limit on open files is {}", facts_.open_files),
          "raise it to 65536: ulimit -n, LimitNOFILE= of the service, or /etc/security/limits.conf");
    } else {
      add("limits", Level::kOk,
          facts_.open_files < 0 ? "open files: unlimited" : fmt::format("open files: {}", facts_.open_files));
    }
    if (facts_.processes >= 0 && facts_.processes < 1024)
      add("limits", Level::kWarning, fmt::format("the limit on processes and threads is {}", facts_.processes),
          "raise it: ulimit -u; each rank has tens of threads");
    if (uses_gpus() && facts_.locked_memory >= 0 && facts_.locked_memory < 64 * kMiB)
      add("limits", Level::kNote, fmt::format("the limit on locked memory is {}", size_text(facts_.locked_memory)),
          "for InfiniBand or RoCE: ulimit -l unlimited, or the capability IPC_LOCK");
  }

  void memory() {
    const bool has_limit = facts_.memory_limit_bytes > 0 && facts_.memory_limit_bytes < facts_.memory_bytes;
    const int64_t usable = has_limit ? facts_.memory_limit_bytes : facts_.memory_bytes;
    const std::string summary = has_limit ? fmt::format("{}, the limit of the container ({} in the machine)",
                                                        size_text(usable), size_text(facts_.memory_bytes))
                                          : size_text(usable);
    if (usable > 0 && usable < kGiB * facts_.local_world_size)
      return add("memory", Level::kWarning, fmt::format("{} for {}", summary, counted(facts_.local_world_size, "rank")),
                 "give the container at least 1 GiB for each rank; LibTorch alone takes some hundred MiB");
    add("memory", Level::kOk, summary);
  }

  void cpus() {
    const std::string& text = facts_.omp_threads;
    const int threads = parse_integer<int>(text).value_or(0);
    const bool is_number = threads > 0;
    const std::string summary = fmt::format("{} usable of {}; OMP_NUM_THREADS is {}", facts_.cpus, facts_.machine_cpus,
                                            text.empty() ? "not set" : text);
    const int ranks = std::max(1, facts_.local_world_size);
    if (!text.empty() && !is_number)
      return add("cpu", Level::kWarning, summary, "set OMP_NUM_THREADS to a number from 1");
    if (is_number && threads * ranks > facts_.cpus && threads > 1)
      return add("cpu", Level::kWarning,
                 fmt::format("{}; {} would use {} threads", summary, counted(ranks, "rank"), int64_t{threads} * ranks),
                 fmt::format("set OMP_NUM_THREADS={}", std::max(1, facts_.cpus / ranks)));
    if (text.empty() && ranks > 1)
      return add("cpu", Level::kNote,
                 fmt::format("{}; {} ranks would each use {}", summary, ranks, counted(facts_.cpus, "thread")),
                 fmt::format("set OMP_NUM_THREADS={}; oarlock launch sets 1", std::max(1, facts_.cpus / ranks)));
    add("cpu", Level::kOk, summary);
  }

  const Facts& facts_;
  std::vector<Finding> findings_;
};

struct Counts {
  size_t problems = 0;
  size_t warnings = 0;
};

Counts count(const std::vector<Finding>& findings) {
  Counts counts;
  for (const Finding& finding : findings) {
    counts.problems += finding.level == Level::kProblem ? 1 : 0;
    counts.warnings += finding.level == Level::kWarning ? 1 : 0;
  }
  return counts;
}

}  // namespace

std::vector<Finding> assess(const Facts& facts) { return Assessment(facts).run(); }

std::string to_string(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

std::string to_string(Place place) {
  switch (place) {
    case Place::kMachine:
      return "machine";
    case Place::kPod:
      return "pod";
    case Place::kSlurm:
      return "Slurm job";
  }
  return "";
}

std::string to_text(const Facts& facts, const std::vector<Finding>& findings) {
  std::string out = fmt::format("oarlock {} on {}, {}\n", facts.version, facts.system, facts.kernel);
  out += fmt::format("{} a {}{}\n\n", facts.place == Place::kMachine ? "on" : "in", to_string(facts.place),
                     facts.place_detail.empty() ? "" : ": " + facts.place_detail);
  for (const Finding& finding : findings) {
    out += fmt::format("{:<8} {:<14} {}\n", to_string(finding.level), finding.check, finding.summary);
    if (!finding.remedy.empty() && finding.level != Level::kOk)
      out += fmt::format("{:<23} -> {}\n", "", finding.remedy);
  }
  const Counts counts = count(findings);
  out += fmt::format("\n{}, {}\n", counted(counts.problems, "problem"), counted(counts.warnings, "warning"));
  return printable_lines(out);
}

std::string to_json_text(const Facts& facts, const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  const Counts counts = count(findings);
  Json out = {{"version", facts.version},
              {"system", facts.system},
              {"kernel", facts.kernel},
              {"place", to_string(facts.place)},
              {"placeDetail", facts.place_detail},
              {"problems", counts.problems},
              {"warnings", counts.warnings},
              {"findings", Json::array()}};
  for (const Finding& finding : findings) {
    Json entry = {{"check", finding.check}, {"level", to_string(finding.level)}, {"summary", finding.summary}};
    if (!finding.remedy.empty()) entry["remedy"] = finding.remedy;
    out["findings"].push_back(std::move(entry));
  }
  return out.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace oarlock::doctor

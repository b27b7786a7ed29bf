// The assessment of `oarlock doctor`: the facts that were measured on a machine, and their effect on training. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::doctor {

enum class Place { kMachine, kPod, kSlurm };

struct GpuFact {
  std::string name;
  int64_t memory_bytes = 0;
};

// A port that a rank listens on.
struct PortFact {
  std::string use;  // "rendezvous (MASTER_PORT)"
  int port = 0;
  std::string error;  // why it cannot be bound; empty if it is free
};

// The checkpoint directory: each operation that a save needs, with its error; empty texts are successes.
struct DirectoryFact {
  std::string path;
  bool is_given = false;  // by the user or the operator, and not the current directory
  std::string create_error{}, write_error{}, sync_error{}, rename_error{}, symlink_error{};
  double sync_seconds = 0;  // fsync of a file of 4 MiB
  int64_t free_bytes = -1;  // -1: unknown
};

// The measured facts. An absent member was not measured, which is not a problem by itself.
struct Facts {
  std::string version;  // of this program
  std::string system;   // distribution
  std::string kernel;   // release and machine
  Place place = Place::kMachine;
  std::string place_detail;  // namespace and pod, or the Slurm job

  int gpu_device_files = 0;            // /dev/nvidia0 ...
  bool has_nvidia_pci_device = false;  // a GPU is on the bus, with or without a driver
  std::string kernel_driver;           // version of the kernel module; empty: not loaded
  std::string nvml_error;              // why the driver library cannot be used
  std::string driver_version;          // by NVML
  std::string cuda_version;            // that the driver supports
  std::vector<GpuFact> gpus;
  std::string cuda_visible_devices;
  bool restricts_devices = false;  // CUDA_VISIBLE_DEVICES is set
  std::string nccl_version;        // empty: not found
  std::string nccl_error;

  std::string trainer_path;  // empty: neither next to this program nor in PATH
  std::string trainer_version;
  std::string trainer_error;  // why it does not start

  std::vector<PortFact> ports;
  std::string master_address;                 // MASTER_ADDR; empty: not set
  std::string own_name;                       // host name
  std::vector<std::string> master_addresses;  // of MASTER_ADDR
  std::string master_error;
  std::string own_error;      // of the lookup of own_name
  double lookup_seconds = 0;  // the longer of both lookups

  int64_t shm_bytes = -1;  // size of /dev/shm; -1: there is none
  int64_t shm_free_bytes = -1;
  std::optional<bool> clock_synchronized;     // by the kernel
  std::optional<double> server_skew_seconds;  // clock of the API server minus that of this machine
  DirectoryFact directory;

  int64_t open_files = -1;          // hard limit on descriptors; -1: unlimited
  int64_t processes = -1;           // RLIMIT_NPROC; -1: unlimited
  int64_t locked_memory = -1;       // RLIMIT_MEMLOCK; -1: unlimited
  int64_t memory_bytes = 0;         // of the machine
  int64_t memory_limit_bytes = -1;  // of the cgroup; -1: none
  int cpus = 1;                     // usable
  int machine_cpus = 1;
  std::string omp_threads;   // OMP_NUM_THREADS; empty: not set
  int local_world_size = 1;  // LOCAL_WORLD_SIZE
};

enum class Level { kOk, kNote, kWarning, kProblem };

struct Finding {
  std::string check;  // "gpu", "shared memory"
  Level level = Level::kOk;
  std::string summary;  // one line with the measured values
  std::string remedy;   // what to do; empty for kOk

  bool operator==(const Finding&) const = default;
};

// Returns one or more findings for each check, in a fixed order. A kProblem prevents training; a kWarning makes it slow
// or fail later.
std::vector<Finding> assess(const Facts& facts);

std::string to_string(Level level);  // "ok", "note", "warning" or "problem"
std::string to_string(Place place);

// Returns the report as text for an issue, without control characters. Ends with a line that counts the findings.
std::string to_text(const Facts& facts, const std::vector<Finding>& findings);
// Returns the report as one JSON object.
std::string to_json_text(const Facts& facts, const std::vector<Finding>& findings);

}  // namespace oarlock::doctor

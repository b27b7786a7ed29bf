// Converts a TrainingJob to processes on this machine: the pods that the operator would create, without the features
// that need a cluster; finds their programs, and distributes the cores of the machine.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.h"
#include "cli/launch/process.h"
#include "cli/run/config_maps.h"
#include "common/error.h"

namespace oarlock::run {

using launch::Environment;

// The settings of this machine that replace those of a cluster.
struct HostSettings {
  int attempt = 0;
  int master_port = 0;
  std::vector<int> metrics_ports;      // by node: port of its local rank 0
  std::string config_file;             // configuration of the trainer; used if the job has spec.trainer
  std::string checkpoint_dir;          // used if the pod mounts a volume `checkpoints`
  Environment base;                    // environment of this program, in place of that of an image
  std::vector<LocalVolume> volumes{};  // paths on them are replaced
};

// One process to start.
struct LocalProcess {
  std::vector<std::string> argv;
  Environment environment;  // the complete environment
  int node = 0;
  int rank = -1;  // -1 for the command of a node, which starts the ranks itself
};

// Returns the processes to start. If the trainer container has a `command`, there is one process per node, as in a
// cluster. Otherwise there is one process per rank, which runs the entry point of the image, oarlock-trainer, or
// `args`. Each process has the environment that the operator and `oarlock launch` would set, except for MASTER_ADDR
// (127.0.0.1), the values of `settings`, and OARLOCK_TERMINATION_LOG, which is not set. Variables with valueFrom come
// from the environment of this program. REQUIRES: api::validate(job) is empty.
std::vector<LocalProcess> local_processes(const api::TrainingJob& job, const HostSettings& settings);

// Returns true if the job runs oarlock-trainer, because neither `command` nor `args` is set.
bool runs_default_command(const api::TrainingJob& job);
// Returns true if the job runs oarlock-trainer by default or by name, such as under `oarlock launch`.
bool runs_trainer(const api::TrainingJob& job);
// Returns true if the pod mounts a volume `checkpoints`, as it does without a template.
bool saves_checkpoints(const api::TrainingJob& job);

// Returns one line for each relevant feature of the pod that this machine does not provide: paths on volumes,
// variables from Secrets, init containers and sidecars. `base` is the environment of this program, and `volumes` are
// those that it provides.
std::vector<std::string> describe_differences(const api::TrainingJob& job, const Environment& base,
                                              const std::vector<LocalVolume>& volumes = {});

// Looks up the value of a variable by name.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Expands references in the environment, command or arguments of a container as the kubelet does
// (k8s.io/kubernetes/third_party/forked/golang/expansion): "$(NAME)" becomes the value, or remains if the variable does
// not exist; "$$" becomes a literal "$".
std::string expand(std::string_view text, const Lookup& lookup);

// Returns the directory of the running program.
std::filesystem::path own_directory();

// If the first word of the command is `oarlock-trainer` or `oarlock`, replaces it with the program in `directory`, so
// that a build directory works without PATH. Fails with kUnavailable if the program is neither in `directory` nor in
// `path` (a PATH).
Result<std::vector<std::string>> find_program(std::vector<std::string> argv, const std::filesystem::path& directory,
                                              const std::string& path);

// Divides the cores equally among the nodes that share this machine. With one node, or more nodes than cores, the parts
// are empty, which means that each node may use all cores.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int nodes);

}  // namespace oarlock::run

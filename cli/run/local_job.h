// A TrainingJob as processes of this machine: the pods that the operator would make, less what only a cluster has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/launch/environment.h"
#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::run {

using launch::Environment;

// What is different here.
struct Place {
  int attempt = 0;
  int master_port = 0;
  std::vector<int> metrics_ports;  // by node: of its local rank 0
  std::string config_file;         // with the trainer's configuration; used when the job has spec.trainer
  std::string checkpoint_dir;      // used when the template mounts a volume `checkpoints`
  Environment base;                // of this program: what an image would give
};

// One process to start.
struct LocalProcess {
  std::vector<std::string> argv;
  Environment environment;  // the whole of it
  int node = 0;
  int rank = -1;  // -1: a node's command that starts the ranks itself
};

// With a `command` in the trainer container: one process per node, as in the cluster. Else the image's entry point
// counts, `oarlock launch -- oarlock-trainer` with its arguments replaced by `args`: one process per rank.
// Each has the environment of the operator's pod (and of `oarlock launch` in it), where MASTER_ADDR is 127.0.0.1 and
// what Place says is replaced; OARLOCK_TERMINATION_LOG is left out. Variables with valueFrom are taken from `base`.
// REQUIRES: api::check(job) is empty.
std::vector<LocalProcess> local_processes(const api::TrainingJob& job, const Place& place);

bool runs_default_command(const api::TrainingJob& job);  // oarlock-trainer: neither `command` nor `args` is given
bool saves_checkpoints(const api::TrainingJob& job);     // the template mounts a volume `checkpoints`

// One line for each thing of the template that a cluster does and this machine does not, where it matters: paths that
// lie on volumes, variables from Secrets, init containers and sidecars.
std::vector<std::string> differences(const api::TrainingJob& job, const Environment& base);

}  // namespace oarlock::run

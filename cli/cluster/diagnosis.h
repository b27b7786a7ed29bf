// `oarlock why`: the root cause of a job's last failure, its place, its cost and the remedies. A pure function of the
// objects that the API server has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/cause.h"
#include "cli/cluster/incident.h"
#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::cli {

struct Diagnosis {
  DiagnosedCause cause = DiagnosedCause::kNone;
  std::string headline;      // one sentence about the failure, or that the job has not failed
  bool is_resolved = false;  // the job has restarted since and runs, or is complete

  // Where and when. Empty or absent if not known.
  std::string pod;
  std::string node;
  std::optional<int> node_rank;
  std::optional<int> rank;
  std::optional<int> attempt;
  std::optional<int> exit_code;
  std::optional<SystemTime> time;

  std::string explanation;            // of the exit code or the reason, in words
  std::string message;                // of the rank, the kubelet or the API server
  std::vector<std::string> evidence;  // events and states of nodes that support the cause
  std::vector<std::string> cost;      // steps and time lost, restarts used
  std::vector<std::string> history;   // the failures of earlier attempts, newest first
  std::vector<std::string> remedies;  // the most promising first
};

// Returns the node that the diagnosis needs in DiagnosisInput::nodes, and the names of pods whose events it needs.
std::vector<std::string> nodes_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);
std::vector<std::string> pods_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);

// Explains the last failure of a job, or why it does not start or progress. A job without a failure has the cause kNone
// and a headline that states it.
Diagnosis diagnose(const DiagnosisInput& input);

}  // namespace oarlock::cli

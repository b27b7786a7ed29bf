// `oarlock why`: the root cause of a job's last failure, its place, its cost and the remedies, and their texts. All
// functions are pure; the input is the objects of the API server.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/types.h"
#include "cli/cluster/cause.h"
#include "cli/cluster/output.h"
#include "common/clock.h"

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

// Return the names of the nodes to read into DiagnosisInput::nodes, and of the pods whose events belong in
// DiagnosisInput::events.
std::vector<std::string> nodes_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);
std::vector<std::string> pods_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);

// Explains the last failure of a job, or why it does not start or progress. A job without a failure has the cause kNone
// and a headline that states it.
Diagnosis diagnose(const DiagnosisInput& input);

// ---- Texts (diagnosis_text.cc) -------------------------------------------------------------------------------------

// Returns the meaning of an exit code, as in docs/exit-codes.md: "137: ended by signal 9 (SIGKILL)".
std::string exit_code_text(int exit_code);

// ---- The output of `oarlock why` ---------------------------------------------------------------------------------

// Formats the diagnosis as lines of a label and a text. They are safe for a terminal.
std::string diagnosis_text(const Diagnosis& diagnosis, const Style& style, SystemTime now);

// Returns a document with one member for each field of the diagnosis; unknown fields are omitted.
nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& diagnosis);

}  // namespace oarlock::cli

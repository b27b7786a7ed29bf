// The texts of `oarlock why`: sentences, exit codes and remedies for a cause, and the output of a diagnosis. Pure
// functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/cluster/cause.h"
#include "cli/cluster/diagnosis.h"
#include "cli/cluster/output.h"
#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// Returns a sentence without a period: "rank 3 ran out of memory". `subject` is the rank, pod or job that failed.
std::string cause_sentence(DiagnosedCause cause, const std::string& subject);

// Returns the remedies, the most promising first. Names that are empty are shown as placeholders.
std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod_name,
                                      const std::string& node_name);

// Returns the meaning of an exit code, as in docs/exit-codes.md: "137: ended by signal 9 (SIGKILL)".
std::string exit_code_text(int exit_code);

// ---- The output of `oarlock why` ---------------------------------------------------------------------------------

// Formats the diagnosis as lines of a label and a text. They are safe for a terminal.
std::string diagnosis_text(const Diagnosis& diagnosis, const Style& style, SystemTime now);

// Returns a document with one member for each field of the diagnosis; unknown fields are omitted.
nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& diagnosis);

}  // namespace oarlock::cli

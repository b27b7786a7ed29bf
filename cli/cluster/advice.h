// Texts about the cause of a failure: a sentence, the meaning of an exit code, and remedies. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/cause.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// Returns a sentence without a period: "rank 3 ran out of memory". `subject` is the rank, pod or job that failed.
std::string cause_sentence(DiagnosedCause cause, const std::string& subject);

// Returns the remedies, the most promising first. Names that are empty are shown as placeholders.
std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod_name,
                                      const std::string& node_name);

// Returns the meaning of an exit code, as in docs/exit-codes.md: "137: ended by signal 9 (SIGKILL)".
std::string exit_code_text(int exit_code);

}  // namespace oarlock::cli

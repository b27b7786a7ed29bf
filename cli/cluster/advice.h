// The words for a cause: a sentence, the meaning of an exit code, and what to try. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/cause.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// Returns what happened, without a period: "rank 3 ran out of memory". `subject` is who it happened to.
std::string cause_sentence(DiagnosedCause cause, const std::string& subject);

// Returns what to try, the most promising first. Names that are empty are shown as placeholders.
std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod_name,
                                      const std::string& node_name);

// Returns the meaning of an exit code, as in docs/exit-codes.md: "137: ended by signal 9 (SIGKILL)".
std::string exit_code_text(int exit_code);

}  // namespace oarlock::cli

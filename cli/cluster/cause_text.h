// The name, the sentence and the remedies of each cause: one table. All functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/types.h"
#include "cli/cluster/cause.h"

namespace oarlock::cli {

// Returns one word, for scripts.
std::string_view to_string(DiagnosedCause cause);

// Returns a sentence without a period: "rank 3 ran out of memory". `subject` is the rank, pod or job that failed.
std::string cause_sentence(DiagnosedCause cause, const std::string& subject);

// Returns the remedies, the most promising first. Names that are empty are shown as placeholders.
std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod,
                                      const std::string& node);

}  // namespace oarlock::cli

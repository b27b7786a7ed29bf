// The output of `oarlock why`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/cluster/diagnosis.h"
#include "cli/cluster/output.h"
#include "common/clock.h"

namespace oarlock::cli {

// Formats the diagnosis as lines of a label and a text. They are safe for a terminal.
std::string diagnosis_text(const Diagnosis& diagnosis, const Style& style, SystemTime now);

// Returns a document with one member for each field of the diagnosis; a field that is not known is left out.
nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& diagnosis);

}  // namespace oarlock::cli

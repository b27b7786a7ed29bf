// The section "report": the history of a run as files.
#pragma once

#include <string>

#include "trainer/config/fields.h"

namespace oarlock {

// Files that rank 0 writes after every evaluation; relative to checkpoint.dir, where there is one. Empty: none.
struct ReportConfig {
  std::string history;  // JSON
  std::string curves;   // SVG
};

void describe(ReportConfig& config, Fields& fields);

}  // namespace oarlock

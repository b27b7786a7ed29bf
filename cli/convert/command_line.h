// Converts a command line that starts ranks to a TrainingJob.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/command.h"
#include "cli/convert/job.h"
#include "cli/convert/report.h"
#include "common/error.h"

namespace oarlock::convert {

// Converts a command line of torchrun or accelerate. Fails with kUsage if it is none.
Result<Converted> convert_command_line(const std::vector<std::string>& words, LauncherKind kind,
                                       const ConvertOptions& options);

}  // namespace oarlock::convert

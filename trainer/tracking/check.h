// Checks the settings of the sinks before a run, for `oarlock-trainer --check`.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/variables.h"

namespace oarlock {

// Resolves the settings of the enabled sinks with the environment: modes, names, the address of the server, its
// credentials and certificates, and the folders, of which none is created. Opens no connection. If the run is that of
// pods, whose environment and files are not known here, only the configured values are checked. Fails with kConfig and
// a message of one line.
Result<void> check_tracking(const TrackingConfig& config, const std::filesystem::path& checkpoint_dir,
                            const TrackingVariables& variables, bool runs_in_pods);

}  // namespace oarlock

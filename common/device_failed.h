// The exit code of a rank whose own GPU, driver or network interface failed.
#pragma once

#include "common/error.h"

namespace oarlock {

// Restarted, and blamed for it. The value is outside of the codes of sysexits(3), 64 to 78, which end a job.
inline constexpr ExitCode kDeviceFailed{79};

}  // namespace oarlock

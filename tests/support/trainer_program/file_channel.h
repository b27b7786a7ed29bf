// A regroup channel over files in a directory, for tests of recovery. The test is the coordinator (recovery_test.cc).
#pragma once

#include <memory>

#include "recovery/regroup.h"
#include "trainer/process/job_environment.h"

namespace oarlock::test {

inline constexpr char kEnvRegroupDirectory[] = "OARLOCK_TEST_REGROUP_DIRECTORY";

// Null without OARLOCK_TEST_REGROUP_DIRECTORY. Each call of regroup() writes the request
// <directory>/request-<rank>-<pid>-<n> and waits for <directory>/answer-<rank>-<pid>-<n>, both JSON. The file
// <directory>/left-<generation> requests that all ranks leave this generation, and growing-<generation> that they do so
// between two steps.
Result<std::unique_ptr<RegroupChannel>> open_file_channel(const JobEnvironment& environment);

}  // namespace oarlock::test

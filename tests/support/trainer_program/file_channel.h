// A regroup channel over files in a folder, for tests of recovery. The test is the coordinator (recovery_test.cc).
#pragma once

#include <memory>

#include "trainer/process/environment.h"
#include "trainer/recovery/regroup.h"

namespace oarlock::test {

inline constexpr char kEnvRegroupFolder[] = "OARLOCK_TEST_REGROUP_FOLDER";

// Null without OARLOCK_TEST_REGROUP_FOLDER. Each call of regroup() writes the request <folder>/request-<rank>-<pid>-<n>
// and waits for <folder>/answer-<rank>-<pid>-<n>, both JSON. The file <folder>/left-<generation> requests that all
// ranks leave this generation, and growing-<generation> that they do so between two steps.
Result<std::unique_ptr<RegroupChannel>> open_file_channel(const RankEnvironment& environment);

}  // namespace oarlock::test

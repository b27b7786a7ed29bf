// Work of unknown length that a signal must be able to interrupt: reading files, preparing data.
#pragma once

#include <functional>
#include <string>

#include "common/error.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"

namespace oarlock {

// Called by all ranks together. Runs `work` on another thread of each rank and returns this rank's result when all
// ranks have completed theirs; an exception becomes a failure. Meanwhile the ranks exchange short messages five times a
// second, which detects the loss of a rank, so the work may take longer than a collective may.
//
// When the ranks agree to stop (stop.agreed()), all return kTempFail within about half a second; the message is
// "interrupted by a signal while <activity>". The thread is then abandoned, perhaps blocked in a system call, until the
// process ends: `work` must own everything that it uses, or use objects that live as long as the process.
Result<void> run_on_all_ranks(std::function<Result<void>()> work, const RankGroup& group, StopAgreement& stop,
                              const std::string& activity);

}  // namespace oarlock

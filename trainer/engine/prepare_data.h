// A task's data made ready once, not by every rank that will read them, and opened.
#pragma once

#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

// Both are called by all ranks, take any time, and run the task's function on another thread: meanwhile the ranks
// exchange short messages, which detects the loss of a rank. kTempFail, within about half a second, when the ranks have
// agreed to stop. The thread then continues until the process ends, so the task must not be destroyed.

// Task::prepare_data() on the ranks that Task::prepare_on() names, while the others wait. A failure is returned on all
// ranks; where one rank prepares, with its message.
Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, StopAgreement& stop, const Logger& log);

// Task::prepare() on every rank. A failure is returned on the rank that has it.
Result<void> open_data(Task& task, const RankGroup& group, StopAgreement& stop);

}  // namespace oarlock

// A task's data made ready once, not by every rank that will read them.
#pragma once

#include "trainer/distributed/process_group.h"
#include "trainer/engine/task.h"

namespace oarlock {

// Called by all ranks: Task::prepare_data() on the ranks that Task::prepare_on() names, while the others wait. A
// failure is everybody's; where one rank prepares, with its message. It may take any time: the ranks stay in touch, so
// that one that is lost is missed. Task::prepare_data() runs on a thread of its own.
Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, const Logger& log);

}  // namespace oarlock

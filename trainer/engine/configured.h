// A configuration together with the task that it names.
#pragma once

#include <memory>

#include "trainer/config/load.h"
#include "trainer/engine/task_table.h"

namespace oarlock {

struct Configured {
  TrainerConfig config;
  std::unique_ptr<Task> task;
};

// The configuration and its task, not prepared yet; fails as load_config() does, and with kConfig where the task cannot
// do what the configuration says.
Result<Configured> load_run(const ConfigSource& source, const TaskTable& tasks);

// For printing and for the reference page: their descriptions only. The table must outlive what is given.
TaskNames task_names(const TaskTable& tasks);

}  // namespace oarlock

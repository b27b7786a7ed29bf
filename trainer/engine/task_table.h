// The tasks of a program, and the task that a configuration names.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainer/config/load.h"
#include "trainer/engine/task.h"

namespace oarlock {

// By name.
using TaskTable = std::map<std::string, TaskFactory>;

struct Configured {
  TrainerConfig config;
  std::unique_ptr<Task> task;
};

// The configuration and its task, not prepared yet; fails as load_config() does.
Result<Configured> load_run(const ConfigSource& source, const TaskTable& tasks);

// For printing and for the reference page: their descriptions only. The table must outlive what is given.
TaskNames task_names(const TaskTable& tasks);

}  // namespace oarlock

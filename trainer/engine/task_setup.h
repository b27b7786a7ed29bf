// A task before training: created from the configuration, its data prepared and opened.
#pragma once

#include <memory>

#include "common/log.h"
#include "trainer/config/load.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct ConfiguredTask {
  TrainerConfig config;
  nlohmann::json printed;      // the configuration with every default, for users
  std::unique_ptr<Task> task;  // not prepared
  bool is_of_job = false;      // spec.trainer of a TrainingJob
};

// Reads the configuration and creates its task. Fails as load_config() does, and with kConfig if the task does not
// support the configuration.
Result<ConfiguredTask> load_task(const ConfigSource& source, const TaskTable& tasks);

// The names and descriptions of all tasks, for printing and for the reference page. The table must outlive the result.
TaskNames task_names(const TaskTable& tasks);

// prepare_data() and open_data() are called by all ranks together and may take any time. They run the task's function
// on another thread while the ranks exchange short messages, which detects the loss of a rank. They return kTempFail
// within about half a second after the ranks have agreed to stop. The thread then continues until the process ends, so
// the task must not be destroyed.

// Runs Task::prepare_data() on the ranks that Task::prepare_on() selects, while the others wait. A failure is returned
// on all ranks; with PrepareOn::kOneRank, with the message of that rank.
Result<void> prepare_data(Task& task, const ProcessGroup& group, int local_rank, StopAgreement& stop,
                          const Logger& log);

// Runs Task::prepare() on every rank. A failure is returned on the rank where it happened.
Result<void> open_data(Task& task, const ProcessGroup& group, StopAgreement& stop);

}  // namespace oarlock

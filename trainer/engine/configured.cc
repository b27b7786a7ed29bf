#include "trainer/engine/configured.h"

#include <fmt/format.h>

namespace oarlock {

Result<Configured> load_run(const ConfigSource& source, const TaskTable& tasks) {
  Configured out;
  TaskNames names = task_names(tasks);
  names.describe_sections = [&](const std::string& name, Fields& root) { out.task = tasks.at(name)(root); };
  Result<TrainerConfig> config = load_config(source, names);
  if (!config) return tl::make_unexpected(config.error());
  out.config = std::move(*config);
  if (const std::string obstacle = out.task->graph_obstacle(); out.config.cuda.graphs && !obstacle.empty()) {
    return fail(ExitCode::kConfig, fmt::format("cuda.graphs: a step of {} cannot be recorded, as {}; remove it",
                                               out.config.task, obstacle));
  }
  return out;
}

TaskNames task_names(const TaskTable& tasks) {
  TaskNames out;
  for (const auto& [name, factory] : tasks) out.names.push_back(name);
  out.describe_sections = [&tasks](const std::string& name, Fields& root) { tasks.at(name)(root); };
  return out;
}

}  // namespace oarlock

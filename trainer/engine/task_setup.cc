#include "trainer/engine/task_setup.h"

#include <fmt/format.h>

#include <string>

#include "common/status_macros.h"

namespace oarlock {
namespace {

bool prepares(PrepareOn on, int rank, int local_rank) {
  switch (on) {
    case PrepareOn::kOneRank:
      return rank == 0;
    case PrepareOn::kOneRankPerNode:
      return local_rank == 0;
    case PrepareOn::kEveryRank:
      return true;
  }
  return true;
}

constexpr char kActivity[] = "the data were prepared; a new start prepares them";

}  // namespace

Result<ConfiguredTask> load_task(const ConfigSource& source, const TaskTable& tasks) {
  ConfiguredTask out;
  TaskNames names = task_names(tasks);
  names.describe_sections = [&](const std::string& name, Fields& root) { out.task = tasks.at(name)(root); };
  ASSIGN_OR_RETURN(CompleteConfig complete, load_complete_config(source, names));
  out.config = std::move(complete.config);
  out.printed = nlohmann::json(complete.printed);
  out.is_of_job = complete.is_of_job;
  if (const std::string obstacle = out.task->graph_obstacle(); out.config.cuda.graphs && !obstacle.empty()) {
    return fail(ExitCode::kConfig, fmt::format("cuda.graphs: a step of {} cannot be recorded, because {}; remove it",
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

Result<void> prepare_data(Task& task, const ProcessGroup& group, int local_rank, StopAgreement& stop,
                          const Logger& log) {
  const bool mine = prepares(task.prepare_on(), group.rank(), local_rank);
  const Result<void> prepared = run_on_all_ranks(
      [&task, mine, log] { return mine ? task.prepare_data(log) : Result<void>(); }, group, stop, kActivity);
  if (stop.agreed()) return prepared;
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

Result<void> open_data(Task& task, const ProcessGroup& group, StopAgreement& stop) {
  return run_on_all_ranks([&task] { return task.prepare(); }, group, stop, kActivity);
}

}  // namespace oarlock

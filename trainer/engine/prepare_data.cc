#include "trainer/engine/prepare_data.h"

#include <string>

#include "trainer/engine/run_on_all_ranks.h"

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

Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, StopAgreement& stop, const Logger& log) {
  const bool mine = prepares(task.prepare_on(), group.rank(), local_rank);
  const Result<void> prepared = run_on_all_ranks(
      [&task, mine, log] { return mine ? task.prepare_data(log) : Result<void>(); }, group, stop, kActivity);
  if (stop.agreed()) return prepared;
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

Result<void> open_data(Task& task, const RankGroup& group, StopAgreement& stop) {
  return run_on_all_ranks([&task] { return task.prepare(); }, group, stop, kActivity);
}

}  // namespace oarlock

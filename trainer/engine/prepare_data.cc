#include "trainer/engine/prepare_data.h"

#include <string>

#include "trainer/distributed/failure.h"

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

}  // namespace

Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, const Logger& log) {
  Result<void> prepared;
  // What the task throws is an answer, too: the others wait for one.
  if (prepares(task.prepare_on(), group.rank(), local_rank))
    prepared = catch_errors([&] { return task.prepare_data(log); });
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

}  // namespace oarlock

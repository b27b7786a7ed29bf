#include "trainer/engine/prepare_data.h"

#include <array>
#include <chrono>
#include <future>
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

// Many short collectives instead of a long one: preparing may take longer than any of them may.
void wait_for_all(std::future<Result<void>>& own, const RankGroup& group) {
  constexpr std::chrono::milliseconds kPace{200};
  for (std::array<double, 1> preparing = {1}; preparing[0] > 0;) {
    preparing[0] = own.wait_for(kPace) == std::future_status::ready ? 0 : 1;
    group.sum(preparing);
  }
}

}  // namespace

Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, const Logger& log) {
  const bool mine = prepares(task.prepare_on(), group.rank(), local_rank);
  // What the task throws is an answer, too: the others wait for one.
  std::future<Result<void>> work = std::async(std::launch::async, [&]() -> Result<void> {
    return mine ? catch_errors([&] { return task.prepare_data(log); }) : Result<void>();
  });
  wait_for_all(work, group);
  const Result<void> prepared = work.get();
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

}  // namespace oarlock

#include "trainer/engine/prepare_data.h"

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

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

// Runs `work` on this rank and waits until all ranks have completed theirs. Many short collectives instead of a long
// one: the work may take longer than any collective may. An exception becomes a failure, because the others wait.
Result<void> run_on_all_ranks(const std::function<Result<void>()>& work, const RankGroup& group, StopAgreement& stop) {
  constexpr std::chrono::milliseconds kPace{200};
  std::packaged_task<Result<void>()> task([work] { return catch_errors(work); });
  std::future<Result<void>> own = task.get_future();
  std::thread(std::move(task)).detach();  // a future of std::async would wait for the work
  for (std::array<double, 1> working = {1}; working[0] > 0;) {
    working[0] = own.wait_for(kPace) == std::future_status::ready ? 0 : 1;
    group.sum(working);
    if (working[0] > 0 && stop.agree())
      return fail(ExitCode::kTempFail,
                  "interrupted by a signal while the data were prepared; a new start prepares them");
  }
  return own.get();
}

}  // namespace

Result<void> prepare_data(Task& task, const RankGroup& group, int local_rank, StopAgreement& stop, const Logger& log) {
  const bool mine = prepares(task.prepare_on(), group.rank(), local_rank);
  const Result<void> prepared =
      run_on_all_ranks([&task, mine, log] { return mine ? task.prepare_data(log) : Result<void>(); }, group, stop);
  if (stop.agreed()) return prepared;
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

Result<void> open_data(Task& task, const RankGroup& group, StopAgreement& stop) {
  return run_on_all_ranks([&task] { return task.prepare(); }, group, stop);
}

}  // namespace oarlock

#include "trainer/engine/run_on_all_ranks.h"

#include <array>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "trainer/distributed/failure.h"

namespace oarlock {

Result<void> run_on_all_ranks(std::function<Result<void>()> work, const RankGroup& group, StopAgreement& stop,
                              const std::string& activity) {
  constexpr std::chrono::milliseconds kPace{200};
  std::packaged_task<Result<void>()> task([work = std::move(work)] { return catch_errors(work); });
  std::future<Result<void>> own = task.get_future();
  std::thread(std::move(task)).detach();  // a future of std::async would wait for the work
  for (std::array<double, 1> working = {1}; working[0] > 0;) {
    working[0] = own.wait_for(kPace) == std::future_status::ready ? 0 : 1;
    group.sum(working);
    if (working[0] > 0 && stop.agree()) return fail(ExitCode::kTempFail, "interrupted by a signal while " + activity);
  }
  return own.get();
}

}  // namespace oarlock

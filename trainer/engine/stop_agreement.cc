#include "trainer/engine/stop_agreement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "ddp/library_errors.h"

namespace oarlock {
namespace {
constexpr double kIntervalSeconds = 0.5;
// Limits the delay of a stop if units become slower between two agreements: units of 1 s after quick ones must fit into
// the grace period of a pod, which is 30 s by default.
constexpr double kMaxInterval = 20;  // units
}  // namespace

bool StopAgreement::agree(bool wish, double& seconds) {
  save_requested_ = (take_save_request_ && take_save_request_()) || save_requested_;
  // The largest of the third values is 0 only if all ranks have received a signal.
  std::array<double, 5> values = {wish || requested() ? 1.0 : 0.0, seconds, stop_.is_raised() ? 0.0 : 1.0,
                                  growth_requested_ && growth_requested_() ? 1.0 : 0.0, save_requested_ ? 1.0 : 0.0};
  group_.all_reduce_max(values);
  save_requested_ = false;
  saves_ = saves_ || values[4] > 0;
  grows_ = grows_ || values[3] > 0;
  seconds = values[1];
  agreed_ = agreed_ || values[0] > 0 || values[2] == 0;
  return agreed_;
}

bool StopAgreement::agree(bool wish) {
  double seconds = 0;
  return agree(wish, seconds);
}

bool StopPace::after_unit(bool wish) {
  if (agreement_->group().world_size() == 1) return agreement_->agree(wish);  // without a collective
  if (++units_ < next_) return false;
  double slowest = seconds_per_unit_;
  const bool stop = agreement_->agree(wish, slowest);
  const SteadyTime now = agreement_->clock().steady();
  seconds_per_unit_ = std::chrono::duration<double>(now - since_).count() / static_cast<double>(units_);
  const double longest = std::min(kMaxInterval, 2.0 * static_cast<double>(units_));
  next_ = slowest > 0 ? static_cast<int64_t>(std::clamp(kIntervalSeconds / slowest, 1.0, longest)) : 1;
  since_ = now;
  units_ = 0;
  return stop;
}

Result<void> run_on_all_ranks(std::function<Result<void>()> work, const ProcessGroup& group, StopAgreement& stop,
                              const std::string& activity) {
  const auto zero = [work = std::move(work)] { return work().map([] { return int64_t{0}; }); };
  return run_and_compare(zero, group, stop, activity).map([](bool) {});
}

Result<bool> run_and_compare(std::function<Result<int64_t>()> work, const ProcessGroup& group, StopAgreement& stop,
                             const std::string& activity) {
  constexpr std::chrono::milliseconds kPollInterval{200};
  const auto interrupted = [&] { return fail(ExitCode::kTempFail, "interrupted by a signal while " + activity); };
  if (stop.agreed()) return interrupted();
  std::packaged_task<Result<int64_t>()> task([work = std::move(work)] { return catch_errors(work); });
  std::future<Result<int64_t>> future = task.get_future();
  std::thread(std::move(task)).detach();  // a future of std::async would wait for the work
  const double ranks = group.is_connected() ? group.world_size() : 1;
  for (std::optional<Result<int64_t>> own;;) {
    if (!own && future.wait_for(kPollInterval) == std::future_status::ready) own = future.get();
    const double number = own ? static_cast<double>(own->value_or(0)) : std::numeric_limits<double>::infinity();
    std::array<double, 1> sum = {number};
    group.all_reduce_sum(sum);
    if (std::isfinite(sum[0])) return own->map([&](int64_t) { return sum[0] == number * ranks; });
    if (stop.agree()) return interrupted();
  }
}

}  // namespace oarlock

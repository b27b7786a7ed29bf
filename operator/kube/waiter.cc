#include "operator/kube/waiter.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace oarlock::kube {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = TransportError::Kind;

// Rounded up, so that the time has come when poll(2) says so.
int milliseconds_until(Waiter::Time until) {
  constexpr Milliseconds kLongest{60000};
  const auto left = std::chrono::ceil<Milliseconds>(until - Clock::now());
  return static_cast<int>(std::clamp(left, Milliseconds(0), kLongest).count());
}

}  // namespace

Bell::Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_.open()) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void Bell::ring() const { ::eventfd_write(fd_.get(), 1); }

Waiter::Waiter(StreamLimits limits, const std::stop_token& cancel)
    : limits_(limits), cancel_(cancel), end_(Clock::now() + limits.total), silent_until_(Clock::now() + limits.idle) {
  if (!cancel.stop_possible()) return;
  bell_.emplace();
  on_cancel_.emplace(cancel, Ring{&*bell_});
}

TransportResult<void> Waiter::check() const {
  if (cancel_.stop_requested()) return failed(Kind::kCancelled, "cancelled");
  const Time now = Clock::now();
  if (now >= end_) return failed(Kind::kDeadline, fmt::format("no whole response within {} ms", limits_.total.count()));
  if (now >= silent_until_)
    return failed(Kind::kIdle, fmt::format("nothing was received for {} ms", limits_.idle.count()));
  return {};
}

TransportResult<void> Waiter::wait(int fd, short events) {
  return wait_until(fd, events, Time::max()).map([](bool) {});
}

TransportResult<bool> Waiter::wait_until(int fd, short events, Time limit) {
  const Time until = std::min({end_, silent_until_, limit});
  for (;;) {
    if (const auto good = check(); !good) return tl::make_unexpected(good.error());
    if (Clock::now() >= limit) return false;
    pollfd watched[] = {{fd, events, 0}, {bell_ ? bell_->fd() : -1, POLLIN, 0}};
    if (::poll(watched, bell_ ? 2 : 1, milliseconds_until(until)) > 0 && watched[0].revents != 0) return true;
  }
}

void Waiter::progress() { silent_until_ = Clock::now() + limits_.idle; }

}  // namespace oarlock::kube

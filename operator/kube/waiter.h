// How long a call may take, and who may end it: every wait of a call for the network is one of its Waiter's.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>

#include "common/file_descriptor.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

// A file descriptor that becomes readable when it is rung, by any thread (eventfd).
class Bell {
 public:
  Bell();
  void ring() const;
  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

class Waiter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The time begins now.
  Waiter(StreamLimits limits, const std::stop_token& cancel);

  // kCancelled, kDeadline or kIdle where it is so.
  TransportResult<void> check() const;

  // Until the descriptor is ready for poll(2)'s `events`, or has failed: the next call on it tells.
  TransportResult<void> wait(int fd, short events);
  // The same, but not for longer than until `limit`: false then.
  TransportResult<bool> wait_until(int fd, short events, Time limit);

  // Bytes have come or gone: silence begins anew.
  void progress();
  Time end() const { return end_; }

 private:
  struct Ring {
    const Bell* bell;
    void operator()() const { bell->ring(); }
  };

  const StreamLimits limits_;
  const std::stop_token cancel_;
  const Time end_;
  Time silent_until_;
  std::optional<Bell> bell_;  // where there is somebody who may cancel
  std::optional<std::stop_callback<Ring>> on_cancel_;
};

}  // namespace oarlock::kube

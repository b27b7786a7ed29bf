// Connections that wait for the next request.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>

#include "operator/kube/connection.h"

namespace oarlock::kube {

// Thread-safe. The connection that was used last is the first to be used again, so those that a burst has left idle age
// and are closed, the next time that somebody takes or gives one.
class ConnectionPool {
 public:
  // Null: none that the server has not closed meanwhile.
  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);
  void clear();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Idle {
    std::unique_ptr<Connection> connection;
    Time since;
  };
  void drop_old(Time now);

  std::mutex mutex_;
  std::deque<Idle> idle_;  // the oldest first
};

}  // namespace oarlock::kube

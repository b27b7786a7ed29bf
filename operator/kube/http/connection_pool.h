// Connections between two requests.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>

#include "operator/kube/http/connection.h"

namespace oarlock::kube {

// Thread-safe. The connection that was used last is reused first, so that the connections which a burst has left behind
// age and are closed, by the next call of take() or give_back().
class ConnectionPool {
 public:
  // Null if there is no connection that the server has left open.
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

// Leader election among several operators, with its log lines and metrics.
#pragma once

#include <memory>
#include <stop_token>

#include "common/log.h"
#include "kube/client/lease.h"
#include "operator/shell/metrics.h"

namespace oarlock::control {

struct LeaderElectionOptions {
  bool enabled = false;  // if false, this process is the leader from the start
  kube::LeaseOptions lease;
};

// acquire(), hold() and release() are called by one thread, in this order.
class LeaderElection {
 public:
  LeaderElection(const LeaderElectionOptions& options, std::shared_ptr<http::Transport> transport,
                 std::shared_ptr<Metrics> metrics, std::shared_ptr<const Clock> clock,
                 std::shared_ptr<kube::Sleeper> sleeper, uint64_t seed, const Logger& log);

  // The transport for all writes. It rejects requests while this process is not the leader. Thread-safe.
  std::shared_ptr<http::Transport> leader_transport() const { return leader_transport_; }

  // Blocks until this process is the leader. Returns false if a stop was requested first.
  bool acquire(const std::stop_token& stop);

  // Renews the lease until a stop is requested. Returns false if the lease was lost or could not be renewed.
  bool hold(const std::stop_token& stop);

  // Releases the lease, so that another operator can become the leader immediately. To be called when no write is in
  // progress anymore.
  void release();

 private:
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<kube::Sleeper> sleeper_;
  const Logger log_;
  std::shared_ptr<kube::LeaderElector> elector_;  // null: leader election is disabled
  std::shared_ptr<http::Transport> leader_transport_;
};

}  // namespace oarlock::control

// Which of several operators works: the leader election as the operator runs it, with its log lines and metrics.
#pragma once

#include <memory>
#include <stop_token>

#include "common/log.h"
#include "operator/kube/lease.h"
#include "operator/shell/metrics.h"

namespace oarlock::control {

struct ElectionOptions {
  bool enabled = false;  // without, this operator is the only one and leads from the start
  kube::LeaseOptions lease;
};

// The calls are made by one thread, in this order.
class Election {
 public:
  Election(const ElectionOptions& options, std::shared_ptr<kube::Transport> transport, std::shared_ptr<Metrics> metrics,
           std::shared_ptr<const Clock> clock, std::shared_ptr<kube::Sleeper> sleeper, uint64_t seed,
           const Logger& log);

  // For everything that writes: refuses while another one leads.
  std::shared_ptr<kube::Transport> writing_transport() const { return writing_; }

  bool acquire(const std::stop_token& stop);  // waits until this one leads; false: stopped before
  bool hold(const std::stop_token& stop);     // until stopped; false: another one leads, or nobody knows
  void release();                             // when nothing writes any more

 private:
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<kube::Sleeper> sleeper_;
  const Logger log_;
  std::shared_ptr<kube::LeaderElector> elector_;  // null: no election
  std::shared_ptr<kube::Transport> writing_;
};

}  // namespace oarlock::control

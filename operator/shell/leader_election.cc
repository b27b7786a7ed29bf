#include "operator/shell/leader_election.h"

#include <utility>

namespace oarlock::control {

LeaderElection::LeaderElection(const LeaderElectionOptions& options, std::shared_ptr<http::Transport> transport,
                               std::shared_ptr<Metrics> metrics, std::shared_ptr<const Clock> clock,
                               std::shared_ptr<kube::Sleeper> sleeper, uint64_t seed, const Logger& log)
    : metrics_(std::move(metrics)),
      sleeper_(std::move(sleeper)),
      log_(log.with({{"lease", options.lease.key.to_string()}, {"identity", options.lease.identity}})),
      leader_transport_(transport) {
  if (!options.enabled) return;
  kube::LeaderElector::Hooks hooks;
  hooks.on_new_leader = [this](const std::string& holder) { log_.info("leader changed", {{"leader", holder}}); };
  hooks.on_problem = [this](const kube::ApiError& error) {
    // Of two operators that try to acquire the lease at the same time, one gets a conflict.
    const bool is_expected =
        error.kind == kube::ApiErrorKind::kConflict || error.kind == kube::ApiErrorKind::kAlreadyExists;
    log_.write(is_expected ? LogLevel::kDebug : LogLevel::kWarn, "failed to acquire or renew the lease; retrying",
               {{"error", error.message}, {"status", error.status}});
  };
  hooks.on_slow_path = [this] { metrics_->count_leader_slow_path(); };
  const http::Milliseconds deadline = options.lease.renew_deadline / 2;  // leaves time for a second try
  elector_ = std::make_shared<kube::LeaderElector>(options.lease, std::move(hooks), kube::Client(transport, deadline),
                                                   std::move(clock), sleeper_, kube::seeded_random(seed));
  metrics_->set_leader(false);
  leader_transport_ = std::make_shared<kube::LeasedTransport>(std::move(transport),
                                                              [elector = elector_] { return elector->remaining(); });
}

bool LeaderElection::acquire(const std::stop_token& stop) {
  if (elector_ == nullptr) return !stop.stop_requested();
  log_.info("waiting to become the leader");
  if (!elector_->acquire(stop)) return false;
  metrics_->set_leader(true);
  log_.info("this operator is the leader");
  return true;
}

bool LeaderElection::hold(const std::stop_token& stop) {
  if (elector_ != nullptr) {
    const bool held = elector_->hold(stop);
    if (!held) metrics_->set_leader(false);
    return held;
  }
  while (sleeper_->sleep(std::chrono::hours(1), stop)) {
  }
  return true;
}

void LeaderElection::release() {
  if (elector_ == nullptr) return;
  elector_->release();
  metrics_->set_leader(false);
}

}  // namespace oarlock::control

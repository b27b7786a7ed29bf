#include "operator/shell/election.h"

namespace oarlock::control {

Election::Election(const ElectionOptions& options, std::shared_ptr<kube::Transport> transport,
                   std::shared_ptr<Metrics> metrics, std::shared_ptr<const Clock> clock,
                   std::shared_ptr<kube::Sleeper> sleeper, uint64_t seed, const Logger& log)
    : metrics_(std::move(metrics)),
      sleeper_(std::move(sleeper)),
      log_(log.with({{"lease", options.lease.key.to_string()}, {"identity", options.lease.identity}})),
      writing_(transport) {
  if (!options.enabled) return;
  kube::LeaderElector::Hooks hooks;
  hooks.on_new_leader = [this](const std::string& holder) { log_.info("the leader is known", {{"leader", holder}}); };
  hooks.on_problem = [this](const kube::ApiError& error) {
    // Of two that try at once one meets a conflict: that is how it works.
    const bool usual =
        error.kind == kube::ApiError::Kind::kConflict || error.kind == kube::ApiError::Kind::kAlreadyExists;
    log_.write(usual ? LogLevel::kDebug : LogLevel::kWarn, "the lease cannot be had or renewed; trying again",
               {{"error", error.message}, {"status", error.status}});
  };
  hooks.on_slow_path = [this] { metrics_->leader_slow_path(); };
  const kube::Milliseconds deadline = options.lease.renew_deadline / 2;  // time for a second try
  elector_ = std::make_shared<kube::LeaderElector>(options.lease, std::move(hooks), kube::Client(transport, deadline),
                                                   std::move(clock), sleeper_, kube::seeded_random(seed));
  metrics_->leading(false);
  writing_ = std::make_shared<kube::LeasedTransport>(std::move(transport),
                                                     [elector = elector_] { return elector->remaining(); });
}

bool Election::acquire(const std::stop_token& stop) {
  if (elector_ == nullptr) return !stop.stop_requested();
  log_.info("waiting to become the leader");
  if (!elector_->acquire(stop)) return false;
  metrics_->leading(true);
  log_.info("this operator is the leader");
  return true;
}

bool Election::hold(const std::stop_token& stop) {
  if (elector_ != nullptr) {
    const bool held = elector_->hold(stop);
    if (!held) metrics_->leading(false);
    return held;
  }
  while (sleeper_->sleep(std::chrono::hours(1), stop)) {
  }
  return true;
}

void Election::release() {
  if (elector_ == nullptr) return;
  elector_->release();
  metrics_->leading(false);
}

}  // namespace oarlock::control

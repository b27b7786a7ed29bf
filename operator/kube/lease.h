// Leader election over a coordination.k8s.io/v1 Lease, after client-go's tools/leaderelection: whoever wrote the lease
// last holds it for its duration, measured by each observer's own clock from when it saw the lease change, so that
// clocks need not agree. The lease alone fences nothing (client-go says so too): LeasedTransport refuses writes of whom
// has not renewed in time, and preconditions of the writes catch what is left.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "operator/kube/client.h"
#include "operator/kube/timing.h"

namespace oarlock::kube {

struct LeaseOptions {
  ObjectKey key;         // of the Lease
  std::string identity;  // unique among the candidates
  std::chrono::seconds duration{15};
  std::chrono::seconds renew_deadline{10};  // a leader that could not renew for so long gives up
  std::chrono::seconds retry_period{2};
};

// spec of a Lease. A renewal keeps acquire time and transitions.
struct LeaseRecord {
  std::string holder;  // empty: released
  int duration_seconds = 0;
  std::string acquire_time;  // MicroTime, as written
  std::string renew_time;
  int transitions = 0;

  bool operator==(const LeaseRecord&) const = default;
};
struct Lease {
  LeaseRecord record;
  std::string resource_version;
};
Result<Lease> read_lease(const std::string& json);
// With a resource version it replaces that state only, without one it is for a create.
std::string lease_body(const ObjectKey& key, const Lease& lease);

class LeaderElector {
 public:
  struct Hooks {
    std::function<void(const std::string& holder)> on_new_leader;  // each time another one holds it
    std::function<void(const ApiError&)> on_problem;
    std::function<void()> on_slow_path;  // a renewal had to read the lease first
  };

  // The client's deadline should be below renew_deadline, so that there is time for a second try.
  LeaderElector(LeaseOptions options, Hooks hooks, Client client, std::shared_ptr<const Clock> clock,
                std::shared_ptr<Sleeper> sleeper, Random random);

  // The three are called by one thread, in this order.
  bool acquire(const std::stop_token& stop);  // waits; false: stopped
  bool hold(const std::stop_token& stop);     // renews; true: stopped while it holds, false: it was lost
  void release();                             // so that the next one need not wait; best effort

  // Thread-safe. How long a write may still take: until the lease could be somebody else's. Zero: not the leader.
  Milliseconds remaining() const;

 private:
  bool try_acquire_or_renew(const std::stop_token& stop);
  // Writes the lease in our name; false: not now.
  bool write(LeaseRecord record, const std::stop_token& stop);
  void observe(Lease lease);
  bool held_by_other(SteadyTime now) const;

  const LeaseOptions options_;
  const Hooks hooks_;
  const Client client_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<Sleeper> sleeper_;
  const Random random_;
  std::optional<Lease> observed_;  // as it was last seen
  SteadyTime observed_at_{};       // when that was new
  std::string last_leader_;
  mutable std::mutex mutex_;
  std::optional<SteadyTime> renewed_at_;  // when the last renewal that succeeded was begun; empty: not the leader
};

// Refuses what is not a GET while the elector does not hold the lease, and lets no write wait for longer than it does.
// Streams pass.
class LeasedTransport final : public Transport {
 public:
  using Remaining = std::function<Milliseconds()>;
  LeasedTransport(std::shared_ptr<Transport> inner, Remaining remaining)
      : inner_(std::move(inner)), remaining_(std::move(remaining)) {}

  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) override;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) override {
    return inner_->stream(request, sink, limits, std::move(cancel));
  }

 private:
  const std::shared_ptr<Transport> inner_;
  const Remaining remaining_;
};

}  // namespace oarlock::kube

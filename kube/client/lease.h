// Leader election with a coordination.k8s.io/v1 Lease, after client-go's tools/leaderelection. The last writer of the
// lease holds it for its duration. Each candidate measures the duration with its own clock from the moment when it
// observed the change, so clocks need not be synchronized. As client-go documents, the lease alone does not fence a
// former leader: LeasedTransport rejects the writes of a leader that has not renewed in time, and preconditions of the
// writes catch the rest.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "kube/client/backoff.h"
#include "kube/client/client.h"

namespace oarlock::kube {

struct LeaseOptions {
  ObjectKey key;         // of the Lease object
  std::string identity;  // unique among the candidates
  std::chrono::seconds duration{15};
  std::chrono::seconds renew_deadline{10};  // a leader that cannot renew for this long gives up leadership
  std::chrono::seconds retry_period{2};
};

// The spec of a Lease. A renewal does not change acquire_time and transitions.
struct LeaseRecord {
  std::string holder;  // empty: released
  int duration_seconds = 0;
  std::string acquire_time;  // metav1.MicroTime, as the holder wrote it
  std::string renew_time;
  int transitions = 0;

  bool operator==(const LeaseRecord&) const = default;
};
struct Lease {
  LeaseRecord record;
  std::string resource_version;
};
Result<Lease> parse_lease(const std::string& json);
// Returns the body of a request. With a resource version, it is for a replace of exactly that state; without one, for a
// create.
std::string lease_body(const ObjectKey& key, const Lease& lease);

class LeaderElector {
 public:
  struct Hooks {
    std::function<void(const std::string& holder)> on_new_leader;  // the holder has changed
    std::function<void(const ApiError&)> on_problem;
    std::function<void()> on_slow_path;  // a renewal had to read the lease before writing it
  };

  // The client's deadline should be less than renew_deadline, so that there is time for a second attempt.
  LeaderElector(LeaseOptions options, Hooks hooks, Client client, std::shared_ptr<const Clock> clock,
                std::shared_ptr<Sleeper> sleeper, Random random);

  // One thread calls these three, in this order.

  // Waits until this candidate holds the lease. Returns false if a stop was requested.
  bool acquire(const std::stop_token& stop);
  // Renews the lease. Returns true if a stop was requested while this candidate holds it, and false if it was lost.
  bool hold(const std::stop_token& stop);
  // Gives up the lease, so that the next leader need not wait for its expiry. Best effort.
  void release();

  // Returns the time until another candidate could acquire the lease, which is how long a write may still take. Returns
  // zero if this candidate is not the leader. Thread-safe.
  http::Milliseconds remaining() const;

 private:
  bool try_acquire_or_renew(const std::stop_token& stop);
  // Writes the lease with this candidate as its holder. Returns false if that failed.
  bool write(LeaseRecord record, const std::stop_token& stop);
  void observe(Lease lease);
  bool held_by_other(SteadyTime now) const;

  const LeaseOptions options_;
  const Hooks hooks_;
  const Client client_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<Sleeper> sleeper_;
  const Random random_;
  std::optional<Lease> observed_;  // the last observed state
  SteadyTime observed_at_{};       // when the record last changed
  std::string last_leader_;
  mutable std::mutex mutex_;
  std::optional<SteadyTime> renewed_at_;  // start of the last successful renewal; nullopt: not the leader
};

// Rejects all requests but GET while this process does not hold the lease, and limits the deadline of a write to the
// time that the lease remains valid. Streams are not affected.
class LeasedTransport final : public http::Transport {
 public:
  using Remaining = std::function<http::Milliseconds()>;
  LeasedTransport(std::shared_ptr<http::Transport> inner, Remaining remaining)
      : inner_(std::move(inner)), remaining_(std::move(remaining)) {}

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds deadline,
                                             std::stop_token cancel) override;
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink,
                                               http::StreamLimits limits, std::stop_token cancel) override {
    return inner_->stream(request, sink, limits, std::move(cancel));
  }

 private:
  const std::shared_ptr<http::Transport> inner_;
  const Remaining remaining_;
};

}  // namespace oarlock::kube

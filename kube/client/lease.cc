#include "kube/client/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/clock.h"
#include "common/json_access.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;

constexpr double kJitter = 1.2;  // of the delays between attempts to acquire: client-go's JitterFactor

Resource leases() { return {"coordination.k8s.io", "v1", "leases"}; }

int number_at(const Json& json, const char* key) {
  const Json& value = member(json, key);
  return value.is_number_integer() ? value.get<int>() : 0;
}

}  // namespace

Result<Lease> parse_lease(const std::string& json) {
  const Json body = parse_untrusted_json(json);
  if (!body.is_object()) return oarlock::fail(ExitCode::kDataErr, "the Lease is not JSON");
  const Json& spec = member(body, "spec");
  return Lease{.record = {.holder = text_at(spec, "holderIdentity"),
                          .duration_seconds = number_at(spec, "leaseDurationSeconds"),
                          .acquire_time = text_at(spec, "acquireTime"),
                          .renew_time = text_at(spec, "renewTime"),
                          .transitions = number_at(spec, "leaseTransitions")},
               .resource_version = text_at(member(body, "metadata"), "resourceVersion")};
}

std::string lease_body(const ObjectKey& key, const Lease& lease) {
  Json metadata = {{"name", key.name}, {"namespace", key.namespace_name}};
  if (!lease.resource_version.empty()) metadata["resourceVersion"] = lease.resource_version;
  return Json{{"apiVersion", "coordination.k8s.io/v1"},
              {"kind", "Lease"},
              {"metadata", std::move(metadata)},
              {"spec",
               {{"holderIdentity", lease.record.holder},
                {"leaseDurationSeconds", lease.record.duration_seconds},
                {"acquireTime", lease.record.acquire_time},
                {"renewTime", lease.record.renew_time},
                {"leaseTransitions", lease.record.transitions}}}}
      .dump();
}

LeaderElector::LeaderElector(LeaseOptions options, Hooks hooks, Client client, std::shared_ptr<const Clock> clock,
                             std::shared_ptr<Sleeper> sleeper, Random random)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      client_(std::move(client)),
      clock_(std::move(clock)),
      sleeper_(std::move(sleeper)),
      random_(std::move(random)) {}

bool LeaderElector::acquire(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (try_acquire_or_renew(stop)) return true;
    const double stretch = 1 + kJitter * random_();
    const auto pause = std::chrono::duration_cast<http::Milliseconds>(options_.retry_period * stretch);
    if (!sleeper_->sleep(pause, stop)) return false;
  }
  return false;
}

bool LeaderElector::hold(const std::stop_token& stop) {
  SteadyTime last = clock_->steady();
  while (sleeper_->sleep(options_.retry_period, stop)) {
    const SteadyTime begun = clock_->steady();
    if (try_acquire_or_renew(stop)) {
      last = begun;
    } else if (observed_ && observed_->record.holder != options_.identity) {
      break;  // another candidate holds it
    } else if (clock_->steady() - last >= options_.renew_deadline) {
      break;
    }
  }
  if (stop.stop_requested()) return true;
  const std::lock_guard lock(mutex_);
  renewed_at_.reset();
  return false;
}

void LeaderElector::release() {
  if (remaining().count() == 0 || !observed_) return;
  {
    const std::lock_guard lock(mutex_);
    renewed_at_.reset();  // rejects further writes
  }
  Lease lease = *observed_;
  const std::string now = to_rfc3339_micro(clock_->now());
  lease.record = {.holder = "",
                  .duration_seconds = 1,  // as in client-go: 0 is invalid
                  .acquire_time = now,
                  .renew_time = now,
                  .transitions = lease.record.transitions};
  const auto response = client_.replace(leases(), options_.key, lease_body(options_.key, lease), {});
  if (!response) hooks_.on_problem(response.error());
}

http::Milliseconds LeaderElector::remaining() const {
  const std::lock_guard lock(mutex_);
  if (!renewed_at_) return http::Milliseconds(0);
  const SteadyTime now = clock_->steady();
  if (now - *renewed_at_ >= options_.renew_deadline) return http::Milliseconds(0);
  return std::chrono::duration_cast<http::Milliseconds>(*renewed_at_ + options_.duration - now);
}

bool LeaderElector::held_by_other(SteadyTime now) const {
  const LeaseRecord& record = observed_->record;
  if (record.holder.empty() || record.holder == options_.identity) return false;
  return now < observed_at_ + std::chrono::seconds(record.duration_seconds);
}

void LeaderElector::observe(Lease lease) {
  if (!observed_ || observed_->record != lease.record) observed_at_ = clock_->steady();
  observed_ = std::move(lease);
  if (observed_->record.holder != last_leader_) {
    last_leader_ = observed_->record.holder;
    if (!last_leader_.empty()) hooks_.on_new_leader(last_leader_);
  }
}

bool LeaderElector::try_acquire_or_renew(const std::stop_token& stop) {
  // The leader has the current state of the lease, so it need not read it first.
  if (remaining().count() > 0 && observed_ && observed_->record.holder == options_.identity) {
    if (write(observed_->record, stop)) return true;
    hooks_.on_slow_path();
  }
  const auto response = client_.get(leases(), options_.key, stop);
  if (!response && response.error().kind != ApiErrorKind::kNotFound) {
    hooks_.on_problem(response.error());
    return false;
  }
  if (!response) {
    observed_.reset();
    return write({.holder = "", .duration_seconds = 0, .acquire_time = "", .renew_time = "", .transitions = 0}, stop);
  }
  Result<Lease> lease = parse_lease(*response);
  if (!lease) {
    ApiError error;
    error.message = lease.error().message;
    hooks_.on_problem(error);
    return false;
  }
  observe(std::move(*lease));
  if (held_by_other(clock_->steady())) return false;
  return write(observed_->record, stop);
}

bool LeaderElector::write(LeaseRecord record, const std::stop_token& stop) {
  const SteadyTime begun = clock_->steady();
  const std::string now = to_rfc3339_micro(clock_->now());
  if (record.holder != options_.identity) {
    record.acquire_time = now;
    // The API server rejects a negative number.
    if (observed_) record.transitions = std::clamp(record.transitions, 0, std::numeric_limits<int>::max() - 1) + 1;
  }
  record.holder = options_.identity;
  record.duration_seconds = static_cast<int>(options_.duration.count());
  record.renew_time = now;
  const std::string body =
      lease_body(options_.key, {.record = record, .resource_version = observed_ ? observed_->resource_version : ""});
  const auto response = observed_ ? client_.replace(leases(), options_.key, body, stop)
                                  : client_.create(leases(), options_.key.namespace_name, body, stop);
  if (!response) {
    hooks_.on_problem(response.error());
    return false;
  }
  Result<Lease> written = parse_lease(*response);
  if (!written) return false;
  observe(std::move(*written));
  const std::lock_guard lock(mutex_);
  renewed_at_ = begun;
  return true;
}

http::TransportResult<http::Response> LeasedTransport::send(const http::Request& request, http::Milliseconds deadline,
                                                            std::stop_token cancel) {
  if (request.method == "GET") return inner_->send(request, deadline, std::move(cancel));
  const http::Milliseconds left = remaining_();
  if (left.count() <= 0) {
    return tl::make_unexpected(
        http::TransportError{http::TransportErrorKind::kRefused, "no longer the leader: the write was rejected"});
  }
  return inner_->send(request, std::min(deadline, left), std::move(cancel));
}

}  // namespace oarlock::kube

#include "operator/shell/cache_health.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/text.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {
constexpr auto kLogInterval = std::chrono::minutes(1);
constexpr size_t kLoggedNamespaces = 10;
constexpr char kLimitRemedy[] =
    "limit the jobs of each namespace with a ResourceQuota, delete finished jobs, or raise --cache-limit and the "
    "memory "
    "of the operator (docs/operate.md, Capacity)";

// Without nodes, only the early checkpoints are missing.
bool is_required(ResourceKind kind) { return kind != ResourceKind::kNode; }

}  // namespace

std::string remedy_for(ResourceKind kind, const kube::ApiError& error) {
  using ErrorKind = kube::ApiErrorKind;
  using TransportKind = http::TransportErrorKind;
  switch (error.kind) {
    case ErrorKind::kTransport:
      if (error.transport == TransportKind::kTls) return "check the certificate authority in the kubeconfig";
      if (error.transport == TransportKind::kConnect)
        return "is the API server running, and is this the right --kubeconfig?";
      return "";
    case ErrorKind::kNotFound:
      return kind == ResourceKind::kJob ? "the TrainingJob CRD is not installed: kubectl apply -f manifests/crd" : "";
    case ErrorKind::kUnauthorized:
      return "the credentials are not accepted: renew the token or the client certificate";
    case ErrorKind::kForbidden:
      if (kind == ResourceKind::kNode)
        return "no checkpoint is requested before a disruption: set the chart's operator.watchNodes, or omit "
               "--watch-nodes";
      return "the role is missing: kubectl apply -f manifests/install.yaml, or restrict the operator with --namespace";
    default:
      return "";
  }
}

std::string public_description(const kube::ApiError& error) {
  using TransportKind = http::TransportErrorKind;
  if (!error.transport)
    return error.status == 0 ? "the API server's response is not usable (see the operator's log)"
                             : fmt::format("the API server returned status {}", error.status);
  switch (*error.transport) {
    case TransportKind::kConnect:
      return "no connection to the API server";
    case TransportKind::kTls:
      return "the TLS handshake with the API server failed";
    case TransportKind::kBroken:
      return "the connection to the API server broke";
    case TransportKind::kDeadline:
    case TransportKind::kIdle:
      return "the API server did not respond in time";
    case TransportKind::kCancelled:
      return "cancelled";
    case TransportKind::kRefused:
      return "the credentials or the API server's response are not usable (see the operator's log)";
  }
  return "";
}

void CacheHealth::record_failure(const WatchScope& scope, const kube::ApiError& error) {
  const std::string what = fmt::format("failed to list or watch {}: ", scope.to_string());
  const std::string remedy = remedy_for(scope.kind, error);
  const std::string advice = remedy.empty() ? "" : "; " + remedy;
  const std::string text = what + sanitize_line(error.message) + advice;
  const SteadyTime now = clock_->steady();
  bool is_due = false;
  int count = 0;
  {
    const std::lock_guard lock(mutex_);
    outdated_since_.try_emplace(scope, now);
    Failure& failure = failures_[scope];
    count = ++failure.count;
    failure.public_text = what + public_description(error) + advice;
    is_due = failure.text != text || now - failure.logged >= kLogInterval;
    if (is_due) {
      failure.text = text;
      failure.logged = now;
    }
  }
  log_.write(is_due ? LogLevel::kWarn : LogLevel::kDebug, text,
             {{"server", server_},
              {"resource", resource_of(scope.kind).to_string()},
              {"status", error.status},
              {"failures", count}});
}

void CacheHealth::record_listing(const WatchScope& scope) {
  const std::lock_guard lock(mutex_);
  outdated_since_.try_emplace(scope, clock_->steady());
}

void CacheHealth::record_list(const WatchScope& scope, size_t objects) {
  const bool had_failed = clear(scope);
  log_.write(LogLevel::kInfo, had_failed ? "the cache is up to date again" : "the cache is up to date",
             {{"resource", resource_of(scope.kind).to_string()}, {"objects", objects}});
}

void CacheHealth::record_watch(const WatchScope& scope) {
  if (clear(scope)) log_.info("the watch works again", {{"resource", resource_of(scope.kind).to_string()}});
}

bool CacheHealth::clear(const WatchScope& scope) {
  const std::lock_guard lock(mutex_);
  outdated_since_.erase(scope);
  return failures_.erase(scope) > 0;
}

int CacheHealth::failures(ResourceKind kind) const {
  const std::lock_guard lock(mutex_);
  int most = 0;
  for (const auto& [scope, failure] : failures_) {
    if (scope.kind == kind) most = std::max(most, failure.count);
  }
  return most;
}

kube::Seconds CacheHealth::out_of_date(ResourceKind kind) const {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  kube::Seconds longest{0};
  for (const auto& [scope, since] : outdated_since_) {
    if (scope.kind == kind) longest = std::max<kube::Seconds>(longest, now - since);
  }
  return longest;
}

std::string CacheHealth::current_failure() const {
  const std::lock_guard lock(mutex_);
  return failures_.empty() ? "" : failures_.begin()->second.text;
}

std::string CacheHealth::public_failure() const {
  const std::lock_guard lock(mutex_);
  return failures_.empty() ? "" : failures_.begin()->second.public_text;
}

void CacheHealth::record_incomplete(const WatchScope& scope, const std::set<std::string>& namespaces) {
  {
    const std::lock_guard lock(mutex_);
    if (namespaces.empty()) {
      incomplete_.erase(scope);
    } else {
      incomplete_[scope] = namespaces.size();
    }
  }
  const std::string resource = resource_of(scope.kind).to_string();
  if (namespaces.empty()) {
    log_.info("the cache has all objects again", {{"resource", resource}});
    return;
  }
  std::string names;
  size_t count = 0;
  for (const std::string& name : namespaces) {
    if (++count > kLoggedNamespaces) break;
    names += (names.empty() ? "" : ", ") + sanitize_line(name);
  }
  log_.warn(fmt::format("the cache is full: the operator ignores {} of the namespaces that have the most; {}", resource,
                        kLimitRemedy),
            {{"resource", resource}, {"namespaces", names}, {"count", namespaces.size()}});
}

size_t CacheHealth::incomplete_namespaces(ResourceKind kind) const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [scope, count] : incomplete_) {
    if (scope.kind == kind) sum += count;
  }
  return sum;
}

std::string CacheHealth::incomplete_reason() const {
  const std::lock_guard lock(mutex_);
  if (incomplete_.empty()) return "";
  const auto& [scope, count] = *incomplete_.begin();
  return fmt::format("the cache is full: the operator ignores {} of {}; {}", resource_of(scope.kind).to_string(),
                     counted(static_cast<int64_t>(count), "namespace"), kLimitRemedy);
}

std::string CacheHealth::stale_reason() const {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  for (const auto& [scope, failure] : failures_) {
    if (failure.count >= kFailuresUntilStale && is_required(scope.kind))
      return fmt::format("{} ({} consecutive failures)", failure.public_text, failure.count);
  }
  for (const auto& [scope, since] : outdated_since_) {
    if (now - since < kTimeUntilStale || !is_required(scope.kind)) continue;
    const auto failure = failures_.find(scope);
    const std::string what = failure != failures_.end() ? failure->second.public_text
                                                        : fmt::format("a list of {} has not ended", scope.to_string());
    return fmt::format("{} (out of date for {} minutes)", what,
                       std::chrono::duration_cast<std::chrono::minutes>(now - since).count());
  }
  return "";
}

}  // namespace oarlock::control

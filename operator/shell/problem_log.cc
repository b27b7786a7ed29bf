#include "operator/shell/problem_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/core/text.h"

namespace oarlock::control {
namespace {
constexpr auto kSayAgain = std::chrono::minutes(1);
}

std::string remedy_for(Kind kind, const kube::ApiError& error) {
  using ErrorKind = kube::ApiError::Kind;
  using TransportKind = kube::TransportError::Kind;
  switch (error.kind) {
    case ErrorKind::kTransport:
      if (error.transport == TransportKind::kTls) return "check the certificate authority in the kubeconfig";
      if (error.transport == TransportKind::kConnect)
        return "is the API server running, and is this the right --kubeconfig?";
      return "";
    case ErrorKind::kNotFound:
      return kind == Kind::kJob ? "the TrainingJob CRD is not installed: kubectl apply -f manifests/crd" : "";
    case ErrorKind::kUnauthorized:
      return "the credentials are not accepted: renew the token or the client certificate";
    case ErrorKind::kForbidden:
      return "the role is missing: kubectl apply -f manifests/install.yaml, or ask for less with --namespace";
    default:
      return "";
  }
}

void ProblemLog::problem(const Followed& followed, const kube::ApiError& error) {
  std::string text = fmt::format("cannot follow {}: {}", followed.to_string(), one_line(error.message));
  if (const std::string remedy = remedy_for(followed.kind, error); !remedy.empty()) text += "; " + remedy;
  const SteadyTime now = clock_->steady();
  bool is_due = false;
  int failures = 0;
  {
    const std::lock_guard lock(mutex_);
    State& state = states_[followed];
    failures = ++state.failures;
    is_due = state.text != text || now - state.said >= kSayAgain;
    if (is_due) {
      state.text = text;
      state.said = now;
    }
  }
  log_.write(is_due ? LogLevel::kWarn : LogLevel::kDebug, text,
             {{"server", server_},
              {"resource", resource_of(followed.kind).to_string()},
              {"status", error.status},
              {"failures", failures}});
}

void ProblemLog::works(const Followed& followed, size_t objects) {
  const bool had_problem = forget(followed);
  log_.write(LogLevel::kInfo, had_problem ? "the cache is up to date again" : "the cache is up to date",
             {{"resource", resource_of(followed.kind).to_string()}, {"objects", objects}});
}

void ProblemLog::watches(const Followed& followed) {
  if (forget(followed)) log_.info("the watch works again", {{"resource", resource_of(followed.kind).to_string()}});
}

bool ProblemLog::forget(const Followed& followed) {
  const std::lock_guard lock(mutex_);
  return states_.erase(followed) > 0;
}

std::string ProblemLog::present() const {
  const std::lock_guard lock(mutex_);
  return states_.empty() ? "" : states_.begin()->second.text;
}

int ProblemLog::failures(Kind kind) const {
  const std::lock_guard lock(mutex_);
  int most = 0;
  for (const auto& [followed, state] : states_) {
    if (followed.kind == kind) most = std::max(most, state.failures);
  }
  return most;
}

std::string ProblemLog::why_stale() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [followed, state] : states_) {
    if (state.failures >= kFailuresUntilStale)
      return fmt::format("{} ({} failures in a row)", state.text, state.failures);
  }
  return "";
}

}  // namespace oarlock::control

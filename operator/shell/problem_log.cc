#include "operator/shell/problem_log.h"

#include <fmt/format.h>

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

void ProblemLog::problem(Kind kind, const kube::ApiError& error) {
  const std::string what = resource_of(kind).to_string();
  std::string text = fmt::format("cannot follow {}: {}", what, error.message);
  if (const std::string remedy = remedy_for(kind, error); !remedy.empty()) text += "; " + remedy;
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_->steady();
  State& state = states_[kind];
  const bool say = state.text != text || now - state.said >= kSayAgain;
  log_.write(say ? LogLevel::kWarn : LogLevel::kDebug, text,
             {{"server", server_}, {"resource", what}, {"status", error.status}});
  if (say) state = {std::move(text), now};
}

void ProblemLog::works(Kind kind, size_t objects) {
  const std::lock_guard lock(mutex_);
  const bool had_problem = states_.erase(kind) > 0;
  log_.write(LogLevel::kInfo, had_problem ? "the cache is up to date again" : "the cache is up to date",
             {{"resource", resource_of(kind).to_string()}, {"objects", objects}});
}

std::string ProblemLog::present() const {
  const std::lock_guard lock(mutex_);
  return states_.empty() ? "" : states_.begin()->second.text;
}

}  // namespace oarlock::control

// Who may read /metrics, as kube-rbac-proxy and controller-runtime's filter decide it: the API server is asked who the
// bearer token is (TokenReview) and whether that one may get the path (SubjectAccessReview). Answers are remembered.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/clock.h"
#include "common/http/server.h"
#include "operator/kube/client.h"

namespace oarlock::control {

class AccessGuard {
 public:
  static constexpr auto kRemembered = std::chrono::minutes(1);  // yes
  static constexpr auto kRefused = std::chrono::seconds(10);    // no
  static constexpr size_t kMostRemembered = 1000;

  AccessGuard(kube::Client client, std::shared_ptr<const Clock> clock)
      : client_(std::move(client)), clock_(std::move(clock)) {}

  // Empty: allowed. 401: nobody that the cluster knows. 403: somebody who may not. 503: the API server does not say.
  // Thread-safe.
  std::optional<HttpResponse> refuse(const std::string& path, const std::string& authorization);

 private:
  struct Verdict {
    int status = 200;
    SteadyTime until{};
  };
  int ask(const std::string& path, const std::string& token) const;  // 200, 401, 403 or 503

  const kube::Client client_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, Verdict> verdicts_;  // by path and token
};

}  // namespace oarlock::control

// Decides who may read /metrics, as kube-rbac-proxy and controller-runtime's filter do: a TokenReview names the user of
// a bearer token, and a SubjectAccessReview says whether that user may get the path. Answers are cached, and the number
// of reviews is bounded, so that clients with random tokens neither load the API server nor displace the verdicts of
// known scrapers.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/http/server.h"
#include "operator/kube/client.h"
#include "operator/shell/verdict_cache.h"

namespace oarlock::control {

class AccessGuard {
 public:
  // An allowed token is reviewed again after kAllowedFresh. While the API server does not answer, or another thread
  // reviews the token, it stays allowed until kAllowedAtMost after its last review.
  static constexpr std::chrono::minutes kAllowedFresh{1};
  static constexpr std::chrono::minutes kAllowedAtMost{5};
  static constexpr std::chrono::seconds kRefused{10};
  // After a review without an answer no review begins for this time.
  static constexpr std::chrono::seconds kPauseAfterFailure{5};
  static constexpr size_t kMaxAllowed = 100;
  static constexpr size_t kMaxRefused = 1000;
  // Reviews of tokens that are not known as allowed: one at a time, so many per second, and so many immediately after a
  // pause. Renewals of known tokens have a place of their own and are not limited in rate: there are at most
  // kMaxAllowed such tokens. So an API server that hangs holds at most two threads of the HTTP server, for one call's
  // deadline.
  static constexpr double kReviewsPerSecond = 5;
  static constexpr double kReviewBurst = 10;
  static constexpr size_t kMaxToken = 8192;  // bytes; the HTTP server accepts no longer head

  // `client` should have a deadline well below a scrape's timeout: a call to refuse() lasts at most two of its calls.
  AccessGuard(kube::Client client, std::shared_ptr<const Clock> clock);

  // Empty: allowed. 401: no valid token. 403: the user may not get the path. 429: too many tokens are being reviewed.
  // 503: the API server does not answer. Blocks only while it makes a review. Thread-safe.
  std::optional<HttpResponse> refuse(const std::string& path, const std::string& authorization);

 private:
  enum class Decision { kAllow, kRefuse, kReview };
  struct Admission {
    Decision decision = Decision::kReview;
    int status = 200;         // of kRefuse
    bool is_renewal = false;  // of kReview: the token is known as allowed
  };

  Admission admit(const std::string& key);
  Admission admit_renewal(const VerdictCache::Verdict& verdict, SteadyTime now);
  Admission admit_stranger(SteadyTime now);
  bool take_from_budget(SteadyTime now);
  int review(const std::string& path, const std::string& token) const;  // 200, 401, 403 or 503
  int finish(const std::string& key, const Admission& admission, int status);

  const kube::Client client_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  // All of these with the lock held.
  VerdictCache allowed_{kMaxAllowed};
  VerdictCache refused_{kMaxRefused};
  bool is_reviewing_stranger_ = false;
  bool is_renewing_ = false;
  double budget_ = kReviewBurst;
  SteadyTime budget_at_;
  SteadyTime paused_until_;
};

}  // namespace oarlock::control

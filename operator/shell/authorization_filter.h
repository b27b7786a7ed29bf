// Authentication and authorization of HTTP clients by the cluster, as kube-rbac-proxy and controller-runtime's
// WithAuthenticationAndAuthorization do it: a TokenReview authenticates the bearer token of a request, and a
// SubjectAccessReview checks whether its user may get the path.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "http/server.h"
#include "kube/client/client.h"

namespace oarlock::control {

// SHA-256 over the path and the token, so that the cache holds neither tokens nor long texts.
std::string review_key(std::string_view path, std::string_view token);

// A bounded cache of review results. Not thread-safe.
class ReviewCache {
 public:
  struct Entry {
    int status = 0;            // HTTP
    SteadyTime fresh_until{};  // no review is needed before this time
    SteadyTime expires{};
  };

  // Above `limit` entries, the one that expires first is removed.
  explicit ReviewCache(size_t limit) : limit_(limit) {}

  // Returns nothing if the key is unknown or its entry has expired.
  std::optional<Entry> find(const std::string& key, SteadyTime now) const;
  void put(const std::string& key, const Entry& entry, SteadyTime now);
  void erase(const std::string& key) { entries_.erase(key); }
  size_t size() const { return entries_.size(); }

 private:
  const size_t limit_;
  std::map<std::string, Entry> entries_;
};

// Review results are cached and the number of reviews is bounded, so that clients with random tokens neither load the
// API server nor evict the results of known clients. Tokens from addresses of known clients are reviewed separately, so
// that a flood from other addresses does not delay a client whose token was rotated. Thread-safe.
class AuthorizationFilter {
 public:
  // An allowed token is reviewed again after kAllowedFresh. While the API server does not respond, or another thread
  // reviews the token, it remains allowed until kAllowedExpiry after its last review.
  static constexpr std::chrono::minutes kAllowedFresh{1};
  static constexpr std::chrono::minutes kAllowedExpiry{5};
  static constexpr std::chrono::seconds kDeniedExpiry{10};
  static constexpr std::chrono::seconds kPauseAfterFailure{5};  // no review starts after one that got no response
  static constexpr size_t kMaxAllowed = 100;
  static constexpr size_t kMaxDenied = 1000;
  // Reviews of tokens that are not known as allowed run one at a time and are limited by a token bucket: those from
  // known addresses, and separately those from all others. Reviews that renew a known token run separately, too, one at
  // a time, without a rate limit, because there are at most kMaxAllowed such tokens. So an API server that hangs blocks
  // at most three threads of the HTTP server, for the deadline of one call.
  static constexpr double kReviewsPerSecond = 5;
  static constexpr double kReviewBurst = 10;
  static constexpr size_t kMaxToken = 8192;  // bytes; the HTTP server rejects longer request heads

  // The client's deadline should be well below the timeout of a scrape, because one check makes up to two calls.
  AuthorizationFilter(kube::Client client, std::shared_ptr<const Clock> clock);

  // Returns nothing if the request is allowed, otherwise the response: 401 without a valid token, 403 if the user may
  // not get the path, 429 if too many tokens are under review, 503 if the API server does not respond. Blocks only
  // while it makes a review. `is_known_address`: a request from the client's address was allowed recently.
  std::optional<HttpResponse> check(const std::string& path, const std::string& authorization,
                                    bool is_known_address = false);

  // Cancels running reviews and rejects all further ones with 503.
  void stop() { stop_.request_stop(); }

 private:
  enum class Decision { kAllow, kDeny, kReview };
  // Reviews that run one at a time.
  struct Lane {
    bool is_busy = false;
    double bucket = kReviewBurst;
    SteadyTime bucket_updated{};

    bool take_from_bucket(SteadyTime now);
  };
  struct Admission {
    Decision decision = Decision::kReview;
    int status = 200;      // for kDeny
    Lane* lane = nullptr;  // for kReview
  };

  Admission admit(const std::string& key, bool is_known_address);
  // Called with the mutex held.
  Admission admit_known(const ReviewCache::Entry& entry, SteadyTime now);
  Admission admit_unknown(Lane& lane, SteadyTime now);

  int review(const std::string& path, const std::string& token) const;  // returns 200, 401, 403 or 503
  int record(const std::string& key, const Admission& admission, int status);

  const kube::Client client_;
  const std::shared_ptr<const Clock> clock_;
  std::stop_source stop_;
  std::mutex mutex_;
  // Guarded by mutex_.
  ReviewCache allowed_{kMaxAllowed};
  ReviewCache denied_{kMaxDenied};
  Lane renewals_;         // of tokens that are known as allowed; its bucket is not used
  Lane known_addresses_;  // other tokens, by the address of the client
  Lane other_addresses_;
  SteadyTime paused_until_;
};

}  // namespace oarlock::control

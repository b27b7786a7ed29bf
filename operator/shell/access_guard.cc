#include "operator/shell/access_guard.h"

#include <algorithm>

#include "operator/kube/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

kube::Resource token_reviews() { return {"authentication.k8s.io", "v1", "tokenreviews"}; }
kube::Resource access_reviews() { return {"authorization.k8s.io", "v1", "subjectaccessreviews"}; }

HttpResponse response_of(int status) {
  switch (status) {
    case 401:
      return {.status = 401, .body = "a valid bearer token of the cluster is required\n"};
    case 403:
      return {.status = 403,
              .body = "this user may not read it: a role with nonResourceURLs and the verb get is required\n"};
    case 429:
      return {.status = 429, .body = "too many tokens are being reviewed; retry later\n"};
    default:
      return {.status = 503, .body = "the API server could not review the token; retry later\n"};
  }
}

// Empty: not a bearer token. The characters are those of RFC 6750.
std::string bearer_token(const std::string& authorization, size_t limit) {
  constexpr std::string_view kBearer = "Bearer ";
  if (!authorization.starts_with(kBearer)) return "";
  std::string token = authorization.substr(kBearer.size());
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._~+/=").find(c) != std::string_view::npos;
  };
  if (token.size() > limit || !std::ranges::all_of(token, is_allowed)) return "";
  return token;
}

}  // namespace

AccessGuard::AccessGuard(kube::Client client, std::shared_ptr<const Clock> clock)
    : client_(std::move(client)), clock_(std::move(clock)), budget_at_(clock_->steady()), paused_until_(budget_at_) {}

std::optional<HttpResponse> AccessGuard::refuse(const std::string& path, const std::string& authorization) {
  const std::string token = bearer_token(authorization, kMaxToken);
  if (token.empty()) return response_of(401);
  const std::string key = verdict_key(path, token);
  const Admission admission = admit(key);
  if (admission.decision == Decision::kAllow) return std::nullopt;
  if (admission.decision == Decision::kRefuse) return response_of(admission.status);
  int status = 503;
  try {
    status = review(path, token);
  } catch (...) {
    finish(key, admission, 503);
    throw;
  }
  status = finish(key, admission, status);
  return status == 200 ? std::nullopt : std::optional(response_of(status));
}

AccessGuard::Admission AccessGuard::admit(const std::string& key) {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  if (const auto verdict = allowed_.find(key, now)) return admit_renewal(*verdict, now);
  if (const auto verdict = refused_.find(key, now)) return {.decision = Decision::kRefuse, .status = verdict->status};
  return admit_stranger(now);
}

AccessGuard::Admission AccessGuard::admit_renewal(const VerdictCache::Verdict& verdict, SteadyTime now) {
  const bool can_wait = now < verdict.fresh_until || now < paused_until_ || is_renewing_;
  if (can_wait) return {.decision = Decision::kAllow};
  is_renewing_ = true;
  return {.decision = Decision::kReview, .is_renewal = true};
}

AccessGuard::Admission AccessGuard::admit_stranger(SteadyTime now) {
  if (now < paused_until_) return {.decision = Decision::kRefuse, .status = 503};
  // A request that finds another one under review is refused instead of kept waiting: it would hold a server thread.
  if (is_reviewing_stranger_ || !take_from_budget(now)) return {.decision = Decision::kRefuse, .status = 429};
  is_reviewing_stranger_ = true;
  return {.decision = Decision::kReview};
}

bool AccessGuard::take_from_budget(SteadyTime now) {
  const double passed = std::chrono::duration<double>(now - budget_at_).count();
  budget_ = std::min(kReviewBurst, budget_ + passed * kReviewsPerSecond);
  budget_at_ = now;
  if (budget_ < 1) return false;
  budget_ -= 1;
  return true;
}

int AccessGuard::finish(const std::string& key, const Admission& admission, int status) {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  (admission.is_renewal ? is_renewing_ : is_reviewing_stranger_) = false;
  if (status == 503) {
    paused_until_ = now + kPauseAfterFailure;
    return allowed_.find(key, now) ? 200 : 503;
  }
  if (status == 200) {
    allowed_.put(key, {status, now + kAllowedFresh, now + kAllowedAtMost}, now);
  } else {
    allowed_.erase(key);
    refused_.put(key, {status, now + kRefused, now + kRefused}, now);
  }
  return status;
}

int AccessGuard::review(const std::string& path, const std::string& token) const {
  const Json review = {
      {"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenReview"}, {"spec", {{"token", token}}}};
  const auto who = client_.create(token_reviews(), "", review.dump(), {});
  if (!who) return 503;
  const Json known = Json::parse(*who, nullptr, false);
  const Json& status = kube::member(known, "status");
  if (!kube::true_at(status, "authenticated")) return 401;

  const Json& user = kube::member(status, "user");
  Json spec = {{"nonResourceAttributes", {{"path", path}, {"verb", "get"}}}, {"user", kube::text_at(user, "username")}};
  if (const Json& groups = kube::member(user, "groups"); groups.is_array()) spec["groups"] = groups;
  if (const Json& uid = kube::member(user, "uid"); uid.is_string()) spec["uid"] = uid;
  if (const Json& extra = kube::member(user, "extra"); extra.is_object()) spec["extra"] = extra;
  const Json access = {
      {"apiVersion", "authorization.k8s.io/v1"}, {"kind", "SubjectAccessReview"}, {"spec", std::move(spec)}};
  const auto may = client_.create(access_reviews(), "", access.dump(), {});
  if (!may) return 503;
  return kube::true_at(kube::member(Json::parse(*may, nullptr, false), "status"), "allowed") ? 200 : 403;
}

}  // namespace oarlock::control

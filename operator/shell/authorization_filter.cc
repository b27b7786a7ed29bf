#include "operator/shell/authorization_filter.h"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/json_access.h"

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
              .body = "forbidden: the user needs a role that allows the verb get for this nonResourceURL\n"};
    case 429:
      return {.status = 429, .body = "too many tokens are being reviewed; retry later\n"};
    default:
      return {.status = 503, .body = "the API server did not review the token; retry later\n"};
  }
}

// Returns an empty string if the header holds no bearer token. The characters are those of RFC 6750.
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

std::string review_key(std::string_view path, std::string_view token) {
  const std::string text = std::to_string(path.size()) + ":" + std::string(path) + std::string(token);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("SHA-256 is not available");
  return {reinterpret_cast<const char*>(digest), size};
}

std::optional<ReviewCache::Entry> ReviewCache::find(const std::string& key, SteadyTime now) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.expires <= now) return std::nullopt;
  return found->second;
}

void ReviewCache::put(const std::string& key, const Entry& entry, SteadyTime now) {
  entries_.insert_or_assign(key, entry);
  if (entries_.size() <= limit_) return;
  std::erase_if(entries_, [&](const auto& item) { return item.second.expires <= now; });
  if (entries_.size() <= limit_) return;
  entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& item) { return item.second.expires; }));
}

AuthorizationFilter::AuthorizationFilter(kube::Client client, std::shared_ptr<const Clock> clock)
    : client_(std::move(client)), clock_(std::move(clock)), paused_until_(clock_->steady()) {}

std::optional<HttpResponse> AuthorizationFilter::check(const std::string& path, const std::string& authorization,
                                                       bool is_known_address) {
  const std::string token = bearer_token(authorization, kMaxToken);
  if (token.empty()) return response_of(401);
  const std::string key = review_key(path, token);
  const Admission admission = admit(key, is_known_address);
  if (admission.decision == Decision::kAllow) return std::nullopt;
  if (admission.decision == Decision::kDeny) return response_of(admission.status);
  int status = 503;
  try {
    status = review(path, token);
  } catch (...) {
    record(key, admission, 503);
    throw;
  }
  status = record(key, admission, status);
  return status == 200 ? std::nullopt : std::optional(response_of(status));
}

AuthorizationFilter::Admission AuthorizationFilter::admit(const std::string& key, bool is_known_address) {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  if (const auto entry = allowed_.find(key, now)) return admit_known(*entry, now);
  if (const auto entry = denied_.find(key, now)) return {.decision = Decision::kDeny, .status = entry->status};
  return admit_unknown(is_known_address ? known_addresses_ : other_addresses_, now);
}

AuthorizationFilter::Admission AuthorizationFilter::admit_known(const ReviewCache::Entry& entry, SteadyTime now) {
  const bool can_wait = now < entry.fresh_until || now < paused_until_ || renewals_.is_busy;
  if (can_wait) return {.decision = Decision::kAllow};
  renewals_.is_busy = true;
  return {.decision = Decision::kReview, .lane = &renewals_};
}

AuthorizationFilter::Admission AuthorizationFilter::admit_unknown(Lane& lane, SteadyTime now) {
  if (now < paused_until_) return {.decision = Decision::kDeny, .status = 503};
  // While another token is under review, the request is denied instead of blocked, because it would hold a thread of
  // the HTTP server.
  if (lane.is_busy || !lane.take_from_bucket(now)) return {.decision = Decision::kDeny, .status = 429};
  lane.is_busy = true;
  return {.decision = Decision::kReview, .lane = &lane};
}

bool AuthorizationFilter::Lane::take_from_bucket(SteadyTime now) {
  const double elapsed = std::chrono::duration<double>(now - bucket_updated).count();
  bucket = std::min(kReviewBurst, bucket + elapsed * kReviewsPerSecond);
  bucket_updated = now;
  if (bucket < 1) return false;
  bucket -= 1;
  return true;
}

int AuthorizationFilter::record(const std::string& key, const Admission& admission, int status) {
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  admission.lane->is_busy = false;
  if (status == 503) {
    paused_until_ = now + kPauseAfterFailure;
    return allowed_.find(key, now) ? 200 : 503;
  }
  if (status == 200) {
    allowed_.put(key, {status, now + kAllowedFresh, now + kAllowedExpiry}, now);
  } else {
    allowed_.erase(key);
    denied_.put(key, {status, now + kDeniedExpiry, now + kDeniedExpiry}, now);
  }
  return status;
}

int AuthorizationFilter::review(const std::string& path, const std::string& token) const {
  const Json review = {
      {"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenReview"}, {"spec", {{"token", token}}}};
  const auto authentication = client_.create(token_reviews(), "", review.dump(), stop_.get_token());
  if (!authentication) return 503;
  const Json reviewed = parse_untrusted_json(*authentication);
  const Json& status = member(reviewed, "status");
  if (!true_at(status, "authenticated")) return 401;

  const Json& user = member(status, "user");
  Json spec = {{"nonResourceAttributes", {{"path", path}, {"verb", "get"}}}, {"user", text_at(user, "username")}};
  if (const Json& groups = member(user, "groups"); groups.is_array()) spec["groups"] = groups;
  if (const Json& uid = member(user, "uid"); uid.is_string()) spec["uid"] = uid;
  if (const Json& extra = member(user, "extra"); extra.is_object()) spec["extra"] = extra;
  const Json access = {
      {"apiVersion", "authorization.k8s.io/v1"}, {"kind", "SubjectAccessReview"}, {"spec", std::move(spec)}};
  const auto authorization = client_.create(access_reviews(), "", access.dump(), stop_.get_token());
  if (!authorization) return 503;
  return true_at(member(parse_untrusted_json(*authorization), "status"), "allowed") ? 200 : 403;
}

}  // namespace oarlock::control

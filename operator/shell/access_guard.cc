#include "operator/shell/access_guard.h"

#include "operator/kube/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

kube::Resource token_reviews() { return {"authentication.k8s.io", "v1", "tokenreviews"}; }
kube::Resource access_reviews() { return {"authorization.k8s.io", "v1", "subjectaccessreviews"}; }

HttpResponse answer(int status) {
  switch (status) {
    case 401:
      return {.status = 401, .body = "a bearer token of the cluster is needed\n"};
    case 403:
      return {.status = 403,
              .body = "this user may not read it: a role with nonResourceURLs and the verb get is needed\n"};
    default:
      return {.status = 503, .body = "the API server does not say whether this is allowed\n"};
  }
}

}  // namespace

std::optional<HttpResponse> AccessGuard::refuse(const std::string& path, const std::string& authorization) {
  constexpr std::string_view kBearer = "Bearer ";
  if (!authorization.starts_with(kBearer)) return answer(401);
  const std::string token = authorization.substr(kBearer.size());
  const std::string key = path + '\0' + token;
  {
    const std::lock_guard lock(mutex_);
    const auto it = verdicts_.find(key);
    if (it != verdicts_.end() && clock_->steady() < it->second.until)
      return it->second.status == 200 ? std::nullopt : std::optional(answer(it->second.status));
  }
  const int status = ask(path, token);
  if (status == 503) return answer(status);
  const SteadyTime now = clock_->steady();
  const std::lock_guard lock(mutex_);
  if (verdicts_.size() >= kMostRemembered)
    std::erase_if(verdicts_, [&](const auto& entry) { return entry.second.until <= now; });
  if (verdicts_.size() < kMostRemembered)
    verdicts_.insert_or_assign(key,
                               Verdict{status, now + (status == 200 ? SteadyTime::duration(kRemembered) : kRefused)});
  return status == 200 ? std::nullopt : std::optional(answer(status));
}

int AccessGuard::ask(const std::string& path, const std::string& token) const {
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

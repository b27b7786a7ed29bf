#include "kube/client/request.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace oarlock::kube {
namespace {

using nlohmann::json;

const Resource kJobs{"oarlock.dev", "v1alpha1", "trainingjobs"};

TEST(Request, List) {
  EXPECT_EQ(list_request(pods(), {}, {}).target, "/api/v1/pods");
  EXPECT_EQ(list_request(pods(), {.namespace_name = "team a", .label_selector = "a in (b,c)", .field_selector = ""},
                         {.resource_version = "0", .limit = 0, .continue_token = ""})
                .target,
            "/api/v1/namespaces/team%20a/pods?labelSelector=a%20in%20%28b%2Cc%29&resourceVersion=0");
  const http::Request first = list_request(kJobs, {}, {.resource_version = "", .limit = 500, .continue_token = ""});
  EXPECT_EQ(first.method, "GET");
  EXPECT_EQ(first.target, "/apis/oarlock.dev/v1alpha1/trainingjobs?limit=500");
  EXPECT_EQ(first.body, "");
  // A continue token contains the resourceVersion; the server rejects a request with both.
  EXPECT_EQ(list_request(kJobs, {}, {.resource_version = "7", .limit = 500, .continue_token = "ab=="}).target,
            "/apis/oarlock.dev/v1alpha1/trainingjobs?limit=500&continue=ab%3D%3D");
}

TEST(Request, Watch) {
  const http::Request request = watch_request(
      services(), {.namespace_name = "ns", .label_selector = "oarlock.dev/job-name", .field_selector = "a=b"},
      {.resource_version = "41", .timeout = std::chrono::seconds(301)});
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target,
            "/api/v1/namespaces/ns/services?watch=true&labelSelector=oarlock.dev%2Fjob-name&fieldSelector=a%3Db&"
            "allowWatchBookmarks=true&resourceVersion=41&timeoutSeconds=301");
}

TEST(Request, GetAndCreate) {
  EXPECT_EQ(get_request(pods(), {"ns", "a-0-1"}), (http::Request{"GET", "/api/v1/namespaces/ns/pods/a-0-1", "", ""}));
  EXPECT_EQ(create_request(events(), "ns", "{}"),
            (http::Request{"POST", "/apis/events.k8s.io/v1/namespaces/ns/events", "{}", "application/json"}));
}

TEST(Request, DeleteSendsPreconditions) {
  const http::Request request = delete_request(pods(), {"ns", "p"}, {.uid = "u-1", .resource_version = "17"});
  EXPECT_EQ(request.method, "DELETE");
  EXPECT_EQ(request.target, "/api/v1/namespaces/ns/pods/p");
  EXPECT_EQ(json::parse(request.body), json::parse(R"({"apiVersion": "v1", "kind": "DeleteOptions",
    "propagationPolicy": "Background", "preconditions": {"uid": "u-1", "resourceVersion": "17"}})"));
  EXPECT_EQ(
      json::parse(delete_request(pods(), {"ns", "p"}, {.uid = "u-1", .resource_version = ""}).body)["preconditions"],
      json::parse(R"({"uid": "u-1"})"));
  EXPECT_FALSE(json::parse(delete_request(pods(), {"ns", "p"}, {}).body).contains("preconditions"));
}

TEST(Request, StatusPatch) {
  EXPECT_EQ(status_patch_request(kJobs, {"ns", "j"}, "{}"),
            (http::Request{"PATCH", "/apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs/j/status", "{}",
                           "application/merge-patch+json"}));
}

TEST(ResourceVersion, ComparesNumbersOfAnyLength) {
  EXPECT_EQ(compare_resource_versions("5", "5"), 0);
  EXPECT_EQ(compare_resource_versions("005", "5"), 0);
  EXPECT_LT(compare_resource_versions("9", "10"), 0);
  EXPECT_GT(compare_resource_versions("100000000000000000000000000001", "99999999999999999999999999999"), 0);
  EXPECT_LT(compare_resource_versions("0", "1"), 0);
  EXPECT_LT(compare_resource_versions("", "0"), 0);
  EXPECT_LT(compare_resource_versions("abc", "1"), 0);
  EXPECT_EQ(compare_resource_versions("", "abc"), 0);
}

}  // namespace
}  // namespace oarlock::kube

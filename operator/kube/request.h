// The requests that the operator makes, as values. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/kube/object_key.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;

  std::string to_string() const { return group.empty() ? plural : plural + "." + group; }
  bool operator==(const Resource&) const = default;
};

inline Resource pods() { return {"", "v1", "pods"}; }
inline Resource services() { return {"", "v1", "services"}; }
inline Resource network_policies() { return {"networking.k8s.io", "v1", "networkpolicies"}; }
inline Resource events() { return {"events.k8s.io", "v1", "events"}; }

// What of a resource is asked for. An empty namespace means all of them.
struct Selection {
  std::string name_space;
  std::string label_selector;
  std::string field_selector;
};

struct ListOptions {
  // "0": whatever the server has in its cache. "": the newest. Else: at least as new as this.
  std::string resource_version;
  int limit = 0;               // items in a page; 0: all
  std::string continue_token;  // of the page before
};
Request list_request(const Resource& resource, const Selection& selection, const ListOptions& options);

struct WatchOptions {
  std::string resource_version;
  std::chrono::seconds timeout{300};  // the server ends the watch then
  // Begin with everything there is, at least as new as resource_version, and a bookmark at its end (KEP-3157).
  bool send_initial_events = false;
};
// With bookmarks.
Request watch_request(const Resource& resource, const Selection& selection, const WatchOptions& options);

Request get_request(const Resource& resource, const ObjectKey& key);
Request replace_request(const Resource& resource, const ObjectKey& key, std::string body);
Request patch_request(const Resource& resource, const ObjectKey& key, std::string body);  // JSON merge patch
Request create_request(const Resource& resource, const std::string& name_space, std::string body);

struct Preconditions {
  std::string uid;               // empty: none
  std::string resource_version;  // empty: none
};
// Background propagation. A precondition that does not hold is answered with 409.
Request delete_request(const Resource& resource, const ObjectKey& key, const Preconditions& preconditions);

// JSON merge patch (RFC 7386) of the object's status. The body carries metadata.resourceVersion as its precondition.
Request status_patch_request(const Resource& resource, const ObjectKey& key, std::string body);

// Of one path segment or query value: RFC 3986, all but unreserved characters.
std::string percent_encode(std::string_view text);

// Resource versions of one resource compare as decimal numbers of any length (KEP-5504). Negative, 0 or positive.
// What is not a number counts as older than any.
int compare_resource_versions(std::string_view a, std::string_view b);

}  // namespace oarlock::kube

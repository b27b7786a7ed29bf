// Names of resources and objects, and requests to the Kubernetes API as values. All functions are pure.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "http/client/transport.h"

namespace oarlock::kube {

// Namespace and name of an object.
struct ObjectKey {
  std::string namespace_name;  // empty for cluster-scoped objects
  std::string name;

  std::string to_string() const { return namespace_name.empty() ? name : namespace_name + "/" + name; }
  auto operator<=>(const ObjectKey&) const = default;
};

inline size_t hash_key(std::string_view namespace_name, std::string_view name) {
  const size_t first = std::hash<std::string_view>()(namespace_name);
  return first ^ (std::hash<std::string_view>()(name) + 0x9e3779b97f4a7c15u + (first << 6) + (first >> 2));
}

// Group, version and plural name of a resource.
struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;

  std::string to_string() const { return group.empty() ? plural : plural + "." + group; }
  bool operator==(const Resource&) const = default;
};

inline Resource pods() { return {"", "v1", "pods"}; }
inline Resource nodes() { return {"", "v1", "nodes"}; }
inline Resource services() { return {"", "v1", "services"}; }
inline Resource persistent_volume_claims() { return {"", "v1", "persistentvolumeclaims"}; }
inline Resource network_policies() { return {"networking.k8s.io", "v1", "networkpolicies"}; }
inline Resource events() { return {"events.k8s.io", "v1", "events"}; }

// Selects objects of a resource. An empty namespace selects all namespaces.
struct Selection {
  std::string namespace_name;
  std::string label_selector;
  std::string field_selector;
};

struct ListOptions {
  // "0": any state that the server has in its cache. "": the most recent state. Otherwise: a state that is at least as
  // recent as this resource version.
  std::string resource_version;
  int limit = 0;               // items per page; 0: unlimited
  std::string continue_token;  // of the previous page
};
http::Request list_request(const Resource& resource, const Selection& selection, const ListOptions& options);

struct WatchOptions {
  std::string resource_version;
  std::chrono::seconds timeout{300};  // after which the server ends the watch
  // Requests the initial state, at least as recent as resource_version, followed by a bookmark (KEP-3157, WatchList).
  bool send_initial_events = false;
};
// Always requests bookmarks.
http::Request watch_request(const Resource& resource, const Selection& selection, const WatchOptions& options);

http::Request get_request(const Resource& resource, const ObjectKey& key);
http::Request replace_request(const Resource& resource, const ObjectKey& key, std::string body);
// JSON merge patch (RFC 7386).
http::Request patch_request(const Resource& resource, const ObjectKey& key, std::string body);

// Treatment of fields that the API server does not know or that occur twice: kDefault drops them with a warning,
// kStrict rejects the object with status 400. API servers before 1.25 ignore kStrict.
enum class FieldValidation { kDefault, kStrict };

struct CreateOptions {
  FieldValidation validation = FieldValidation::kDefault;
  bool dry_run = false;  // the server checks the object, and stores nothing
};
http::Request create_request(const Resource& resource, const std::string& namespace_name, std::string body,
                             const CreateOptions& options = {});

struct Preconditions {
  std::string uid;               // empty: none
  std::string resource_version;  // empty: none
};
// Background propagation. If a precondition does not hold, the server responds with 409.
http::Request delete_request(const Resource& resource, const ObjectKey& key, const Preconditions& preconditions);

// JSON merge patch of the status subresource. A metadata.resourceVersion in the body is a precondition.
http::Request status_patch_request(const Resource& resource, const ObjectKey& key, std::string body);

// Compares two resource versions of one resource as decimal numbers of any length (KEP-5504). Returns a negative
// number, 0 or a positive number. A text that is not a number is older than every number.
int compare_resource_versions(std::string_view a, std::string_view b);

}  // namespace oarlock::kube

template <>
struct std::hash<oarlock::kube::ObjectKey> {
  size_t operator()(const oarlock::kube::ObjectKey& key) const noexcept {
    return oarlock::kube::hash_key(key.namespace_name, key.name);
  }
};

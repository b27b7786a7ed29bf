#include "kube/client/request.h"

#include <nlohmann/json.hpp>

#include "http/client/address.h"

namespace oarlock::kube {
namespace {

std::string collection_path(const Resource& resource, const std::string& namespace_name) {
  const std::string root =
      resource.group.empty() ? "/api/" + resource.version : "/apis/" + resource.group + "/" + resource.version;
  if (namespace_name.empty()) return root + "/" + resource.plural;
  return root + "/namespaces/" + http::percent_encode(namespace_name) + "/" + resource.plural;
}

std::string object_path(const Resource& resource, const ObjectKey& key) {
  return collection_path(resource, key.namespace_name) + "/" + http::percent_encode(key.name);
}

class Query {
 public:
  void add(std::string_view name, std::string_view value) {
    text_ += text_.empty() ? '?' : '&';
    text_ += name;
    text_ += '=';
    text_ += http::percent_encode(value);
  }
  void add_unless_empty(std::string_view name, std::string_view value) {
    if (!value.empty()) add(name, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_selection(Query& query, const Selection& selection) {
  query.add_unless_empty("labelSelector", selection.label_selector);
  query.add_unless_empty("fieldSelector", selection.field_selector);
}

// Sets `digits` to the number without leading zeros. Returns false if the text is not a number.
bool digits_of(std::string_view text, std::string_view& digits) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const size_t first = text.find_first_not_of('0');
  digits = first == std::string_view::npos ? std::string_view() : text.substr(first);
  return true;
}

}  // namespace

http::Request list_request(const Resource& resource, const Selection& selection, const ListOptions& options) {
  Query query;
  add_selection(query, selection);
  if (options.continue_token.empty()) query.add_unless_empty("resourceVersion", options.resource_version);
  if (options.limit > 0) query.add("limit", std::to_string(options.limit));
  query.add_unless_empty("continue", options.continue_token);
  return {.method = "GET",
          .target = collection_path(resource, selection.namespace_name) + query.text(),
          .body = "",
          .content_type = ""};
}

http::Request watch_request(const Resource& resource, const Selection& selection, const WatchOptions& options) {
  Query query;
  query.add("watch", "true");
  add_selection(query, selection);
  query.add("allowWatchBookmarks", "true");
  if (options.send_initial_events) {
    query.add("sendInitialEvents", "true");
    query.add("resourceVersionMatch", "NotOlderThan");
  }
  query.add_unless_empty("resourceVersion", options.resource_version);
  query.add("timeoutSeconds", std::to_string(options.timeout.count()));
  return {.method = "GET",
          .target = collection_path(resource, selection.namespace_name) + query.text(),
          .body = "",
          .content_type = ""};
}

http::Request get_request(const Resource& resource, const ObjectKey& key) {
  return {.method = "GET", .target = object_path(resource, key), .body = "", .content_type = ""};
}

http::Request replace_request(const Resource& resource, const ObjectKey& key, std::string body) {
  return {.method = "PUT",
          .target = object_path(resource, key),
          .body = std::move(body),
          .content_type = "application/json"};
}

http::Request patch_request(const Resource& resource, const ObjectKey& key, std::string body) {
  return {.method = "PATCH",
          .target = object_path(resource, key),
          .body = std::move(body),
          .content_type = "application/merge-patch+json"};
}

http::Request create_request(const Resource& resource, const std::string& namespace_name, std::string body,
                             const CreateOptions& options) {
  Query query;
  if (options.dry_run) query.add("dryRun", "All");
  if (options.validation == FieldValidation::kStrict) query.add("fieldValidation", "Strict");
  return {.method = "POST",
          .target = collection_path(resource, namespace_name) + query.text(),
          .body = std::move(body),
          .content_type = "application/json"};
}

http::Request delete_request(const Resource& resource, const ObjectKey& key, const Preconditions& preconditions) {
  nlohmann::json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  if (!preconditions.uid.empty()) body["preconditions"]["uid"] = preconditions.uid;
  if (!preconditions.resource_version.empty())
    body["preconditions"]["resourceVersion"] = preconditions.resource_version;
  return {.method = "DELETE",
          .target = object_path(resource, key),
          .body = body.dump(),
          .content_type = "application/json"};
}

http::Request status_patch_request(const Resource& resource, const ObjectKey& key, std::string body) {
  return {.method = "PATCH",
          .target = object_path(resource, key) + "/status",
          .body = std::move(body),
          .content_type = "application/merge-patch+json"};
}

int compare_resource_versions(std::string_view a, std::string_view b) {
  std::string_view x;
  std::string_view y;
  const bool x_valid = digits_of(a, x);
  const bool y_valid = digits_of(b, y);
  if (!x_valid || !y_valid) return static_cast<int>(x_valid) - static_cast<int>(y_valid);
  if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
  return x.compare(y);
}

}  // namespace oarlock::kube

// Client for the Kubernetes API: one call per verb, and classified errors.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "http/client/transport.h"
#include "kube/client/request.h"

namespace oarlock::kube {

enum class ApiErrorKind {
  kTransport,        // no complete response; ApiError::transport shows whether the server may have acted
  kNotFound,         // 404: the object does not exist, or the resource is not served
  kAlreadyExists,    // 409 on create
  kConflict,         // 409: a precondition does not hold
  kExpired,          // 410, or a resource version that the server no longer has or does not have yet
  kUnauthorized,     // 401
  kForbidden,        // 403
  kInvalid,          // 400, 422: the object does not pass validation
  kTooManyRequests,  // 429
  kServer,           // 5xx
  kOther,
};

struct ApiError {
  ApiErrorKind kind = ApiErrorKind::kOther;
  int status = 0;       // HTTP status; 0 without a response
  std::string reason;   // metav1.Status.reason: "AlreadyExists", "Invalid" ...
  std::string message;  // one line for users
  std::optional<std::chrono::seconds> retry_after;
  std::optional<http::TransportErrorKind> transport;  // set if kind is kTransport
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// Detects a list that does not end. A server may return fewer objects than a page can have, even none, but it must make
// progress: after kSparePages, a page has at least a tenth of the requested objects on average.
class ListProgress {
 public:
  static constexpr size_t kSparePages = 10;
  static constexpr size_t kMaxObjects = 250'000;  // Kubernetes is designed for 150,000 pods in a cluster

  explicit ListProgress(size_t max_objects = kMaxObjects) : max_objects_(max_objects) {}

  // Counts a page that is not the last one, and the objects that it has and could have. Returns the problem of the
  // list; empty if it may continue.
  std::string add_page(size_t objects, size_t page_size);

 private:
  const size_t max_objects_;
  size_t pages_ = 0;
  size_t objects_ = 0;
  size_t requested_ = 0;
};

// Converts a response whose status is not 2xx.
ApiError to_api_error(const http::Response& response);
ApiError to_api_error(const http::TransportError& error);
// Converts the fields of the metav1.Status object in an ERROR event of a watch.
ApiError to_api_error(int code, const std::string& reason, const std::string& message);

// Content of the objects that a Client returns. Metadata is sufficient to determine the result of a write, and costs
// the server and the client less than the whole object.
enum class ResponseContent { kObject, kMetadata };

// Thread-safe. Each call blocks for at most the client's deadline and is never retried: after an error, the caller
// observes the state again and makes a new decision.
class Client {
 public:
  Client(std::shared_ptr<http::Transport> transport, http::Milliseconds deadline,
         ResponseContent content = ResponseContent::kObject)
      : transport_(std::move(transport)), deadline_(deadline), content_(content) {}

  // Returns a client of the same server whose responses are whole objects.
  Client of_objects() const { return {transport_, deadline_, ResponseContent::kObject}; }

  // Each verb returns the JSON text of the server's response: the list, or the object after the call.
  ApiResult<std::string> list(const Resource& resource, const Selection& selection, const ListOptions& options,
                              const std::stop_token& cancel) const;
  ApiResult<std::string> get(const Resource& resource, const ObjectKey& key, const std::stop_token& cancel) const;
  ApiResult<std::string> create(const Resource& resource, const std::string& namespace_name, std::string body,
                                const std::stop_token& cancel, const CreateOptions& options = {}) const;
  ApiResult<std::string> remove(const Resource& resource, const ObjectKey& key, const Preconditions& preconditions,
                                const std::stop_token& cancel) const;
  // Replaces the object (PUT). A metadata.resourceVersion in the body is a precondition.
  ApiResult<std::string> replace(const Resource& resource, const ObjectKey& key, std::string body,
                                 const std::stop_token& cancel) const;
  // Applies a JSON merge patch (RFC 7386) to the object, or to its status subresource.
  ApiResult<std::string> patch(const Resource& resource, const ObjectKey& key, std::string body,
                               const std::stop_token& cancel) const;
  ApiResult<std::string> patch_status(const Resource& resource, const ObjectKey& key, std::string body,
                                      const std::stop_token& cancel) const;
  // Returns the body of GET /version, which checks that the API server responds.
  ApiResult<std::string> version(const std::stop_token& cancel) const;

 private:
  ApiResult<std::string> call(http::Request request, const std::stop_token& cancel) const;

  const std::shared_ptr<http::Transport> transport_;
  const http::Milliseconds deadline_;
  const ResponseContent content_;
};

}  // namespace oarlock::kube

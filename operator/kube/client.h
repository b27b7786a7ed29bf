// Verbs on objects, with errors that say what the API server meant.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tl/expected.hpp>

#include "operator/kube/request.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

struct ApiError {
  enum class Kind {
    kTransport,        // no answer; `transport` says what the server may have done
    kNotFound,         // 404: no such object, or the resource is not served
    kAlreadyExists,    // 409 on create
    kConflict,         // 409: a precondition did not hold
    kExpired,          // 410, or a resourceVersion that the server does not have any more (or yet)
    kUnauthorized,     // 401
    kForbidden,        // 403
    kInvalid,          // 400, 422: the object breaks a rule
    kTooManyRequests,  // 429
    kServer,           // 5xx
    kOther,
  };
  Kind kind = Kind::kOther;
  int status = 0;       // HTTP; 0 without an answer
  std::string reason;   // metav1.Status.reason: "AlreadyExists", "Invalid" ...
  std::string message;  // one line for a person
  std::optional<std::chrono::seconds> retry_after;
  std::optional<TransportError::Kind> transport;
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// Of a response that is not 2xx.
ApiError api_error(const Response& response);
ApiError api_error(const TransportError& error);
// Of the Status object in an ERROR event of a watch.
ApiError api_error(int code, const std::string& reason, const std::string& message);

// What the answers are to hold of an object. To read what became of a write its metadata is enough, and the server and
// the reader are spared the rest.
enum class Answers { kObjects, kMetadata };

// Thread-safe; calls block for at most `deadline`. It repeats nothing: the caller looks again and decides anew.
class Client {
 public:
  Client(std::shared_ptr<Transport> transport, Milliseconds deadline, Answers answers = Answers::kObjects)
      : transport_(std::move(transport)), deadline_(deadline), answers_(answers) {}

  // Each returns the object's (or the list's) JSON text as the server answered it.
  ApiResult<std::string> list(const Resource& resource, const Selection& selection, const ListOptions& options,
                              const std::stop_token& cancel) const;
  ApiResult<std::string> get(const Resource& resource, const ObjectKey& key, const std::stop_token& cancel) const;
  ApiResult<std::string> create(const Resource& resource, const std::string& name_space, std::string body,
                                const std::stop_token& cancel) const;
  ApiResult<std::string> remove(const Resource& resource, const ObjectKey& key, const Preconditions& preconditions,
                                const std::stop_token& cancel) const;
  // PUT: the body's metadata.resourceVersion, where it has one, is the precondition.
  ApiResult<std::string> replace(const Resource& resource, const ObjectKey& key, std::string body,
                                 const std::stop_token& cancel) const;
  // JSON merge patch (RFC 7386).
  ApiResult<std::string> patch(const Resource& resource, const ObjectKey& key, std::string body,
                               const std::stop_token& cancel) const;
  ApiResult<std::string> patch_status(const Resource& resource, const ObjectKey& key, std::string body,
                                      const std::stop_token& cancel) const;
  // GET /version: does anybody answer?
  ApiResult<std::string> version(const std::stop_token& cancel) const;

 private:
  ApiResult<std::string> call(Request request, const std::stop_token& cancel) const;

  const std::shared_ptr<Transport> transport_;
  const Milliseconds deadline_;
  const Answers answers_;
};

}  // namespace oarlock::kube

#include "kube/client/client.h"

#include <fmt/format.h>

#include "common/json_access.h"

namespace oarlock::kube {
namespace {

ApiErrorKind classify(int code, const std::string& reason, const std::string& message) {
  // The resource version is newer than the server's state: the store was restored from a backup, or another server
  // responds at this address.
  if (message.find("Too large resource version") != std::string::npos) return ApiErrorKind::kExpired;
  switch (code) {
    case 401:
      return ApiErrorKind::kUnauthorized;
    case 403:
      return ApiErrorKind::kForbidden;
    case 404:
      return ApiErrorKind::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? ApiErrorKind::kAlreadyExists : ApiErrorKind::kConflict;
    case 410:
      return ApiErrorKind::kExpired;
    case 400:
    case 422:
      return ApiErrorKind::kInvalid;
    case 429:
      return ApiErrorKind::kTooManyRequests;
    default:
      break;
  }
  if (reason == "Expired" || reason == "Gone") return ApiErrorKind::kExpired;
  return code >= 500 ? ApiErrorKind::kServer : ApiErrorKind::kOther;
}

std::string first_line(const std::string& text) { return text.substr(0, std::min<size_t>(text.find('\n'), 300)); }

}  // namespace

std::string ListProgress::add_page(size_t objects, size_t page_size) {
  ++pages_;
  objects_ += objects;
  requested_ += page_size;
  if (objects_ > max_objects_) return fmt::format("the server sent more than {} objects", max_objects_);
  if (pages_ > kSparePages && objects_ < (requested_ - kSparePages * page_size) / 10)
    return fmt::format("the list does not end: the server sent {} pages with {} objects", pages_, objects_);
  return "";
}

ApiError to_api_error(int code, const std::string& reason, const std::string& message) {
  ApiError error;
  error.kind = classify(code, reason, message);
  error.status = code;
  error.reason = reason;
  error.message = message.empty() ? fmt::format("the API server returned status {}", code) : message;
  return error;
}

ApiError to_api_error(const http::Response& response) {
  constexpr size_t kMaxStatusBytes = 64 << 10;
  const nlohmann::json body = parse_untrusted_json(response.body, kMaxStatusBytes);
  ApiError error = to_api_error(response.status, oarlock::text_at(body, "reason"), oarlock::text_at(body, "message"));
  if (!body.is_object())
    error.message = fmt::format("the server returned status {}: {}", response.status, first_line(response.body));
  error.retry_after = response.retry_after;
  return error;
}

ApiError to_api_error(const http::TransportError& error) {
  ApiError out;
  out.kind = ApiErrorKind::kTransport;
  out.message = error.message;
  out.transport = error.kind;
  return out;
}

ApiResult<std::string> Client::call(http::Request request, const std::stop_token& cancel) const {
  request.metadata_only = content_ == ResponseContent::kMetadata;
  http::TransportResult<http::Response> response = transport_->send(request, deadline_, cancel);
  if (!response) return tl::make_unexpected(to_api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(to_api_error(*response));
  return std::move(response->body);
}

ApiResult<std::string> Client::list(const Resource& resource, const Selection& selection, const ListOptions& options,
                                    const std::stop_token& cancel) const {
  return call(list_request(resource, selection, options), cancel);
}

ApiResult<std::string> Client::get(const Resource& resource, const ObjectKey& key,
                                   const std::stop_token& cancel) const {
  return call(get_request(resource, key), cancel);
}

ApiResult<std::string> Client::create(const Resource& resource, const std::string& namespace_name, std::string body,
                                      const std::stop_token& cancel, const CreateOptions& options) const {
  return call(create_request(resource, namespace_name, std::move(body), options), cancel);
}

ApiResult<std::string> Client::remove(const Resource& resource, const ObjectKey& key,
                                      const Preconditions& preconditions, const std::stop_token& cancel) const {
  return call(delete_request(resource, key, preconditions), cancel);
}

ApiResult<std::string> Client::replace(const Resource& resource, const ObjectKey& key, std::string body,
                                       const std::stop_token& cancel) const {
  return call(replace_request(resource, key, std::move(body)), cancel);
}

ApiResult<std::string> Client::patch(const Resource& resource, const ObjectKey& key, std::string body,
                                     const std::stop_token& cancel) const {
  return call(patch_request(resource, key, std::move(body)), cancel);
}

ApiResult<std::string> Client::patch_status(const Resource& resource, const ObjectKey& key, std::string body,
                                            const std::stop_token& cancel) const {
  return call(status_patch_request(resource, key, std::move(body)), cancel);
}

ApiResult<std::string> Client::version(const std::stop_token& cancel) const {
  return call({.method = "GET", .target = "/version", .body = "", .content_type = ""}, cancel);
}

}  // namespace oarlock::kube

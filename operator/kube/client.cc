#include "operator/kube/client.h"

#include <fmt/format.h>

#include "operator/kube/json_access.h"

namespace oarlock::kube {
namespace {

using Kind = ApiError::Kind;

Kind kind_of(int code, const std::string& reason, const std::string& message) {
  // Asking for a resourceVersion of the future: the store was restored, or the server behind the address has changed.
  if (message.find("Too large resource version") != std::string::npos) return Kind::kExpired;
  switch (code) {
    case 401:
      return Kind::kUnauthorized;
    case 403:
      return Kind::kForbidden;
    case 404:
      return Kind::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? Kind::kAlreadyExists : Kind::kConflict;
    case 410:
      return Kind::kExpired;
    case 400:
    case 422:
      return Kind::kInvalid;
    case 429:
      return Kind::kTooManyRequests;
    default:
      break;
  }
  if (reason == "Expired" || reason == "Gone") return Kind::kExpired;
  return code >= 500 ? Kind::kServer : Kind::kOther;
}

std::string first_line(const std::string& text) { return text.substr(0, std::min<size_t>(text.find('\n'), 300)); }

}  // namespace

ApiError api_error(int code, const std::string& reason, const std::string& message) {
  ApiError error;
  error.kind = kind_of(code, reason, message);
  error.status = code;
  error.reason = reason;
  error.message = message.empty() ? fmt::format("the API server answered {}", code) : message;
  return error;
}

ApiError api_error(const Response& response) {
  const nlohmann::json body = nlohmann::json::parse(response.body, nullptr, false);
  ApiError error = api_error(response.status, text_at(body, "reason"), text_at(body, "message"));
  if (!body.is_object())
    error.message = fmt::format("the server answered {}: {}", response.status, first_line(response.body));
  error.retry_after = response.retry_after;
  return error;
}

ApiError api_error(const TransportError& error) {
  ApiError out;
  out.kind = Kind::kTransport;
  out.message = error.message;
  out.transport = error.kind;
  return out;
}

ApiResult<std::string> Client::call(Request request, const std::stop_token& cancel) const {
  request.metadata_only = answers_ == Answers::kMetadata;
  TransportResult<Response> response = transport_->send(request, deadline_, cancel);
  if (!response) return tl::make_unexpected(api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(api_error(*response));
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

ApiResult<std::string> Client::create(const Resource& resource, const std::string& name_space, std::string body,
                                      const std::stop_token& cancel) const {
  return call(create_request(resource, name_space, std::move(body)), cancel);
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

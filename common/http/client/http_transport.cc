#include "common/http/client/http_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/http/client/tls_context.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::kube {
namespace {

constexpr char kJson[] = "application/json";
// A server that cannot reduce the object to its metadata sends the whole object.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr std::chrono::seconds kMaxRetryAfter{60};

bool is_field_text(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

bool is_field_name(std::string_view name) {
  constexpr std::string_view kPunctuation = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPunctuation.find(c) != std::string_view::npos;
  });
}

}  // namespace

Result<TransportTarget> check_options(TransportOptions options) {
  TransportTarget target;
  ASSIGN_OR_RETURN(target.server, parse_server_address(options.server));
  if (!options.proxy.empty()) {
    ASSIGN_OR_RETURN(target.proxy, parse_proxy_url(options.proxy));
  }
  RETURN_IF_ERROR(check_tls_material(options));
  for (const auto& [name, value] : options.headers) {
    if (!is_field_name(name) || !is_field_text(value))
      return fail(ExitCode::kConfig,
                  fmt::format("the header field '{}: {}' is not valid", printable(name), printable(value)));
  }
  target.options = std::move(options);
  return target;
}

TransportResult<void> check_request(const Request& request, const std::string& token) {
  const std::string& target = request.target;
  if (!target.starts_with('/') || target.find(' ') != std::string::npos || !is_field_text(target))
    return failed(TransportErrorKind::kRefused, fmt::format("the request target '{}' is not valid", target));
  if (!is_field_text(token))
    return failed(TransportErrorKind::kRefused, "the token contains a line break or control character");
  return {};
}

const char* accept_header(const Request& request) { return request.metadata_only ? kMetadataOnly : kJson; }

std::string content_type_header(const Request& request) {
  return request.content_type.empty() ? kJson : request.content_type;
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view value) {
  long seconds = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(seconds), kMaxRetryAfter);
}

TransportResult<Response> HttpTransport::send(const Request& request, Milliseconds deadline, std::stop_token cancel) {
  return call_and_report(request, nullptr, {.idle = deadline, .total = deadline}, cancel);
}

TransportResult<Response> HttpTransport::stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                                std::stop_token cancel) {
  return call_and_report(request, &sink, limits, cancel);
}

TransportResult<Response> HttpTransport::call_and_report(const Request& request, ByteSink* sink, StreamLimits limits,
                                                         const std::stop_token& cancel) {
  TransportResult<Response> response = call(request, sink, limits, cancel);
  if (!response) {
    const std::string proxy = target_.proxy ? fmt::format(" through the proxy {}", target_.proxy->url) : "";
    return failed(response.error().kind,
                  fmt::format("{}{}: {}", target_.options.server, proxy, response.error().message));
  }
  if (response->status == 401 && target_.options.token != nullptr) target_.options.token->invalidate();
  return response;
}

TransportResult<HttpTransport::Credentials> HttpTransport::obtain_credentials(
    std::chrono::steady_clock::time_point deadline, const std::stop_token& cancel) const {
  const TransportOptions& options = target_.options;
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
  const auto obtain = [&]() -> Result<Credentials> {
    if (options.token != nullptr) {
      RETURN_IF_ERROR(options.token->prepare(left, cancel));
    } else if (options.certificate != nullptr) {
      RETURN_IF_ERROR(options.certificate->prepare(left, cancel));
    }
    Credentials credentials;
    if (options.token != nullptr) {
      ASSIGN_OR_RETURN(credentials.token, options.token->token());
    }
    if (options.certificate != nullptr) {
      ASSIGN_OR_RETURN(credentials.certificate, options.certificate->certificate());
    }
    return credentials;
  };
  return obtain().map_error([&](const Error& error) {
    if (cancel.stop_requested()) return TransportError{TransportErrorKind::kCancelled, "cancelled"};
    return TransportError{TransportErrorKind::kRefused, error.message};
  });
}

}  // namespace oarlock::kube

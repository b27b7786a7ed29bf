#include "http/client/http_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/tls_context.h"

namespace oarlock::http {
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

// Tokens that calls in progress may use while new ones are obtained.
constexpr size_t kRememberedTokens = 4;
// Shorter credentials are replaced only after their scheme: they would be found in other words.
constexpr size_t kMinSecretBytes = 4;

std::string replace_all(const std::string& text, const std::string& from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = 0; (at = text.find(from, begin)) != std::string::npos; begin = at + from.size())
    out.append(text, begin, at - begin).append(to);
  return begin == 0 ? text : out.append(text, begin);
}

}  // namespace

HttpTransport::HttpTransport(TransportTarget target)
    : target_(std::move(target)), proxy_secret_([this] {
        const std::string value = target_.proxy ? target_.proxy->authorization() : "";
        const size_t space = value.find(' ');
        return space == std::string::npos ? Secret() : secret_of(value.substr(0, space), value.substr(space + 1));
      }()) {}

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
  const std::optional<int64_t> seconds = parse_integer<int64_t>(value);
  if (!seconds || *seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(*seconds), kMaxRetryAfter);
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
  if (!response->ok()) response->body = mask_credentials(std::move(response->body));
  return response;
}

HttpTransport::Secret HttpTransport::secret_of(const std::string& scheme, const std::string& token) {
  Secret out{.token = token, .texts = {scheme + " " + token}};
  const auto add = [&](const std::string& text) {
    if (text.size() < kMinSecretBytes) return;
    out.texts.push_back(text);
    // Some servers escape the slash in JSON.
    if (text.find('/') != std::string::npos) out.texts.push_back(replace_all(text, "/", "\\/"));
  };
  add(token);
  if (const auto plain = base64_decode(token); scheme == "Basic" && plain) {
    add(*plain);
    add(plain->substr(std::min(plain->find(':'), plain->size() - 1) + 1));  // the password
  }
  return out;
}

void HttpTransport::remember(const std::string& token) {
  if (token.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const Secret& known : secrets_) {
    if (known.token == token) return;
  }
  secrets_.push_back(secret_of(target_.options.token_scheme, token));
  if (secrets_.size() > kRememberedTokens) secrets_.pop_front();
}

std::string HttpTransport::mask_credentials(std::string text) const {
  if (text.empty()) return text;
  std::vector<Secret> secrets{proxy_secret_};
  {
    const std::lock_guard lock(mutex_);
    secrets.insert(secrets.end(), secrets_.begin(), secrets_.end());
  }
  for (const Secret& secret : secrets) {
    for (size_t i = 0; i < secret.texts.size(); ++i) {
      const std::string& found = secret.texts[i];
      // The first is the header's value: the scheme stays.
      const std::string kept = i == 0 ? found.substr(0, found.size() - secret.token.size()) : "";
      text = replace_all(text, found, kept + "***");
    }
  }
  return text;
}

TransportResult<HttpTransport::Credentials> HttpTransport::obtain_credentials(
    std::chrono::steady_clock::time_point deadline, const std::stop_token& cancel) {
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
      remember(credentials.token);
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

}  // namespace oarlock::http

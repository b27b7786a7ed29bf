// Common base of the implementations of Transport.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/client/address.h"
#include "http/client/transport.h"

namespace oarlock::http {

// The options and addresses of a transport after validation.
struct TransportTarget {
  TransportOptions options;
  ServerAddress server;
  std::optional<ProxyAddress> proxy;

  // The name that the server's certificate must have.
  const std::string& certificate_name() const {
    return options.tls_server_name.empty() ? server.host : options.tls_server_name;
  }
};

// Checks the server's address, the proxy and the PEM material. Fails with kConfig or kNoInput.
Result<TransportTarget> check_options(TransportOptions options);

// Parts of HTTP messages that do not depend on the HTTP library.

// Fails with kRefused if the request's target or the token contains a character that would end a line of the head.
TransportResult<void> check_request(const Request& request, const std::string& token);
// Value of the Accept header.
const char* accept_header(const Request& request);
// Value of the Content-Type header of a request that is not a GET.
std::string content_type_header(const Request& request);
// Parses the value of a Retry-After header. Times above one minute are reduced to one minute. Returns nullopt if the
// value is not a number of seconds.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value);

// Limit of the body of a streamed response whose status is not 2xx.
inline constexpr size_t kMaxErrorBodyBytes = 1u << 20;

// Implements the parts that do not depend on the HTTP library: send() and stream() are one call with an optional sink,
// errors name the server and the proxy, a token that the server rejects is invalidated, credentials are obtained within
// the deadline of the call, and those that a server repeats in an error are masked.
class HttpTransport : public Transport {
 public:
  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) final;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) final;
  std::string mask_credentials(std::string text) const final;

 protected:
  struct Credentials {
    std::string token;              // empty: none
    ClientCertificate certificate;  // of TransportOptions::certificate; empty: none
  };

  explicit HttpTransport(TransportTarget target);

  // Performs one call. The body of a 2xx response is written to `sink` unless that is null.
  virtual TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                         const std::stop_token& cancel) = 0;

  // Waits for the credentials until `deadline`, and stores the token for mask_credentials(). Fails with kCancelled
  // or kRefused.
  TransportResult<Credentials> obtain_credentials(std::chrono::steady_clock::time_point deadline,
                                                  const std::stop_token& cancel);

  const TransportTarget target_;

 private:
  TransportResult<Response> call_and_report(const Request& request, ByteSink* sink, StreamLimits limits,
                                            const std::stop_token& cancel);
  void remember(const std::string& token);

  // A token and the texts that reveal it, longest first.
  struct Secret {
    std::string token;
    std::vector<std::string> texts;
  };
  static Secret secret_of(const std::string& scheme, const std::string& token);

  const Secret proxy_secret_;
  mutable std::mutex mutex_;
  std::deque<Secret> secrets_;  // of the latest tokens; guarded by mutex_
};

}  // namespace oarlock::http

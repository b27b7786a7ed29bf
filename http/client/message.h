// HTTP/1.1 on a channel: requests, responses, and the tunnel through a proxy.
#pragma once

#include <string>

#include "http/client/channel.h"
#include "http/client/transport.h"

namespace oarlock::http {

// Parts of a request's head that are the same for many requests.
struct RequestFields {
  // Precedes every target: the path prefix of the server; with a proxy and an http server, the server's URL before it.
  std::string target_prefix;
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
  std::string token_scheme = "Bearer";
  std::string proxy_authorization;  // empty: none
  std::string further;              // complete header lines, each with its CRLF
};

// Returns the bytes of a request. Fails with kRefused if the target or the token could end a line of the head.
TransportResult<std::string> format_request(const Request& request, const RequestFields& fields);

struct ReceivedResponse {
  Response response;
  bool is_reusable = false;  // the connection may be used for another request
};

struct ReadError {
  TransportError error;
  bool is_unanswered = false;  // no byte of a response was received
};

// Reads one response, skipping interim (1xx) responses. The body of a 2xx response is written to `sink` unless that is
// null; any other body is returned. Fails with kBroken if the response is invalid or ends early, with kRefused if it is
// larger than allowed or the sink returns false, or with the error of the limits. The sizes of heads, trailers and
// chunk extensions and the number of interim responses are limited.
tl::expected<ReceivedResponse, ReadError> read_response(Channel& channel, ByteSink* sink, CallLimits& limits);

// Converts the error of a read or write: the error of the limits if one has been reached, otherwise kBroken.
TransportError channel_error(const ErrorCode& error, const CallLimits& limits);

struct TunnelRequest {
  std::string server;  // "host:port"
  std::string user_agent;
  std::string proxy_authorization;  // empty: none
};

// Sends a CONNECT request to a proxy and reads its response; afterwards, the channel leads to the server. Fails with
// kConnect if the proxy rejects the request or sends no valid response, or with the error of the limits.
TransportResult<void> open_tunnel(Channel& channel, const TunnelRequest& request, const CallLimits& limits);

}  // namespace oarlock::http

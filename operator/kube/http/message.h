// HTTP/1.1 on a channel: the text of a request, the response to it, and the tunnel through a proxy.
#pragma once

#include <string>

#include "operator/kube/http/call_limits.h"
#include "operator/kube/http/channel.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

// What a request needs besides its own target and body.
struct RequestFields {
  std::string
      target_prefix;  // of every target: the path prefix of the server, after the server's URL if a proxy needs it
  std::string host;
  std::string user_agent;
  std::string token;                // empty: none
  std::string proxy_authorization;  // empty: none
};

// kRefused if the target or a field contains a character that would end the line.
TransportResult<std::string> request_text(const Request& request, const RequestFields& fields);

struct ReceivedResponse {
  Response response;
  bool is_reusable = false;  // the connection may be used for another request
};

struct ReadError {
  TransportError error;
  bool is_unanswered = false;  // not one byte of a response was received
};

// Skips interim (1xx) responses. The body of a 2xx response goes to the sink if there is one; any other body is
// returned. kBroken if the response is not valid HTTP or ends early, kRefused if it is larger than allowed or the sink
// returns false, or the error of the limits. Heads, trailers, chunk extensions and the number of interim responses are
// limited.
tl::expected<ReceivedResponse, ReadError> read_response(Channel& channel, ByteSink* sink, CallLimits& limits);

// The error of a write to or read from a channel: that of the limits if one has been reached, otherwise kBroken.
TransportError channel_error(const ErrorCode& error, const CallLimits& limits);

struct TunnelRequest {
  std::string server;  // "host:port"
  std::string user_agent;
  std::string proxy_authorization;  // empty: none
};

// CONNECT: afterwards, the channel's bytes are those of the server. kConnect if the proxy refuses, or as
// read_response().
TransportResult<void> open_tunnel(Channel& channel, const TunnelRequest& request, const CallLimits& limits);

}  // namespace oarlock::kube

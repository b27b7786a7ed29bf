// HTTP/1.1 on a connection: a request as text, and the reading of its answer.
#pragma once

#include <string>

#include "operator/kube/connection.h"
#include "operator/kube/transport.h"
#include "operator/kube/waiter.h"

namespace oarlock::kube {

// The header fields that are the same for all requests of a transport but for the token.
struct RequestFields {
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
};

// kRefused where the target or a field holds what would end a line.
TransportResult<std::string> request_text(const Request& request, const std::string& prefix,
                                          const RequestFields& fields);

struct Answer {
  Response response;
  bool keep = false;  // the connection is good for another request
};

// The body of a 2xx answer goes to the sink, where there is one; any other is returned. kBroken where the answer is no
// HTTP or ends early, kRefused where it is too long or the sink wants no more, or the waiter's errors.
TransportResult<Answer> read_answer(Connection& connection, ByteSink* sink, Waiter& waiter);

}  // namespace oarlock::kube

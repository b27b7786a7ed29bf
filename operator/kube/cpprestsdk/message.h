// Requests and response heads in cpprestsdk's types.
#pragma once

#include <cpprest/http_msg.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "operator/kube/cpprestsdk/exchange.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

struct InvalidResponse final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RequestHeaders {
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
};

// Fails with kRefused if the target or the token could end a line of the head.
TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange);

// Throws InvalidResponse if the length of the body is ambiguous: the library then chooses one.
ResponseHead head_of(const web::http::http_response& response);

}  // namespace oarlock::kube

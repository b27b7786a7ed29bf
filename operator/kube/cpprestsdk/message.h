// Requests and response heads in cpprestsdk's types.
#pragma once

#include <cpprest/http_msg.h>

#include <memory>
#include <string>

#include "operator/kube/cpprestsdk/exchange.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

struct RequestHeaders {
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
};

// Fails with kRefused if the target or the token could end a line of the head.
TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange);

ResponseHead head_of(const web::http::http_response& response);

}  // namespace oarlock::kube

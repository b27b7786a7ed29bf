// Conversion between Oarlock's and cpprestsdk's requests, response heads and errors.
#pragma once

#include <cpprest/http_msg.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "operator/kube/cpprestsdk/exchange.h"
#include "operator/kube/http/transport.h"

namespace oarlock::kube {

struct RequestHeaders {
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
};

// Fails with kRefused if the target or the token could end a line of the head.
TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange);

struct InvalidResponse final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws InvalidResponse if the length of the body is ambiguous, in which case the library would choose one.
ResponseHead parse_head(const web::http::http_response& response);

// Thrown by check_connection(), into cpprestsdk, before the library sends a request on a pooled connection that is no
// longer usable. The server has not seen the request.
struct StaleConnection final : std::runtime_error {
  StaleConnection() : std::runtime_error("the pooled connection is closed or holds unexpected data") {}
};

// Throws StaleConnection if the server has closed the connection or has sent data that belongs to no response. `handle`
// is the argument of cpprestsdk's native handle callback: a tcp::socket, or a TLS stream over one. A socket that is not
// open yet passes.
void check_connection(void* handle, bool is_tls);

bool is_stale(const std::exception_ptr& error);

// Converts an exception that cpprestsdk delivers. The text of the library's exception is the only indication of the
// phase in which a call failed.
TransportError to_transport_error(const std::exception_ptr& error, bool has_proxy);

}  // namespace oarlock::kube

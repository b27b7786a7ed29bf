// What the exceptions that cpprestsdk delivers mean as errors of Transport.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "operator/kube/transport.h"

namespace oarlock::kube {

// Thrown into cpprestsdk before it sends a request on a pooled connection that cannot be used again. The server has not
// seen the request.
struct StaleConnection final : std::runtime_error {
  StaleConnection() : std::runtime_error("the pooled connection is closed or holds unexpected data") {}
};

bool is_stale(const std::exception_ptr& error);

// The phase is known only by the text of the library's exception. `proxy`: URL without credentials; empty: none.
TransportError classify_failure(const std::exception_ptr& error, const std::string& proxy);

// Throws StaleConnection if the server has closed the connection or sent data that no request has asked for.
// `handle` is what cpprestsdk passes to its native handle callback: a tcp::socket, or a TLS stream over one. A socket
// that is not open yet passes.
void check_connection(void* handle, bool is_tls);

}  // namespace oarlock::kube

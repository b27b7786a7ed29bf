// Inspects the first bytes of a TLS connection, so that a server needs a TLS session, which takes about 100 KiB, only
// for clients that have sent a ClientHello of a usual size.
#pragma once

#include <cstddef>
#include <string_view>

namespace oarlock {

enum class ClientHelloState { kIncomplete, kComplete, kInvalid };

// Returns the state of the ClientHello at the beginning of `bytes`, all bytes that the peer has sent so far (RFC 8446,
// 4 and 5.1; it may be split into several records). It is invalid if it is another message, another protocol, or if its
// records exceed `limit` bytes.
ClientHelloState inspect_client_hello(std::string_view bytes, size_t limit);

}  // namespace oarlock

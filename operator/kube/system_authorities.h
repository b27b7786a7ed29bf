// cpprestsdk loads the system's authorities for every connection, before it asks whom to trust. With a cluster's own
// authority they would be thrown away again: 140 certificates, 30 ms of processor time and 0.3 MiB of heap each time.
#pragma once

#include <openssl/ssl.h>

namespace oarlock::kube {

// Trusts them, too. Call it where they are wanted: SSL_CTX_set_default_verify_paths, which does this in OpenSSL, does
// nothing in a program with this file in it (see the .cc).
bool trust_system_authorities(SSL_CTX* context);

}  // namespace oarlock::kube

// OpenSSL's way to a socket.
#pragma once

#include <openssl/bio.h>

namespace oarlock::kube {

// As BIO_new_socket with BIO_NOCLOSE, but writing to a connection that the other side has closed is an error (EPIPE)
// and no signal, whatever the program does with SIGPIPE.
BIO* new_socket_bio(int fd);

}  // namespace oarlock::kube

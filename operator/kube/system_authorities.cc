#include "operator/kube/system_authorities.h"

#include <openssl/x509.h>

namespace oarlock::kube {

bool trust_system_authorities(SSL_CTX* context) {
  return X509_STORE_set_default_paths(SSL_CTX_get_cert_store(context)) == 1;
}

}  // namespace oarlock::kube

// Stands before libssl's for every library of the process: cpprestsdk calls it before its own callback, and has no
// switch for it. SSL_CERT_FILE=/dev/null would do the same, but exec plugins inherit it.
extern "C" __attribute__((visibility("default"))) int SSL_CTX_set_default_verify_paths(SSL_CTX*) { return 1; }

#include "common/http/tls_certificate.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

namespace oarlock {
namespace {

std::shared_ptr<SSL_CTX> read_context(const std::string& file) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A connection serves one request, and clients rarely return: neither renegotiation nor resumption is needed.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  const bool is_usable = SSL_CTX_use_certificate_chain_file(context.get(), file.c_str()) == 1 &&
                         SSL_CTX_use_PrivateKey_file(context.get(), file.c_str(), SSL_FILETYPE_PEM) == 1 &&
                         SSL_CTX_check_private_key(context.get()) == 1;
  ERR_clear_error();
  return is_usable ? context : nullptr;
}

}  // namespace

TlsCertificate::Version TlsCertificate::version() const {
  struct stat info{};
  if (::stat(file_.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, info.st_size, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

std::shared_ptr<SSL_CTX> TlsCertificate::context() {
  if (const Version present = version(); present != read_version_) {
    read_version_ = present;
    if (auto context = read_context(file_)) context_ = std::move(context);
  }
  return context_;
}

}  // namespace oarlock

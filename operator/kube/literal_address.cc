#include "operator/kube/literal_address.h"

#include <dlfcn.h>
#include <netdb.h>

namespace oarlock::kube {

std::string ipv6_literal(const std::string& host) {
  if (host.size() < 4 || host.front() != '[' || host.back() != ']') return "";
  return host.substr(1, host.size() - 2);
}

void accept_bracketed_addresses() {}

}  // namespace oarlock::kube

// Stands before libc's for every library of the process. cpprestsdk offers no other place: its client resolves
// web::uri::host(), which keeps the brackets, and a uri without them does not parse.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto libc_getaddrinfo = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (libc_getaddrinfo == nullptr) return EAI_FAIL;
  const std::string literal = node == nullptr ? "" : oarlock::kube::ipv6_literal(node);
  return libc_getaddrinfo(literal.empty() ? node : literal.c_str(), service, hints, result);
}

// IPv6 literals as hosts, which cpprestsdk gives to the resolver with their brackets.
#pragma once

#include <string>

namespace oarlock::kube {

// "::1" of "[::1]"; empty: not an IPv6 literal in brackets.
std::string ipv6_literal(const std::string& host);

// From here on getaddrinfo() of this program takes "[::1]" for "::1", which cannot be a host name. Call it once before
// the first connection: it does nothing but make the linker keep that function.
void accept_bracketed_addresses();

}  // namespace oarlock::kube

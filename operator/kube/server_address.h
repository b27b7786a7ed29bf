// The address of a server, taken apart: "https://[fd00::1]:6443/prefix".
#pragma once

#include <string>

#include "common/error.h"

namespace oarlock::kube {

struct ServerAddress {
  bool tls = true;
  std::string host;    // without brackets
  std::string port;    // digits; 443 or 80 where the address has none
  std::string prefix;  // of every path: "/k8s/clusters/c1", or empty
  std::string header;  // of the Host field: as written, with brackets and with a port that was given

  bool operator==(const ServerAddress&) const = default;
};

// kConfig with the address in it where it cannot work.
Result<ServerAddress> parse_server_address(const std::string& url);

// An IPv4 or IPv6 address, not a name?
bool is_ip_address(const std::string& host);

}  // namespace oarlock::kube

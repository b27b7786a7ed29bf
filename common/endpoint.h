// An address and a port as people and URLs write them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace oarlock {

// "10.0.0.1:9400", "host:9400", "[fd00::1]:9400".
inline std::string endpoint(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

}  // namespace oarlock

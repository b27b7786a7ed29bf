#include "operator/kube/server_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <string_view>

namespace oarlock::kube {
namespace {

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const int port = std::stoi(std::string(text));
  return port > 0 && port < 65536;
}

// Printable and without spaces: it becomes part of a request's head.
bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c >= '\x7f') return false;
  }
  return true;
}

}  // namespace

bool is_ip_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

Result<ServerAddress> parse_server_address(const std::string& url) {
  const auto refuse = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("the server address '{}' {}", url, why));
  };
  std::string_view rest = url;
  ServerAddress out;
  out.tls = rest.starts_with("https://");
  if (!out.tls && !rest.starts_with("http://")) return refuse("must begin with https:// or http://");
  rest.remove_prefix(out.tls ? 8 : 7);
  if (!is_plain(rest) || rest.find_first_of("?#@") != std::string_view::npos)
    return refuse("is not a server's URL: it should look like https://host:6443");

  const std::string_view authority = rest.substr(0, rest.find('/'));
  out.prefix = rest.substr(authority.size());
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  out.header = authority;

  const bool in_brackets = authority.starts_with('[');
  const size_t host_end = in_brackets ? authority.find(']') : authority.find(':');
  out.host = authority.substr(in_brackets ? 1 : 0, in_brackets ? host_end - 1 : host_end);
  if (in_brackets && (host_end == std::string_view::npos || !is_ip_address(out.host)))
    return refuse("has no IPv6 address in its brackets");
  if (out.host.empty()) return refuse("names no host");

  const size_t port_at = in_brackets ? host_end + 1 : host_end;
  const std::string_view port = port_at < authority.size() ? authority.substr(port_at) : std::string_view();
  if (!port.empty() && (port.front() != ':' || !is_port(port.substr(1)))) return refuse("has no port from 1 to 65535");
  out.port = port.empty() ? (out.tls ? "443" : "80") : port.substr(1);
  return out;
}

}  // namespace oarlock::kube

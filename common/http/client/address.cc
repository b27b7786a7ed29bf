#include "common/http/client/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "common/http/client/credentials.h"
#include "common/text.h"

namespace oarlock::kube {
namespace {

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const int port = std::stoi(std::string(text));
  return port > 0 && port < 65536;
}

// Whether the text is printable ASCII without spaces, so that it can be a part of the head of a request.
bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c >= '\x7f') return false;
  }
  return true;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Invalid sequences are kept unchanged.
std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// An IPv4 address is stored as an IPv4-mapped IPv6 address, so that both spellings compare equal.
struct IpAddress {
  std::array<unsigned char, 16> bytes{};
  bool v4 = false;

  bool operator==(const IpAddress&) const = default;
};

std::optional<IpAddress> parse_ip(const std::string& text) {
  constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  IpAddress out;
  if (::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1) {
    out.v4 = std::equal(kMapped.begin(), kMapped.end(), out.bytes.begin());
    return out;
  }
  if (::inet_pton(AF_INET, text.c_str(), out.bytes.data() + kMapped.size()) != 1) return std::nullopt;
  std::copy(kMapped.begin(), kMapped.end(), out.bytes.begin());
  out.v4 = true;
  return out;
}

bool is_loopback(const IpAddress& address) {
  return address.v4 ? address.bytes[12] == 127 : address == parse_ip("::1");
}

bool share_prefix(const IpAddress& a, const IpAddress& b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin())) return false;
  const int rest = bits % 8;
  return rest == 0 || (a.bytes[whole] ^ b.bytes[whole]) >> (8 - rest) == 0;
}

// Whether a text is a CIDR block ("10.0.0.0/8"), and whether the block contains an address.
struct BlockMatch {
  bool is_block = false;
  bool contains = false;
};
BlockMatch match_block(std::string_view text, const std::optional<IpAddress>& address) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  const auto network = parse_ip(std::string(text.substr(0, slash)));
  int bits = -1;
  const std::string_view length = text.substr(slash + 1);
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bits);
  const bool is_number = error == std::errc() && end == length.data() + length.size();
  if (!network || !is_number || bits < 0 || bits > (network->v4 ? 32 : 128)) return {};
  if (!address || address->v4 != network->v4) return {.is_block = true};
  return {.is_block = true, .contains = share_prefix(*address, *network, network->v4 ? bits + 96 : bits)};
}

struct HostAndPort {
  std::string host;  // without brackets
  std::string port;  // empty: every port
};
HostAndPort split_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  const bool in_brackets = text.starts_with('[');
  const bool is_literal = !in_brackets && std::count(text.begin(), text.end(), ':') > 1;  // an IPv6 address
  HostAndPort out{.host = std::string(text), .port = ""};
  if (colon != std::string_view::npos && !is_literal && (!in_brackets || text[colon - 1] == ']')) {
    out = {.host = std::string(text.substr(0, colon)), .port = std::string(text.substr(colon + 1))};
  }
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

// Whether an entry of NO_PROXY matches the server. `host` is in lower case; `address` is the same as an IP address.
bool matches(std::string_view entry, const std::string& host, const std::string& port,
             const std::optional<IpAddress>& address) {
  if (entry == "*") return true;
  if (const BlockMatch block = match_block(entry, address); block.is_block) return block.contains;
  auto [name, wanted_port] = split_port(entry);
  if (name.empty() || (!wanted_port.empty() && wanted_port != port)) return false;
  if (const auto ip = parse_ip(name)) return ip == address;
  if (name.starts_with("*.")) name.erase(0, 1);
  if (name.starts_with('.')) return host.ends_with(name);
  return host == name || host.ends_with("." + name);
}

bool is_direct(const ServerAddress& server, const std::string& no_proxy) {
  const std::string host = lower_case(server.host);
  const auto address = parse_ip(host);
  if (host == "localhost" || (address && is_loopback(*address))) return true;
  const std::string list = lower_case(no_proxy);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (matches(trim(std::string_view(list).substr(begin, end - begin), " \t"), host, server.port, address))
      return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string percent_encode(std::string_view text, std::string_view also_plain) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '.' || c == '_' || c == '~' || also_plain.find(c) != std::string_view::npos;
    if (is_plain) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool is_ip_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_verifiable_host_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('\0') == std::string::npos;
}

Result<ServerAddress> parse_server_address(const std::string& url) {
  const auto invalid = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("the server address '{}' {}", url, why));
  };
  std::string_view rest = url;
  ServerAddress out;
  out.tls = rest.starts_with("https://");
  if (!out.tls && !rest.starts_with("http://")) return invalid("must begin with https:// or http://");
  rest.remove_prefix(out.tls ? 8 : 7);
  if (!is_plain(rest) || rest.find_first_of("?#@") != std::string_view::npos)
    return invalid("is not a server URL: it should look like https://host:6443");

  const std::string_view authority = rest.substr(0, rest.find('/'));
  out.prefix = rest.substr(authority.size());
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  out.header = authority;

  const bool in_brackets = authority.starts_with('[');
  const size_t host_end = in_brackets ? authority.find(']') : authority.find(':');
  out.host = authority.substr(in_brackets ? 1 : 0, in_brackets ? host_end - 1 : host_end);
  if (in_brackets && (host_end == std::string_view::npos || !is_ip_address(out.host)))
    return invalid("has no IPv6 address in its brackets");
  if (out.host.empty()) return invalid("has no host");

  const size_t port_at = in_brackets ? host_end + 1 : host_end;
  const std::string_view port = port_at < authority.size() ? authority.substr(port_at) : std::string_view();
  if (!port.empty() && (port.front() != ':' || !is_port(port.substr(1)))) return invalid("has no port from 1 to 65535");
  out.port = port.empty() ? (out.tls ? "443" : "80") : port.substr(1);
  return out;
}

std::string ProxyAddress::authorization() const {
  return has_credentials ? "Basic " + base64_encode(user_name + ":" + password) : "";
}

Result<ProxyAddress> parse_proxy_url(const std::string& url) {
  const size_t scheme_end = url.find("://");
  const std::string scheme = scheme_end == std::string::npos ? "http" : lower_case(url.substr(0, scheme_end));
  std::string_view rest = std::string_view(url).substr(scheme_end == std::string::npos ? 0 : scheme_end + 3);
  rest = rest.substr(0, rest.find_first_of("/?#"));
  const size_t at = rest.rfind('@');
  const std::string_view user = at == std::string_view::npos ? std::string_view() : rest.substr(0, at);
  if (at != std::string_view::npos) rest.remove_prefix(at + 1);

  ProxyAddress out;
  out.url = fmt::format("{}://{}", scheme, rest);
  if (scheme.starts_with("socks")) {
    return fail(ExitCode::kConfig,
                fmt::format("the proxy '{}' is a SOCKS proxy, which is not supported: use an HTTP proxy", out.url));
  }
  const Result<ServerAddress> address = parse_server_address(out.url);
  if (!address) {
    return fail(ExitCode::kConfig,
                fmt::format("the proxy address '{}' is not valid: it should look like http://proxy:3128", out.url));
  }
  out.tls = address->tls;
  out.host = address->host;
  out.port = address->port;
  if (at != std::string_view::npos) {
    const size_t colon = user.find(':');
    out.has_credentials = true;
    out.user_name = percent_decode(user.substr(0, colon));
    out.password = colon == std::string_view::npos ? "" : percent_decode(user.substr(colon + 1));
  }
  return out;
}

std::string choose_proxy(const ServerAddress& server, const ProxySettings& settings) {
  const std::string& proxy = server.tls ? settings.https_proxy : settings.http_proxy;
  return proxy.empty() || is_direct(server, settings.no_proxy) ? "" : proxy;
}

}  // namespace oarlock::kube

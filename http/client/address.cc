#include "http/client/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "common/number.h"
#include "common/text.h"
#include "http/client/credentials.h"

namespace oarlock::http {
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

struct SchemeAndRest {
  std::string_view scheme;  // empty: none
  std::string_view rest;
};
SchemeAndRest split_scheme(std::string_view url) {
  const size_t end = url.find("://");
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
  };
  // A password can contain "://", too.
  if (end == std::string_view::npos || !std::all_of(url.begin(), url.begin() + end, is_allowed)) return {"", url};
  return {url.substr(0, end), url.substr(end + 3)};
}

// Returns how many characters of "host:port" are certainly not a password. After the colon, these are the digits of a
// port, because "user:password%40host", whose '@' is encoded by mistake, begins as a host does.
size_t shown_authority_size(std::string_view authority) {
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
  if (authority.starts_with('[') && bracket == std::string_view::npos) return 1;
  const size_t host_end =
      bracket == std::string_view::npos ? std::min(authority.find(':'), authority.size()) : bracket + 1;
  const std::string_view rest = authority.substr(host_end);
  if (rest.empty()) return authority.size();
  if (rest.front() != ':') return host_end;
  const std::string_view port = rest.substr(1);
  const bool is_number = port.size() <= 5 && port.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? authority.size() : host_end + 1;
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

  bool is_v4() const {
    constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
  }
  bool operator==(const IpAddress&) const = default;
};

std::optional<IpAddress> parse_ip(const std::string& text) {
  IpAddress out;
  if (::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1) return out;
  out.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (::inet_pton(AF_INET, text.c_str(), out.bytes.data() + 12) == 1) return out;
  return std::nullopt;
}

bool is_loopback(const IpAddress& address) {
  return address.is_v4() ? address.bytes[12] == 127 : address == parse_ip("::1");
}

// Sets all bits after the first `bits` to zero.
IpAddress masked(IpAddress address, int bits) {
  for (int i = 0; i < 16; ++i) {
    const int kept = std::clamp(bits - 8 * i, 0, 8);
    address.bytes[static_cast<size_t>(i)] &= static_cast<unsigned char>(0xff00 >> kept);
  }
  return address;
}

// Whether a text is a CIDR block ("10.0.0.0/8"), and whether the block contains an address.
struct BlockMatch {
  bool is_block = false;
  bool contains = false;
};
BlockMatch match_block(std::string_view text, const std::optional<IpAddress>& address) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  const std::string network_text(text.substr(0, slash));
  const std::string_view length = text.substr(slash + 1);
  const auto network = parse_ip(network_text);
  int bits = parse_integer<int>(length).value_or(-1);
  const bool is_number = bits >= 0 && length.front() != '-';
  const bool is_dotted = network_text.find(':') == std::string::npos;
  if (!network || !is_number || bits > (is_dotted ? 32 : 128)) return {};
  if (is_dotted) bits += 96;
  const IpAddress first = masked(*network, bits);
  const bool same_family = address && address->is_v4() == first.is_v4();  // an IPv6 block contains no IPv4 address
  return {.is_block = true, .contains = same_family && masked(*address, bits) == first};
}

struct HostAndPort {
  std::string host;  // without brackets if there is a port
  std::string port;  // empty: every port
};
// Splits as Go's net.SplitHostPort does. A text that is not of the form "host:port" or "[host]:port" is a host.
HostAndPort split_port(std::string_view text) {
  const HostAndPort whole{.host = std::string(text), .port = ""};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return whole;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[')) {
    if (host.find(']') != host.size() - 1) return whole;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return whole;
  }
  if (host.find_first_of("[]") != std::string_view::npos || port.find_first_of("[]") != std::string_view::npos)
    return whole;
  return {.host = std::string(host), .port = std::string(port)};
}

// Whether an entry of NO_PROXY matches the server. `host` is in lower case; `address` is the same as an IP address.
bool matches(std::string_view entry, const std::string& host, const std::string& port,
             const std::optional<IpAddress>& address) {
  if (entry == "*") return true;
  if (const BlockMatch block = match_block(entry, address); block.is_block) return block.contains;
  auto [name, wanted_port] = split_port(entry);
  if (name.empty() || (!wanted_port.empty() && wanted_port != port)) return false;
  if (const auto ip = parse_ip(name)) return ip == address;
  if (address) return false;  // a domain contains no address: ".1" does not match 10.0.0.1
  if (name.starts_with("*.")) name.erase(0, 1);
  if (name.starts_with('.')) return host.ends_with(name);
  return host == name || host.ends_with("." + name);
}

bool is_direct(const ServerAddress& server, const std::string& no_proxy) {
  const std::string host = lower_case(server.host);
  const auto address = parse_ip(host);
  if (server.host == "localhost" || (address && is_loopback(*address))) return true;
  const std::string list = lower_case(no_proxy);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (matches(trim(std::string_view(list).substr(begin, end - begin), " \t\n\v\f\r"), host, server.port, address))
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

bool is_ip_address(const std::string& host) { return parse_ip(host).has_value(); }

bool is_verifiable_host_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('\0') == std::string::npos;
}

std::string without_secrets(std::string_view url) {
  const std::string_view scheme = split_scheme(url).scheme;
  const size_t at = url.rfind('@');
  // The authority after the user name and password, which may contain any character if they are not encoded.
  const std::string_view rest = at == std::string_view::npos ? split_scheme(url).rest : url.substr(at + 1);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const std::string_view path = rest.substr(authority.size());
  const size_t shown = shown_authority_size(authority);
  std::string out(scheme);
  if (!scheme.empty()) out += "://";
  if (at != std::string_view::npos) out += "***@";
  out += authority.substr(0, shown);
  if (shown < authority.size()) return out + "***";
  out += path.substr(0, 1);
  return path.size() > 1 ? out + "***" : out;
}

Result<ServerAddress> parse_server_address(const std::string& url) {
  const auto invalid = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("the server address '{}' {}", without_secrets(url), why));
  };
  if (url.find('@') != std::string::npos)
    return invalid("must not contain a user name or password: use a token or a client certificate");
  std::string_view rest = url;
  ServerAddress out;
  out.tls = rest.starts_with("https://");
  if (!out.tls && !rest.starts_with("http://")) return invalid("must begin with https:// or http://");
  rest.remove_prefix(out.tls ? 8 : 7);
  if (!is_plain(rest) || rest.find_first_of("?#") != std::string_view::npos)
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
  const auto [scheme, rest] = split_scheme(url);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const size_t at = authority.rfind('@');
  const std::string_view user = at == std::string_view::npos ? std::string_view() : authority.substr(0, at);

  ProxyAddress out;
  out.url = fmt::format("{}://{}", scheme.empty() ? "http" : lower_case(scheme),
                        at == std::string_view::npos ? authority : authority.substr(at + 1));
  const auto invalid = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("the proxy address '{}' is not valid: {}", without_secrets(url), why));
  };
  // An '@' after the authority means that the password contains one of these characters.
  if (rest.find('@', authority.size()) != std::string_view::npos)
    return invalid("'/', '?' and '#' in user name and password must be encoded as %2F, %3F and %23");
  if (out.url.starts_with("socks")) {
    return fail(ExitCode::kConfig,
                fmt::format("the proxy '{}' is a SOCKS proxy, which is not supported: use an HTTP proxy",
                            without_secrets(out.url)));
  }
  const Result<ServerAddress> address = parse_server_address(out.url);
  if (!address) return invalid("it should look like http://proxy:3128");
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

}  // namespace oarlock::http

// Addresses of an HTTP server and of an HTTP proxy, and the choice of a proxy by the environment variables HTTP_PROXY,
// HTTPS_PROXY and NO_PROXY. The rules are those of Go's golang.org/x/net/http/httpproxy, which kubectl and client-go
// follow. All functions are pure.
#pragma once

#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock::http {

// Parts of a server URL such as "https://[fd00::1]:6443/prefix".
struct ServerAddress {
  bool tls = true;
  std::string host;    // without brackets
  std::string port;    // digits; "443" or "80" if the URL has no port
  std::string prefix;  // of every path: "/k8s/clusters/c1"; may be empty
  std::string header;  // value of the Host header: the authority as written in the URL

  bool operator==(const ServerAddress&) const = default;
};

// Returns the URL for messages, also if it is invalid: "***" replaces what may be a secret, which is a user name and
// password, the path and the query, and a port that is not a number.
std::string without_secrets(std::string_view url);

// Fails with kConfig and a message that contains without_secrets(). A URL with a user name or password is invalid.
Result<ServerAddress> parse_server_address(const std::string& url);

// Whether the text is an IPv4 or IPv6 address, as opposed to a host name.
bool is_ip_address(const std::string& host);

// Whether OpenSSL can compare the host name with a certificate: it accepts any subdomain for a name that begins with a
// dot, and any certificate for an empty name.
bool is_verifiable_host_name(const std::string& name);

// Address of an HTTP proxy. A request for an http server is sent to the proxy with the server's URL as its target
// (absolute form); for an https server, CONNECT opens a tunnel to the server.
struct ProxyAddress {
  bool tls = false;  // whether the connection to the proxy itself uses TLS ("https://proxy:3129")
  std::string host;  // without brackets
  std::string port;
  std::string url;  // for messages: without user name and password
  bool has_credentials = false;
  std::string user_name;
  std::string password;

  // Value of the Proxy-Authorization header ("Basic ..."); empty without credentials.
  std::string authorization() const;
  bool operator==(const ProxyAddress&) const = default;
};

// Encodes a path segment or a query value: all but the unreserved characters of RFC 3986 and those in `also_plain`.
std::string percent_encode(std::string_view text, std::string_view also_plain = "");

// Parses "http://user:password@proxy:3128", "https://proxy" or "proxy:3128" (http). User name and password are
// percent-decoded. Fails with kConfig and a message without credentials. SOCKS proxies are not supported.
Result<ProxyAddress> parse_proxy_url(const std::string& url);

// Values of the environment variables; empty if they are not set.
struct ProxySettings {
  std::string http_proxy;   // HTTP_PROXY: proxy for http servers
  std::string https_proxy;  // HTTPS_PROXY: proxy for https servers
  std::string no_proxy;     // NO_PROXY: servers that are reached without a proxy
};

// Returns the URL of the proxy for a server; empty if the server is reached directly, as localhost and loopback
// addresses always are. no_proxy is a list separated by commas: "example.com" (the domain and its subdomains),
// ".example.com" or "*.example.com" (subdomains only), an IP address, or a CIDR block, each but the block optionally
// with ":port"; "*" matches every server. Entries that cannot be parsed are ignored.
std::string choose_proxy(const ServerAddress& server, const ProxySettings& settings);

}  // namespace oarlock::http

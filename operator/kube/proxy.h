// HTTP proxies: the URL of a proxy, and the choice of a proxy from the environment. The rules are those of Go's
// golang.org/x/net/http/httpproxy, which kubectl and client-go follow.
#pragma once

#include <string>

#include "common/error.h"
#include "operator/kube/server_address.h"

namespace oarlock::kube {

// How a transport reaches the server through a proxy: requests for http servers are sent to the proxy with the server's
// URL as their target (absolute form); for https servers, CONNECT opens a tunnel to the server.
struct ProxyAddress {
  bool tls = false;  // the connection to the proxy itself is TLS ("https://proxy:3129")
  std::string host;  // without brackets
  std::string port;
  std::string url;            // for messages: without user name and password
  std::string authorization;  // value of the Proxy-Authorization header ("Basic ..."); empty: none

  bool operator==(const ProxyAddress&) const = default;
};

// "http://user:password@proxy:3128", "https://proxy", "proxy:3128" (http). User name and password are percent-decoded.
// Fails with kConfig and a message that shows no credentials; socks5 is not supported.
Result<ProxyAddress> parse_proxy_url(const std::string& url);

// Values of the environment variables; empty: not set.
struct ProxySettings {
  std::string http_proxy;   // HTTP_PROXY: proxy for http servers
  std::string https_proxy;  // HTTPS_PROXY: proxy for https servers
  std::string no_proxy;     // NO_PROXY: servers that are reached without a proxy
};

// URL of the proxy for a server; empty: none. A server at localhost or at a loopback address is never reached through a
// proxy. no_proxy is a list separated by commas: "example.com" (the domain and its subdomains), ".example.com" or
// "*.example.com" (subdomains only), an IP address, a CIDR block, each but the block optionally with ":port"; "*"
// matches every server. Entries that cannot be parsed are ignored.
std::string choose_proxy(const ServerAddress& server, const ProxySettings& settings);

}  // namespace oarlock::kube

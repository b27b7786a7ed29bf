// Choice of the proxy as in Go's httpproxy; most rows are from its test.
#include "http/client/address.h"

#include <gmock/gmock.h>

namespace oarlock::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ServerAddress server_at(const std::string& url) { return parse_server_address(url).value(); }

TEST(ProxyUrl, IsParsed) {
  const auto full = parse_proxy_url("http://user:pass%40word%2f@proxy.example:3128");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_FALSE(full->tls);
  EXPECT_EQ(full->host, "proxy.example");
  EXPECT_EQ(full->port, "3128");
  EXPECT_EQ(full->url, "http://proxy.example:3128");
  EXPECT_EQ(full->authorization(), "Basic dXNlcjpwYXNzQHdvcmQv");  // user:pass@word/

  EXPECT_EQ(parse_proxy_url("proxy:3128")->url, "http://proxy:3128");
  EXPECT_EQ(parse_proxy_url("proxy:3128")->authorization(), "");
  EXPECT_EQ(parse_proxy_url("HTTP://proxy/")->port, "80");
  EXPECT_EQ(parse_proxy_url("https://[fd00::1]")->host, "fd00::1");
  EXPECT_EQ(parse_proxy_url("https://proxy")->port, "443");
  EXPECT_TRUE(parse_proxy_url("https://proxy")->tls);
  EXPECT_EQ(parse_proxy_url("http://user@proxy")->authorization(), "Basic dXNlcjo=");  // user:
}

TEST(ProxyUrl, RejectsInvalidUrlsWithoutShowingCredentials) {
  for (const char* url :
       {"http://user:secret@", "http://user:secret@pro xy:80", "http://user:secret@proxy:port",
        "ftp://user:secret@proxy", "http://user:secret@proxy\r\nX: y", "http://user:secret%40proxy:80"}) {
    const auto proxy = parse_proxy_url(url);
    ASSERT_FALSE(proxy) << url;
    EXPECT_EQ(proxy.error().code, ExitCode::kConfig);
    EXPECT_THAT(proxy.error().message, HasSubstr("should look like http://proxy:3128"));
    EXPECT_THAT(proxy.error().message, Not(HasSubstr("secret")));
  }
  for (const char* url : {"http://user:pa/secret@proxy", "http://user:77/secret@proxy:3128", "user:pa#secret@proxy",
                          "http://user:pa?secret@proxy", "user:77://secret@proxy"}) {
    const auto proxy = parse_proxy_url(url);
    ASSERT_FALSE(proxy) << url;
    EXPECT_THAT(proxy.error().message, AllOf(HasSubstr("***@proxy"), HasSubstr("must be encoded as %2F"),
                                             Not(HasSubstr("secret")), Not(HasSubstr("pa/")), Not(HasSubstr("77"))));
  }
  for (const char* url :
       {"socks5://user:secret@proxy:1080", "socks5://user:secret%40proxy:1080", "socks5h://proxy", "SOCKS4://proxy"}) {
    const auto proxy = parse_proxy_url(url);
    ASSERT_FALSE(proxy) << url;
    EXPECT_THAT(proxy.error().message, HasSubstr("SOCKS proxy, which is not supported"));
    EXPECT_THAT(proxy.error().message, Not(HasSubstr("secret")));
  }
}

TEST(ChooseProxy, SelectsTheVariableByScheme) {
  const ProxySettings both{.http_proxy = "http://plain", .https_proxy = "http://tls", .no_proxy = ""};
  EXPECT_EQ(choose_proxy(server_at("http://example.com"), both), "http://plain");
  EXPECT_EQ(choose_proxy(server_at("https://example.com"), both), "http://tls");
  EXPECT_EQ(choose_proxy(server_at("https://example.com"), {.http_proxy = "p", .https_proxy = "", .no_proxy = ""}), "");
}

TEST(ChooseProxy, FollowsNoProxy) {
  struct Row {
    std::string server;
    std::string no_proxy;
    bool is_proxied;
  };
  const std::string list =
      "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, "
      "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
  const Row rows[] = {
      // Never through a proxy.
      {.server = "http://localhost", .no_proxy = "", .is_proxied = false},
      {.server = "http://127.0.0.1", .no_proxy = "", .is_proxied = false},
      {.server = "https://127.1.2.3:6443", .no_proxy = "", .is_proxied = false},
      {.server = "http://[::1]", .no_proxy = "", .is_proxied = false},
      {.server = "http://[::2]", .no_proxy = "", .is_proxied = true},
      {.server = "http://localhost.net", .no_proxy = "", .is_proxied = true},
      {.server = "http://local.localhost", .no_proxy = "", .is_proxied = true},
      // Addresses.
      {.server = "http://192.168.1.1", .no_proxy = list, .is_proxied = false},
      {.server = "http://[::ffff:192.168.1.1]", .no_proxy = list, .is_proxied = false},
      {.server = "http://192.168.1.2", .no_proxy = list, .is_proxied = true},
      {.server = "http://192.168.1.2:81", .no_proxy = list, .is_proxied = false},
      {.server = "http://192.168.1.3", .no_proxy = list, .is_proxied = false},
      {.server = "http://192.168.1.4", .no_proxy = list, .is_proxied = true},
      {.server = "http://10.0.0.2", .no_proxy = list, .is_proxied = false},
      {.server = "http://10.0.0.4", .no_proxy = list, .is_proxied = true},
      {.server = "http://[2001:db8::52:0:1]", .no_proxy = list, .is_proxied = false},
      {.server = "https://[2001:db8::52:0:2]", .no_proxy = list, .is_proxied = false},
      {.server = "http://[2001:db8::52:0:2]", .no_proxy = list, .is_proxied = true},
      {.server = "http://[2001:db8::52:0:3]", .no_proxy = list, .is_proxied = false},
      {.server = "http://[2002:db8:a::123]", .no_proxy = list, .is_proxied = false},
      {.server = "http://[2002:db8:b::123]", .no_proxy = list, .is_proxied = true},
      {.server = "http://10.1.2.3", .no_proxy = "::/0", .is_proxied = true},
      {.server = "http://10.1.2.3", .no_proxy = "0.0.0.0/0", .is_proxied = false},
      {.server = "http://10.1.2.3", .no_proxy = "10.0.0.0/33,10.0.0.0/x,/8", .is_proxied = true},
      // Names.
      {.server = "http://foobar.com", .no_proxy = list, .is_proxied = false},
      {.server = "http://www.foobar.com", .no_proxy = list, .is_proxied = false},
      {.server = "http://FooBar.COM", .no_proxy = list, .is_proxied = false},
      {.server = "http://foofoobar.com", .no_proxy = list, .is_proxied = true},
      {.server = "http://foobar.com.evil", .no_proxy = list, .is_proxied = true},
      {.server = "http://barbaz.net", .no_proxy = list, .is_proxied = true},
      {.server = "http://www.barbaz.net", .no_proxy = list, .is_proxied = false},
      {.server = "http://wildcard.io", .no_proxy = list, .is_proxied = true},
      {.server = "http://nested.wildcard.io", .no_proxy = list, .is_proxied = false},
      {.server = "http://awildcard.io", .no_proxy = list, .is_proxied = true},
      {.server = "https://foobar.com", .no_proxy = "foobar.com:443", .is_proxied = false},
      {.server = "https://foobar.com:6443", .no_proxy = "foobar.com:443", .is_proxied = true},
      {.server = "https://kubernetes.default.svc", .no_proxy = " .SVC ", .is_proxied = false},
      {.server = "https://LOCALHOST", .no_proxy = "", .is_proxied = true},
      {.server = "https://LOCALHOST", .no_proxy = "localhost", .is_proxied = false},
      {.server = "https://10.0.0.1", .no_proxy = ".1, 1, 0.0.1, *.0.1", .is_proxied = true},
      {.server = "https://api.1", .no_proxy = ".1", .is_proxied = false},
      // Brackets belong to an address with a port.
      {.server = "https://10.0.0.1", .no_proxy = "[10.0.0.1]", .is_proxied = true},
      {.server = "https://10.0.0.1", .no_proxy = "[10.0.0.1]:443", .is_proxied = false},
      {.server = "https://[fd00::1]", .no_proxy = "[fd00::1]", .is_proxied = true},
      {.server = "https://example.com", .no_proxy = "[example.com]", .is_proxied = true},
      {.server = "https://example.com", .no_proxy = "[example.com]:443", .is_proxied = false},
      // Blocks of IPv4-mapped addresses.
      {.server = "https://10.1.2.3", .no_proxy = "::ffff:10.0.0.0/104", .is_proxied = false},
      {.server = "https://11.1.2.3", .no_proxy = "::ffff:10.0.0.0/104", .is_proxied = true},
      {.server = "https://10.1.2.3", .no_proxy = "::ffff:10.0.0.0/80", .is_proxied = true},
      {.server = "https://[::ffff:10.1.2.3]", .no_proxy = "10.0.0.0/8", .is_proxied = false},
      {.server = "https://10.1.2.3", .no_proxy = "10.0.0.0/-0", .is_proxied = true},
      // Lists.
      {.server = "http://example.com", .no_proxy = "\v\fexample.com\r\n", .is_proxied = false},
      {.server = "http://example.com", .no_proxy = "*", .is_proxied = false},
      {.server = "http://example.com", .no_proxy = "a, *", .is_proxied = false},
      {.server = "http://example.com", .no_proxy = ", ,:80,", .is_proxied = true},
  };
  for (const Row& row : rows) {
    const ProxySettings settings{.http_proxy = "http://proxy", .https_proxy = "http://proxy", .no_proxy = row.no_proxy};
    EXPECT_EQ(choose_proxy(server_at(row.server), settings), row.is_proxied ? "http://proxy" : "")
        << row.server << " with NO_PROXY=" << row.no_proxy;
  }
}

}  // namespace
}  // namespace oarlock::http

// Parsing of server addresses as in kubeconfigs.
#include "http/client/address.h"

#include <gmock/gmock.h>

namespace oarlock::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServerAddress, IsParsed) {
  struct Row {
    const char* url;
    ServerAddress address;
  };
  const Row rows[] = {
      {.url = "https://10.0.0.1:6443",
       .address = {.tls = true, .host = "10.0.0.1", .port = "6443", .prefix = "", .header = "10.0.0.1:6443"}},
      {.url = "https://kubernetes.default.svc",
       .address = {.tls = true,
                   .host = "kubernetes.default.svc",
                   .port = "443",
                   .prefix = "",
                   .header = "kubernetes.default.svc"}},
      {.url = "http://host", .address = {.tls = false, .host = "host", .port = "80", .prefix = "", .header = "host"}},
      {.url = "https://[fd00::1]:6443/",
       .address = {.tls = true, .host = "fd00::1", .port = "6443", .prefix = "", .header = "[fd00::1]:6443"}},
      {.url = "https://[::1]", .address = {.tls = true, .host = "::1", .port = "443", .prefix = "", .header = "[::1]"}},
      {.url = "https://host:8443/k8s/clusters/c1/",
       .address = {.tls = true, .host = "host", .port = "8443", .prefix = "/k8s/clusters/c1", .header = "host:8443"}},
  };
  for (const Row& row : rows) {
    const auto address = parse_server_address(row.url);
    ASSERT_TRUE(address) << address.error().message;
    EXPECT_EQ(*address, row.address) << row.url;
  }
}

TEST(ServerAddress, RejectsInvalidAddressesWithTheReason) {
  struct Row {
    const char* url;
    const char* reason;
    const char* shown = nullptr;  // in the message; null: the whole URL
  };
  const Row rows[] = {
      {.url = "", .reason = "must begin with https:// or http://"},
      {.url = "10.0.0.1:6443", .reason = "must begin with"},
      {.url = "ftp://host", .reason = "must begin with"},
      {.url = "https://", .reason = "has no host"},
      {.url = "https:///path", .reason = "has no host", .shown = "https:///***"},
      {.url = "https://ho st", .reason = "should look like https://host:6443"},
      {.url = "https://host?x=1", .reason = "should look like", .shown = "https://host?***"},
      {.url = "https://host\r\nX: y", .reason = "should look like", .shown = "https://host\r\nX:***"},
      {.url = "https://host:", .reason = "has no port from 1 to 65535"},
      {.url = "https://host:0", .reason = "has no port"},
      {.url = "https://host:65536", .reason = "has no port"},
      {.url = "https://host:http", .reason = "has no port", .shown = "https://host:***"},
      {.url = "https://fd00::1:6443", .reason = "has no port", .shown = "https://fd00:***"},
      {.url = "https://[fd00::1", .reason = "no IPv6 address in its brackets", .shown = "https://[***"},
      {.url = "https://[host]:443", .reason = "no IPv6 address"},
      {.url = "https://[::1]6443", .reason = "has no port", .shown = "https://[::1]***"},
  };
  for (const auto& [url, reason, shown] : rows) {
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address) << url;
    EXPECT_EQ(address.error().code, ExitCode::kConfig);
    EXPECT_THAT(address.error().message, HasSubstr(reason));
    EXPECT_THAT(address.error().message, HasSubstr(std::string("'") + (shown != nullptr ? shown : url) + "'"));
  }
}

TEST(ServerAddress, RejectsCredentialsWithoutShowingThem) {
  for (const char* url : {"https://user:secret@host:6443", "https://user:sec/secret@host:6443", "https://secret@host",
                          "user:secret@host:6443", "user:x://secret@host", "https://user:secret@secret@host"}) {
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address) << url;
    EXPECT_EQ(address.error().code, ExitCode::kConfig);
    EXPECT_THAT(address.error().message, AllOf(HasSubstr("***@host"), HasSubstr("must not contain a user name"),
                                               Not(HasSubstr("sec")), Not(HasSubstr("user:"))));
  }
}

// Addresses with an '@' that is encoded by mistake, and with a secret in the query or the path.
TEST(ServerAddress, RejectsInvalidAddressesWithoutShowingSecrets) {
  struct Row {
    const char* url;
    const char* shown;
  };
  const Row rows[] = {
      {.url = "http://user:secret%40host", .shown = "'http://user:***'"},
      {.url = "http://user:12345%40host", .shown = "'http://user:***'"},
      {.url = "https://user:secret%40host:443/path", .shown = "'https://user:***'"},
      {.url = "https://host/m?api_key=secret", .shown = "'https://host/***'"},
      {.url = "https://host:99999/secret", .shown = "'https://host:99999/***'"},
      {.url = "ftp://user:secret%40host", .shown = "'ftp://user:***'"},
      {.url = "ftp://host/secret", .shown = "'ftp://host/***'"},
      {.url = "host/m?api_key=secret", .shown = "'host/***'"},
      {.url = "https://[secret", .shown = "'https://[***'"},
      {.url = "https://user:pw@host/m?api_key=secret", .shown = "'https://***@host/***'"},
  };
  for (const auto& [url, shown] : rows) {
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address) << url;
    EXPECT_THAT(address.error().message, AllOf(HasSubstr(shown), Not(HasSubstr("secret")), Not(HasSubstr("12345"))))
        << url;
  }
}

}  // namespace
}  // namespace oarlock::http

// Parsing of server addresses as in kubeconfigs.
#include "common/http/client/address.h"

#include <gmock/gmock.h>

namespace oarlock::kube {
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
  };
  const Row rows[] = {
      {.url = "", .reason = "must begin with https:// or http://"},
      {.url = "10.0.0.1:6443", .reason = "must begin with"},
      {.url = "ftp://host", .reason = "must begin with"},
      {.url = "https://", .reason = "has no host"},
      {.url = "https:///path", .reason = "has no host"},
      {.url = "https://ho st", .reason = "should look like https://host:6443"},
      {.url = "https://host?x=1", .reason = "should look like"},
      {.url = "https://host\r\nX: y", .reason = "should look like"},
      {.url = "https://host:", .reason = "has no port from 1 to 65535"},
      {.url = "https://host:0", .reason = "has no port"},
      {.url = "https://host:65536", .reason = "has no port"},
      {.url = "https://host:http", .reason = "has no port"},
      {.url = "https://fd00::1:6443", .reason = "has no port"},
      {.url = "https://[fd00::1", .reason = "no IPv6 address in its brackets"},
      {.url = "https://[host]:443", .reason = "no IPv6 address"},
      {.url = "https://[::1]6443", .reason = "has no port"},
  };
  for (const auto& [url, reason] : rows) {
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address) << url;
    EXPECT_EQ(address.error().code, ExitCode::kConfig);
    EXPECT_THAT(address.error().message, HasSubstr(reason));
    EXPECT_THAT(address.error().message, HasSubstr(std::string("'") + url + "'"));
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

}  // namespace
}  // namespace oarlock::kube

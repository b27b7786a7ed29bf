// Addresses of servers, as kubeconfigs have them.
#include "operator/kube/server_address.h"

#include <gmock/gmock.h>

namespace oarlock::kube {
namespace {

using ::testing::HasSubstr;

TEST(ServerAddress, IsTakenApart) {
  struct Case {
    const char* url;
    ServerAddress address;
  };
  const Case cases[] = {
      {"https://10.0.0.1:6443", {true, "10.0.0.1", "6443", "", "10.0.0.1:6443"}},
      {"https://kubernetes.default.svc", {true, "kubernetes.default.svc", "443", "", "kubernetes.default.svc"}},
      {"http://host", {false, "host", "80", "", "host"}},
      {"https://[fd00::1]:6443/", {true, "fd00::1", "6443", "", "[fd00::1]:6443"}},
      {"https://[::1]", {true, "::1", "443", "", "[::1]"}},
      {"https://host:8443/k8s/clusters/c1/", {true, "host", "8443", "/k8s/clusters/c1", "host:8443"}},
  };
  for (const Case& one : cases) {
    const auto address = parse_server_address(one.url);
    ASSERT_TRUE(address) << address.error().message;
    EXPECT_EQ(*address, one.address) << one.url;
  }
}

TEST(ServerAddress, WhatCannotWorkIsRefusedWithTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "must begin with https:// or http://"},
      {"10.0.0.1:6443", "must begin with"},
      {"ftp://host", "must begin with"},
      {"https://", "names no host"},
      {"https:///path", "names no host"},
      {"https://ho st", "should look like https://host:6443"},
      {"https://user@host", "should look like"},
      {"https://host?x=1", "should look like"},
      {"https://host\r\nX: y", "should look like"},
      {"https://host:", "has no port from 1 to 65535"},
      {"https://host:0", "has no port"},
      {"https://host:65536", "has no port"},
      {"https://host:http", "has no port"},
      {"https://fd00::1:6443", "has no port"},
      {"https://[fd00::1", "no IPv6 address in its brackets"},
      {"https://[host]:443", "no IPv6 address"},
      {"https://[::1]6443", "has no port"},
  };
  for (const auto& [url, why] : cases) {
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address) << url;
    EXPECT_EQ(address.error().code, ExitCode::kConfig);
    EXPECT_THAT(address.error().message, HasSubstr(why));
    EXPECT_THAT(address.error().message, HasSubstr(std::string("'") + url + "'"));
  }
}

}  // namespace
}  // namespace oarlock::kube

// Credential plugins: real commands that print what plugins print, and what broken ones do.
#include "operator/kube/exec_plugin.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/support/fake_clock.h"
#include "tests/support/temporary_folder.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ExecPluginTest : public ::testing::Test {
 protected:
  // A shell script as the plugin.
  ExecConfig plugin(const std::string& script) {
    const auto path = folder_.path() / ("plugin" + std::to_string(count_++));
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ExecConfig config;
    config.command = path.string();
    config.api_version = "client.authentication.k8s.io/v1";
    return config;
  }
  static std::string credential(const std::string& status) {
    return R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":)" + status + "}'";
  }
  std::string error_of(const ExecConfig& config, std::chrono::milliseconds limit = 20s) {
    const auto result = run_plugin(config, limit);
    EXPECT_FALSE(result);
    return result ? "" : result.error().message;
  }
  int runs() const {
    std::ifstream file(folder_.path() / "runs");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  std::string count_runs() const { return "echo x >> '" + (folder_.path() / "runs").string() + "'\n"; }

  test::TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(ExecPluginTest, TheTokenComesFromTheCommandWithItsArgumentsAndEnvironment) {
  ExecConfig config = plugin(R"(info=$(printf %s "$KUBERNETES_EXEC_INFO" | tr -d '"{}:, ')
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"'"$1-$NAME-$info"'"}}')");
  config.arguments = {"argument"};
  config.environment = {{"NAME", "value"}};
  config.cluster = R"({"server":"https://h"})";
  const auto result = run_plugin(config, 20s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->token, AllOf(HasSubstr("argument-value-"), HasSubstr("kindExecCredential"),
                                   HasSubstr("interactivefalse"), HasSubstr("serverhttps//h")));
  EXPECT_FALSE(result->expires);
}

TEST_F(ExecPluginTest, ATokenIsKeptUntilItExpiresOrIsRefused) {
  const auto clock = std::make_shared<test::FakeClock>();  // begins at 2023-11-14T22:13:20Z
  ExecPlugin token(plugin(count_runs() + credential(R"({"token":"t","expirationTimestamp":"2023-11-14T22:14:20Z"})")),
                   clock);
  EXPECT_EQ(token.token().value_or(""), "t");
  EXPECT_EQ(token.token().value_or(""), "t");
  EXPECT_EQ(runs(), 1);
  clock->advance(61s);
  EXPECT_EQ(token.token().value_or(""), "t");
  EXPECT_EQ(runs(), 2);

  ExecPlugin forever(plugin(count_runs() + credential(R"({"token":"t"})")), clock);
  EXPECT_TRUE(forever.token());
  clock->advance(24h);
  EXPECT_TRUE(forever.token());
  EXPECT_EQ(runs(), 3);
  forever.drop();
  EXPECT_TRUE(forever.token());
  EXPECT_EQ(runs(), 4);
}

TEST_F(ExecPluginTest, WhatGoesWrongNamesTheCommand) {
  ExecConfig missing;
  missing.command = "no-such-plugin-of-oarlock";
  missing.api_version = "client.authentication.k8s.io/v1";
  missing.install_hint = "install it from there";
  EXPECT_THAT(error_of(missing),
              AllOf(HasSubstr("'no-such-plugin-of-oarlock' cannot be started"), HasSubstr("install it from there")));
  EXPECT_THAT(error_of(plugin("exit 3")), HasSubstr("failed with exit code 3"));
  EXPECT_THAT(error_of(plugin("kill -9 $$")), HasSubstr("ended by signal 9"));
  EXPECT_THAT(error_of(plugin("echo hello")), HasSubstr("did not print an ExecCredential"));
  EXPECT_THAT(error_of(plugin(credential("{}"))), HasSubstr("gave neither a token nor a client certificate"));
  EXPECT_THAT(error_of(plugin(credential(R"({"token":"t","clientCertificateData":"x"})"))),
              HasSubstr("must be given together"));
  EXPECT_THAT(error_of(plugin(credential(R"({"clientCertificateData":"x","clientKeyData":"y"})"))),
              HasSubstr("no PEM certificate"));
  EXPECT_THAT(error_of(plugin(credential(R"({"token":"t","expirationTimestamp":"soon"})"))), HasSubstr("'soon'"));
  EXPECT_THAT(error_of(plugin(R"(echo '{"kind":"ExecCredential","apiVersion":"v9","status":{"token":"t"}}')")),
              HasSubstr("apiVersion 'v9'"));
  EXPECT_THAT(error_of(plugin("exec sleep 60"), 200ms), HasSubstr("did not end within"));
}

}  // namespace
}  // namespace oarlock::kube

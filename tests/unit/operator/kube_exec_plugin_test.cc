// Credential plugins: shell scripts that behave like valid and like faulty plugins.
#include "kube/auth/exec_plugin.h"

#include <gmock/gmock.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The token as a transport obtains it; empty on failure.
std::string token_of(ExecPlugin& plugin) {
  return plugin.prepare(60s, {}).and_then([&] { return plugin.token(); }).value_or("");
}

class ExecPluginTest : public ::testing::Test {
 protected:
  // Makes a plugin from a shell script.
  ExecConfig plugin(const std::string& script) {
    const auto path = directory_.path() / ("plugin" + std::to_string(count_++));
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
    std::ifstream file(directory_.path() / "runs");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  std::string count_runs() const { return "echo x >> '" + (directory_.path() / "runs").string() + "'\n"; }

  test::TemporaryDirectory directory_;
  int count_ = 0;
};

TEST_F(ExecPluginTest, PassesArgumentsAndEnvironment) {
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

// A terminal sends Ctrl-C only to its foreground process group, and stops a reader of any other group.
TEST_F(ExecPluginTest, SharesTheProcessGroupOnlyWithATerminal) {
  const std::string script = "read -r pid name state parent group rest < /proc/$$/stat\n";
  ExecConfig config = plugin(script + credential(R"({"token":"'$group'"})"));
  const auto group_of_plugin = [&] { return run_plugin(config, 20s).value_or(ExecCredential{}).token; };
  EXPECT_THAT(group_of_plugin(), AllOf(::testing::Ne(""), ::testing::Ne(std::to_string(::getpgrp()))));
  config.shares_terminal = true;
  EXPECT_EQ(group_of_plugin(), std::to_string(::getpgrp()));
}

TEST_F(ExecPluginTest, FailureKillsAPluginThatSharesTheTerminal) {
  ExecConfig config = plugin("exec sleep 1000");
  config.shares_terminal = true;
  EXPECT_THAT(error_of(config, 100ms), HasSubstr("did not end within"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
}

TEST_F(ExecPluginTest, KeepsATokenUntilItExpiresOrIsRejected) {
  const auto clock = std::make_shared<test::FakeClock>();  // begins at 2023-11-14T22:13:20Z
  ExecPlugin token(plugin(count_runs() + credential(R"({"token":"t","expirationTimestamp":"2023-11-14T22:14:20Z"})")),
                   clock);
  EXPECT_EQ(token_of(token), "t");
  EXPECT_EQ(token_of(token), "t");
  EXPECT_EQ(runs(), 1);
  clock->advance(61s);
  EXPECT_EQ(token_of(token), "t");
  EXPECT_EQ(runs(), 2);

  ExecPlugin forever(plugin(count_runs() + credential(R"({"token":"t"})")), clock);
  EXPECT_EQ(token_of(forever), "t");
  clock->advance(24h);
  EXPECT_EQ(token_of(forever), "t");
  EXPECT_EQ(runs(), 3);
  forever.invalidate();
  EXPECT_EQ(token_of(forever), "t");
  EXPECT_EQ(runs(), 4);
}

// A plugin that blocks, from its `first_slow_run`th run on, until the test writes to the pipe "go".
class SlowPluginTest : public ExecPluginTest {
 protected:
  void SetUp() override { ASSERT_EQ(::mkfifo(go().c_str(), 0600), 0); }
  std::string go() const { return (directory_.path() / "go").string(); }
  void let_go() const { std::ofstream(go()) << "go\n"; }
  ExecConfig slow_plugin(int first_slow_run, const std::string& expires) {
    const std::string runs = (directory_.path() / "runs").string();
    return plugin(count_runs() + "n=$(wc -l < '" + runs + "'); n=$((n))\n[ $n -lt " + std::to_string(first_slow_run) +
                  " ] || read line < '" + go() + "'\n" +
                  R"(echo "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",)" +
                  R"(\"status\":{\"token\":\"t$n\",\"expirationTimestamp\":\")" + expires + R"(\"}}")");
  }
  static bool becomes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // Stops the process while the command runs, and expects that this ends the wait.
  void expect_stopped(ExecPlugin& plugin, std::stop_source& stop) {
    const std::jthread stopper([&] {
      becomes_true([&] { return runs() == 1; });
      stop.request_stop();
    });
    const auto waited = plugin.prepare(1h, {});
    ASSERT_FALSE(waited);
    EXPECT_THAT(waited.error().message, HasSubstr("was killed because this process stops"));
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();  // begins at 2023-11-14T22:13:20Z
};

// A leader that waits for the plugin would lose its lease.
TEST_F(SlowPluginTest, RefreshesBeforeExpiryInTheBackground) {
  ExecPlugin plugin(slow_plugin(2, "2023-11-14T22:15:00Z"), clock_);  // in 100 s
  EXPECT_EQ(token_of(plugin), "t1");
  clock_->advance(74s);
  EXPECT_EQ(token_of(plugin), "t1");
  EXPECT_EQ(runs(), 1);
  clock_->advance(2s);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(plugin.prepare(1h, {}));
    EXPECT_EQ(token_of(plugin), "t1");  // the plugin blocks
  }
  EXPECT_TRUE(becomes_true([&] { return runs() == 2; }));
  let_go();
  EXPECT_TRUE(becomes_true([&] { return token_of(plugin) == "t2"; }));
  EXPECT_EQ(runs(), 2);
}

TEST_F(SlowPluginTest, WaitsForTheFirstCredentialWithinTheLimit) {
  ExecPlugin plugin(slow_plugin(1, "2023-11-14T22:15:00Z"), clock_);
  const auto waited = plugin.prepare(20ms, {});
  ASSERT_FALSE(waited);
  EXPECT_THAT(waited.error().message, HasSubstr("has not ended after 20 ms"));
  let_go();
  EXPECT_TRUE(plugin.prepare(60s, {}));
  EXPECT_EQ(token_of(plugin), "t1");
  EXPECT_EQ(runs(), 1);
}

TEST_F(SlowPluginTest, KeepsARejectedCredentialUntilTheNext) {
  ExecPlugin plugin(slow_plugin(2, "2023-11-14T23:13:20Z"), clock_);
  EXPECT_EQ(token_of(plugin), "t1");
  plugin.invalidate();
  EXPECT_TRUE(plugin.prepare(20ms, {}));
  EXPECT_EQ(token_of(plugin), "t1");
  let_go();
  EXPECT_TRUE(becomes_true([&] { return token_of(plugin) == "t2"; }));
  EXPECT_EQ(runs(), 2);
}

// The plugin blocks forever.
TEST_F(SlowPluginTest, DestructorKillsTheCommand) {
  ExecPlugin plugin(slow_plugin(1, "2023-11-14T22:15:00Z"), clock_);
  EXPECT_FALSE(plugin.prepare(20ms, {}));
}

TEST_F(SlowPluginTest, CancellationEndsOnlyTheWait) {
  ExecPlugin plugin(slow_plugin(1, "2023-11-14T22:15:00Z"), clock_);
  std::stop_source cancel;
  const std::jthread canceller([&] {
    becomes_true([&] { return runs() == 1; });
    cancel.request_stop();
  });
  const auto waited = plugin.prepare(1h, cancel.get_token());
  ASSERT_FALSE(waited);
  EXPECT_THAT(waited.error().message, HasSubstr("before the call was cancelled"));
  let_go();
  EXPECT_EQ(token_of(plugin), "t1");
  EXPECT_EQ(runs(), 1);
}

TEST_F(SlowPluginTest, StopOfTheProcessEndsTheCommand) {
  std::stop_source stop;
  ExecPlugin plugin(slow_plugin(1, "2023-11-14T22:15:00Z"), clock_, stop.get_token());
  ASSERT_NO_FATAL_FAILURE(expect_stopped(plugin, stop));
  EXPECT_FALSE(plugin.prepare(1h, {}));  // starts no other
  EXPECT_FALSE(plugin.token());
  EXPECT_EQ(runs(), 1);
}

TEST_F(SlowPluginTest, StopEndsACommandThatHasClosedItsOutput) {
  std::stop_source stop;
  ExecPlugin plugin(this->plugin("exec 1>&-\n" + count_runs() + "exec sleep 1000"), clock_, stop.get_token());
  ASSERT_NO_FATAL_FAILURE(expect_stopped(plugin, stop));
}

TEST_F(SlowPluginTest, ValidCredentialRemainsUsableAfterAStop) {
  std::stop_source stop;
  ExecPlugin plugin(slow_plugin(2, "2023-11-14T22:15:00Z"), clock_, stop.get_token());
  EXPECT_EQ(token_of(plugin), "t1");
  stop.request_stop();
  clock_->advance(76s);  // time to refresh
  EXPECT_EQ(token_of(plugin), "t1");
  EXPECT_EQ(runs(), 1);
}

// The clocks of the plugin and of this machine may differ.
TEST_F(ExecPluginTest, UsesANewCredentialThatSeemsExpired) {
  ExecPlugin expired(plugin(count_runs() + credential(R"({"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"})")),
                     std::make_shared<test::FakeClock>());
  EXPECT_EQ(token_of(expired), "t");
  EXPECT_EQ(runs(), 1);
}

TEST_F(ExecPluginTest, ErrorsNameTheCommand) {
  ExecConfig missing;
  missing.command = "no-such-plugin-of-oarlock";
  missing.api_version = "client.authentication.k8s.io/v1";
  missing.install_hint = "install it from there";
  EXPECT_THAT(error_of(missing),
              AllOf(HasSubstr("'no-such-plugin-of-oarlock' cannot be started"), HasSubstr("install it from there")));
  EXPECT_THAT(error_of(plugin("exit 3")), HasSubstr("failed with exit code 3"));
  EXPECT_THAT(error_of(plugin("kill -9 $$")), HasSubstr("terminated by signal 9"));
  EXPECT_THAT(error_of(plugin("echo hello")), HasSubstr("did not print an ExecCredential"));
  EXPECT_THAT(error_of(plugin(credential("{}"))), HasSubstr("returned neither a token nor a client certificate"));
  EXPECT_THAT(error_of(plugin(credential(R"({"token":"t","clientCertificateData":"x"})"))),
              HasSubstr("must be given together"));
  EXPECT_THAT(error_of(plugin(credential(R"({"clientCertificateData":"x","clientKeyData":"y"})"))),
              HasSubstr("no PEM certificate"));
  EXPECT_THAT(error_of(plugin(credential(R"({"token":"t","expirationTimestamp":"soon"})"))), HasSubstr("'soon'"));
  EXPECT_THAT(error_of(plugin(R"(echo '{"kind":"ExecCredential","apiVersion":"v9","status":{"token":"t"}}')")),
              HasSubstr("apiVersion 'v9'"));
  const auto unreadable = read_credential(missing, R"({"kind":"ExecCredential","apiVersion":"\u001b[2J"})");
  ASSERT_FALSE(unreadable);
  EXPECT_THAT(unreadable.error().message, HasSubstr(R"(apiVersion '\x1b[2J')"));
  EXPECT_THAT(error_of(plugin("exec sleep 60"), 200ms), HasSubstr("did not end within"));
  EXPECT_THAT(error_of(plugin("exec yes"), 60s), HasSubstr("printed more than 1 MiB: a credential is much shorter"));
}

TEST_F(ExecPluginTest, WaitsForTheEndOfACommandThatClosesItsOutput) {
  const std::string begin = credential(R"({"token":"t"})") + "\nexec 1>&-\n";
  const auto result = run_plugin(plugin(begin + "sleep 0.1"), 60s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->token, "t");
  EXPECT_THAT(error_of(plugin(begin + "sleep 0.1; exit 3"), 60s), HasSubstr("exit code 3"));
  EXPECT_THAT(error_of(plugin(begin + "exec sleep 1000"), 200ms), HasSubstr("did not end within"));
}

// Plugins that leave a child. This process inherits the child, as the init process of a container does.
class ChildOfPluginTest : public ExecPluginTest {
 protected:
  void SetUp() override { ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }
  void TearDown() override { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
  std::string file(const char* name) const { return (directory_.path() / name).string(); }
  std::string start_child() const {
    return "sleep 1000 &\necho $! > '" + file("child") + "'\ntouch '" + file("started") + "'\n";
  }
  pid_t child() const {
    pid_t pid = 0;
    std::ifstream(file("child")) >> pid;
    EXPECT_GT(pid, 0);
    return pid;
  }
  bool has_child() const { return ::kill(child(), 0) == 0; }  // also as a zombie
};

TEST_F(ChildOfPluginTest, FailureKillsTheWholeProcessGroup) {
  EXPECT_THAT(error_of(plugin(start_child() + "yes"), 60s), HasSubstr("printed more than 1 MiB"));
  EXPECT_FALSE(has_child());
  EXPECT_THAT(error_of(plugin(start_child() + "exit 3"), 60s), HasSubstr("exit code 3"));
  EXPECT_FALSE(has_child());
}

TEST_F(ChildOfPluginTest, StopKillsTheWholeProcessGroup) {
  std::stop_source stop;
  const std::jthread stopper([&] {
    while (!std::filesystem::exists(file("started"))) std::this_thread::yield();
    stop.request_stop();
  });
  const auto stopped = run_plugin(plugin(start_child() + "sleep 1000"), 60s, stop.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message, HasSubstr("was killed"));
  EXPECT_FALSE(has_child());
}

TEST_F(ChildOfPluginTest, ChildThatHoldsTheOutputDoesNotDelayACredential) {
  const auto result = run_plugin(plugin(start_child() + credential(R"({"token":"t"})")), 60s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->token, "t");
  ASSERT_TRUE(has_child()) << "a daemon continues";
  ::kill(child(), SIGKILL);
  EXPECT_EQ(::waitpid(child(), nullptr, 0), child());
}

}  // namespace
}  // namespace oarlock::kube

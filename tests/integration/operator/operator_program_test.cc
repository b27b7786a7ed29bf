// The program's interface: flags, messages, exit codes, and its HTTP server. The API server is simulated, because it
// must be absent, empty or faulty here; operator_scenario_test uses a real one.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

#include "common/port_reservation.h"
#include "http/server.h"
#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OperatorProgram : public ::testing::Test {
 protected:
  // Runs it to its end.
  struct End {
    int code;
    std::string out;
    std::string err;
  };
  static End run(std::vector<std::string> arguments, const ProgramOptions& options = {}) {
    std::vector<std::string> argv{test::program_path("oarlock-operator")};
    for (std::string& argument : arguments) argv.push_back(std::move(argument));
    Program program(argv, options);
    const int code = program.wait();
    return {code, program.out(), program.err()};
  }
  std::string kubeconfig_for(const std::string& server) { return write_kubeconfig(directory_.path(), server); }
  static size_t lines_of(const std::string& text) { return lines(text).size(); }

  TemporaryDirectory directory_;
};

TEST_F(OperatorProgram, PrintsHelpAndVersion) {
  const End help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--kubeconfig"), HasSubstr("examples:"), HasSubstr("Exit codes:")));
  const End version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  std::string expected;
  std::getline(std::ifstream(test::source_path("VERSION")) >> std::ws, expected);
  EXPECT_EQ(version.out, expected + "\n");
}

TEST_F(OperatorProgram, WrongFlagsEndWith64) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--prot", "1"},
                                                    {"--port", "99999"},
                                                    {"--workers", "0"},
                                                    {"--log-level", "loud"},
                                                    {"--log-format", "xml"},
                                                    {"extra"}}) {
    const End end = run(arguments);
    EXPECT_EQ(end.code, 64) << arguments[0];
    EXPECT_THAT(end.err, HasSubstr(arguments[0]));
  }
}

TEST_F(OperatorProgram, ReportsInvalidKubeconfigInOneLine) {
  const End missing = run({"--kubeconfig", "/no/such/file", "--port", "0"});
  EXPECT_EQ(missing.code, 66);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/file"));
  EXPECT_EQ(lines_of(missing.err), 1u);

  const End none = run({"--port", "0"}, {.environment = {{"HOME", "/nonexistent"}}, .directory = ""});
  EXPECT_EQ(none.code, 78);
  EXPECT_THAT(none.err, HasSubstr("--kubeconfig"));

  std::ofstream(directory_.path() / "bad") << "current-context: [\n";
  const End bad = run({"--kubeconfig", (directory_.path() / "bad").string(), "--port", "0"});
  EXPECT_EQ(bad.code, 78);
  EXPECT_THAT(bad.err, HasSubstr("bad:1:18: the '[' that begins here has no end; add the closing ']'"));
  EXPECT_EQ(lines_of(bad.err), 1u);
}

TEST_F(OperatorProgram, APortInUseEndsWith69) {
  auto other = HttpServer::start("127.0.0.1", 0, {});
  ASSERT_TRUE(other);
  const std::string port = std::to_string((*other)->port());
  const End end =
      run({"--kubeconfig", kubeconfig_for("http://127.0.0.1:1"), "--listen-address", "127.0.0.1", "--port", port});
  EXPECT_EQ(end.code, 69);
  EXPECT_THAT(end.err, HasSubstr(port));
}

TEST_F(OperatorProgram, AbsentApiServerIsLoggedOnceAndExitsWith69) {
  const auto unused = PortReservation::make(1);
  ASSERT_TRUE(unused) << unused.error().message;
  const std::string server = "http://127.0.0.1:" + std::to_string(unused->first());
  const End end = run({"--kubeconfig", kubeconfig_for(server), "--listen-address", "127.0.0.1", "--port", "0",
                       "--startup-timeout", "6"});
  EXPECT_EQ(end.code, 69);
  EXPECT_THAT(end.err,
              AllOf(HasSubstr(server), HasSubstr("is the API server running"), HasSubstr("--startup-timeout")));
  size_t warnings = 0;
  for (const std::string& line : lines(end.err))
    warnings += line.find("\"level\":\"warn\"") != std::string::npos ? 1 : 0;
  EXPECT_EQ(warnings, 3u) << end.err;  // one for each resource, however often it was tried
}

TEST_F(OperatorProgram, MissingCrdKeepsItNotReadyWithRemedy) {
  std::atomic<bool> has_crd = false;
  HostileServer server(empty_cluster(has_crd));
  OperatorProcess process({"--kubeconfig", kubeconfig_for(server.url()), "--startup-timeout", "1"}, false);
  ASSERT_TRUE(eventually([&] { return process.logged("kubectl apply -f manifests/crd"); })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 503);
  EXPECT_THAT(process.get("/readyz").body.get<std::string>(), HasSubstr("the TrainingJob CRD is not installed"));
  EXPECT_EQ(process.get("/healthz").status, 200);
  EXPECT_EQ(process.get("/nothing").status, 404);
  has_crd = true;
  EXPECT_TRUE(eventually([&] { return process.get("/readyz").status == 200; })) << process.log();
  EXPECT_TRUE(eventually([&] { return process.logged("the cache is up to date again"); })) << process.log();
  EXPECT_GT(process.metric("rest_client_requests_total", {"code=\"404\"", "method=\"GET\""}), 0);
  process.program().signal(SIGTERM);
  EXPECT_EQ(process.program().wait(), 0);
}

TEST_F(OperatorProgram, StopsGracefullyAtAnyTime) {
  std::atomic<bool> has_crd = true;
  HostileServer server(empty_cluster(has_crd));
  HostileServer silent([](HostileServer::Connection& connection, const auto&) {
    connection.wait_for_close();
    return false;
  });
  // Open watches, unanswered lists, and signals at every moment of the start.
  for (int i = 0; i < 30; ++i) {
    const bool is_silent = i % 3 == 2;
    const bool wait = !is_silent && i % 3 == 0;
    OperatorProcess process({"--kubeconfig", kubeconfig_for(is_silent ? silent.url() : server.url())}, wait);
    process.program().signal(i % 2 == 0 ? SIGTERM : SIGINT);
    ASSERT_EQ(process.program().wait(), 0) << process.log();
    EXPECT_TRUE(process.logged("\"msg\":\"stopped\""));
  }
}

TEST_F(OperatorProgram, ResumesWatchesWhenApiServerReturns) {
  std::atomic<bool> has_crd = true;
  std::atomic<bool> refuse = false;
  const HostileServer::Handler usual = empty_cluster(has_crd);
  HostileServer server([&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (!refuse) {
      if (request.target.find("watch=true") == std::string::npos) return usual(connection, request);
      begin_watch(connection, request);
      while (!connection.stopping() && !refuse) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return false;  // in the middle of the stream
    }
    connection.answer(503, "the server is going away");
    return true;
  });
  OperatorProcess process({"--kubeconfig", kubeconfig_for(server.url())});
  refuse = true;
  EXPECT_TRUE(eventually([&] { return process.logged("going away"); })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 200);  // it was ready, and an old cache does not change that
  refuse = false;
  EXPECT_TRUE(eventually([&] { return process.logged("the cache is up to date again"); })) << process.log();
  EXPECT_THAT(process.log(), Not(HasSubstr("\"level\":\"error\"")));
}

TEST_F(OperatorProgram, IsNotReadyWhileListsFail) {
  std::atomic<bool> has_crd = true;
  std::atomic<bool> refuse = false;
  const HostileServer::Handler usual = empty_cluster(has_crd);
  HostileServer server([&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (request.target.find("/pods") == std::string::npos) return usual(connection, request);
    if (refuse) {
      connection.answer(500, R"({"kind":"Status","message":"etcd is away"})");
      return true;
    }
    if (request.target.find("watch=true") == std::string::npos) return usual(connection, request);
    begin_watch(connection, request);
    while (!connection.stopping() && !refuse) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return false;
  });
  OperatorProcess process({"--kubeconfig", kubeconfig_for(server.url())});
  EXPECT_EQ(process.get("/readyz").status, 200);
  EXPECT_EQ(process.metric("oarlock_cache_consecutive_failures"), 0);
  refuse = true;
  ASSERT_TRUE(eventually([&] { return process.get("/readyz").status == 503; })) << process.log();
  EXPECT_THAT(process.get("/readyz").body.get<std::string>(),
              AllOf(HasSubstr("failed to list or watch pods: the API server returned status 500"),
                    HasSubstr("consecutive failures"), Not(HasSubstr("etcd is away"))));
  EXPECT_THAT(process.log(), HasSubstr("etcd is away"));
  EXPECT_GE(process.metric("oarlock_cache_consecutive_failures", {R"(resource="pods")"}), 5);
  EXPECT_EQ(process.metric("oarlock_cache_consecutive_failures", {R"(resource="services")"}), 0);
  EXPECT_EQ(process.get("/healthz").status, 200);  // a restart would not help
  refuse = false;
  EXPECT_TRUE(eventually([&] { return process.get("/readyz").status == 200; })) << process.log();
  EXPECT_EQ(process.metric("oarlock_cache_consecutive_failures"), 0);
}

}  // namespace
}  // namespace oarlock::test

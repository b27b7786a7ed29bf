// The operator ends soon after SIGTERM, and never blocks, while its credentials cannot be obtained: the program with
// credential plugins and files that hang, end never or are no files.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// The calls of a shutdown have deadlines of ten seconds and more, so a shutdown below this limit waited for none. The
// reviews of a scrape have three seconds each; shell_access_guard_test proves that a stop ends them.
constexpr auto kExitLimit = 8s;

class OperatorShutdown : public ::testing::Test {
 protected:
  // `cluster` and `user` are further members, in YAML's flow style.
  std::string kubeconfig(const std::string& cluster, const std::string& user) const {
    const std::string path = file("kubeconfig");
    std::ofstream(path) << "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                        << "clusters: [{name: c, cluster: {server: '" << server_.url() << "'" << cluster << "}}]\n"
                        << "users: [{name: u, user: {" << user << "}}]\n";
    return path;
  }
  // A kubeconfig whose credential plugin is a shell script.
  std::string kubeconfig_with_plugin(const std::string& script) const {
    std::ofstream(file("plugin")) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file("plugin"), std::filesystem::perms::owner_all);
    return kubeconfig("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: '" + file("plugin") +
                              "', interactiveMode: Never}");
  }
  std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string make_fifo() const {
    EXPECT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
    return file("fifo");
  }

  static void expect_prompt_exit(OperatorProcess& process) {
    const auto begun = std::chrono::steady_clock::now();
    process.program().signal(SIGTERM);
    EXPECT_EQ(process.program().wait(), 0) << process.log();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kExitLimit) << process.log();
  }

  TemporaryDirectory directory_;
  std::atomic<bool> has_crd_ = true;
  HostileServer server_{empty_cluster(has_crd_)};
};

TEST_F(OperatorShutdown, EndsAHungPluginAtTheStart) {
  // The second plugin closes its output before.
  for (const std::string& begin : {std::string(), std::string("exec 1>&-\n")}) {
    std::filesystem::remove(file("pid"));
    OperatorProcess process(
        {"--kubeconfig", kubeconfig_with_plugin(begin + "echo $$ > '" + file("pid") + "'\nexec sleep 1000")}, false);
    const int plugin = number_in(file("pid"));
    ASSERT_GT(plugin, 0);
    expect_prompt_exit(process);
    EXPECT_TRUE(eventually([&] { return !alive(plugin); }));
  }
}

// The first credential expires soon, and the second run of the plugin hangs. A review for a scrape then waits for it.
TEST_F(OperatorShutdown, EndsAHungRefresh) {
  const std::string first =
      R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t",)"
      R"("expirationTimestamp":"'$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)'"}}')";
  OperatorProcess process({"--protect-metrics", "--kubeconfig",
                           kubeconfig_with_plugin("if mkdir '" + file("first") + "' 2> /dev/null; then " + first +
                                                  "; else echo $$ > '" + file("pid") + "'; exec sleep 1000; fi")},
                          false);
  int scrapes = 0;
  const auto scrape = [&] {
    process.use_token("scraper-" + std::to_string(++scrapes));  // the result of a review is remembered
    try {
      process.get("/metrics");
    } catch (const std::exception&) {
      // The process has ended, or the review has not.
    }
  };
  EXPECT_TRUE(eventually([&] {
    scrape();
    return std::filesystem::exists(file("pid"));
  }));
  const int plugin = number_in(file("pid"));
  ASSERT_GT(plugin, 0);
  const std::jthread waiting(scrape);
  expect_prompt_exit(process);
  EXPECT_TRUE(eventually([&] { return !alive(plugin); }));
}

TEST_F(OperatorShutdown, RejectsATokenFileThatIsNotRegular) {
  for (const std::string& path : {make_fifo(), std::string("/dev/zero"), directory_.path().string()}) {
    OperatorProcess process({"--kubeconfig", kubeconfig("", "tokenFile: '" + path + "'")}, false);
    EXPECT_TRUE(eventually([&] { return process.logged(path + ": not a regular file"); })) << process.log();
    expect_prompt_exit(process);
  }
}

// As projected by the kubelet: token -> ..data/token, ..data -> ..2026_11_23.
TEST_F(OperatorShutdown, FollowsLinksToATokenFile) {
  std::filesystem::create_directory(file("..2026_11_23"));
  std::ofstream(file("..2026_11_23/token")) << "secret-of-the-pod\n";
  std::filesystem::create_symlink("..2026_11_23", file("..data"));
  std::filesystem::create_symlink("..data/token", file("token"));
  OperatorProcess process({"--kubeconfig", kubeconfig("", "tokenFile: '" + file("token") + "'")});
  expect_prompt_exit(process);
  ASSERT_FALSE(server_.received().empty());
  EXPECT_THAT(server_.received().front().head, HasSubstr("Bearer secret-of-the-pod\r"));
}

TEST_F(OperatorShutdown, RejectsCertificatesThatAreNoFiles) {
  const std::string fifo = make_fifo();
  for (const auto& [cluster, user] :
       {std::pair<std::string, std::string>{", certificate-authority: '" + fifo + "'", ""},
        {", certificate-authority: '/dev/zero'", ""},
        {"", "client-certificate: '" + fifo + "', client-key: '/dev/zero'"}}) {
    Program program({test::program_path("oarlock-operator"), "--port", "0", "--kubeconfig", kubeconfig(cluster, user)});
    EXPECT_EQ(program.wait(), 66) << program.err();
    EXPECT_THAT(program.err(), HasSubstr("not a regular file"));
    EXPECT_EQ(lines(program.err()).size(), 1u);
  }
}

}  // namespace
}  // namespace oarlock::test

// oarlock logs and top against a simulated API server: logs and documents are from pods, which may send any bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/contract.h"
#include "tests/support/documented_commands.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/terminal_program.h"
#include "tests/support/transport_calls.h"

namespace oarlock::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kUid[] = "job-uid";
constexpr size_t kGiB = size_t{1} << 30;

// A simulated API server with the pods of one job. Thread-safe.
class PlayedJob {
 public:
  PlayedJob() {
    server_ = std::make_unique<HostileServer>(
        [this](HostileServer::Connection& connection, const HostileServer::Received& request) {
          return respond(connection, request);
        });
    kubeconfig_ = write_kubeconfig(directory_.path(), server_->url());
  }

  using LogWriter = std::function<bool(HostileServer::Connection&, const HostileServer::Received&)>;

  void set_job(const std::string& phase, int attempt) {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
    attempt_ = attempt;
  }
  void set_processes(int count) { processes_ = count; }
  // `state` is that of the container: running or terminated.
  void set_pod(int attempt, int node_rank, const Json& state) {
    const std::lock_guard lock(mutex_);
    const std::string name = fmt::format("bert-{}-{}", attempt, node_rank);
    pods_[name] = {{"apiVersion", "v1"},
                   {"kind", "Pod"},
                   {"metadata",
                    {{"name", name},
                     {"namespace", "default"},
                     {"uid", "uid-" + name},
                     {"labels",
                      {{kLabelJobName, "bert"},
                       {kLabelAttempt, std::to_string(attempt)},
                       {kLabelNodeRank, std::to_string(node_rank)}}},
                     {"ownerReferences", Json::array({{{"uid", kUid}, {"controller", true}}})}}},
                   {"spec", {{"nodeName", "n1"}}},
                   {"status",
                    {{"phase", state.contains("running") ? "Running" : "Failed"},
                     {"containerStatuses", Json::array({{{"name", kTrainerContainer}, {"state", state}}})}}}};
  }
  void set_log(const std::string& pod, LogWriter writer) {
    const std::lock_guard lock(mutex_);
    logs_[pod] = std::move(writer);
  }
  void set_document(const std::string& target, LogWriter writer) {
    const std::lock_guard lock(mutex_);
    documents_[target] = std::move(writer);
  }
  void omit_crd() { has_crd_ = false; }

  std::unique_ptr<Program> start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), oarlock());
    arguments.insert(arguments.end(), {"--kubeconfig", kubeconfig_});
    return std::make_unique<Program>(arguments);
  }
  const HostileServer& server() const { return *server_; }
  const std::string& kubeconfig() const { return kubeconfig_; }

 private:
  Json job() const {
    return {{"apiVersion", kApiVersion},
            {"kind", kKind},
            {"metadata", {{"name", "bert"}, {"namespace", "default"}, {"uid", kUid}}},
            {"spec", {{"nodes", 2}, {"processesPerNode", processes_.load()}, {"image", "i"}}},
            {"status", {{"phase", phase_}, {"attempt", attempt_}}}};
  }

  bool respond(HostileServer::Connection& connection, const HostileServer::Received& request) {
    const std::string path = request.target.substr(0, request.target.find('?'));
    LogWriter writer;
    std::string body;
    {
      const std::lock_guard lock(mutex_);
      if (path.find("/trainingjobs") != std::string::npos) {
        if (has_crd_) body = path.ends_with("/bert") ? job().dump() : Json{{"items", Json::array({job()})}}.dump();
      } else if (path == "/api/v1/namespaces/default/pods") {
        Json items = Json::array();
        for (const auto& [name, pod] : pods_) items.push_back(pod);
        body = Json{{"kind", "PodList"}, {"apiVersion", "v1"}, {"items", items}}.dump();
      } else if (path.ends_with("/log")) {
        const size_t begin = path.find("/pods/") + 6;
        writer = logs_[path.substr(begin, path.find('/', begin) - begin)];
      } else if (documents_.contains(path)) {
        writer = documents_[path];
      } else if (const auto pod = pods_.find(path.substr(path.rfind('/') + 1)); pod != pods_.end()) {
        body = pod->second.dump();
      }
    }
    if (writer) return writer(connection, request);
    if (body.empty()) {
      connection.answer(
          404,
          R"({"kind":"Status","code":404,"reason":"NotFound","message":"the server could not find the requested resource"})");
    } else {
      connection.answer(200, body);
    }
    return true;
  }

  TemporaryDirectory directory_;
  std::mutex mutex_;
  std::string phase_ = "Running";
  int attempt_ = 0;
  std::atomic<int> processes_ = 1;
  std::atomic<bool> has_crd_ = true;
  std::map<std::string, Json> pods_;
  std::map<std::string, LogWriter> logs_;
  std::map<std::string, LogWriter> documents_;
  std::string kubeconfig_;
  std::unique_ptr<HostileServer> server_;
};

const Json kRunning = {{"running", Json::object()}};
const Json kEnded = {{"terminated", {{"exitCode", 1}}}};

PlayedJob::LogWriter text(const std::string& log) {
  return [log](HostileServer::Connection& connection, const HostileServer::Received&) {
    connection.answer(200, log);
    return true;
  };
}

// Sends a body of this size in pieces, until the client closes the connection.
PlayedJob::LogWriter endless(const std::string& begin, size_t size) {
  return [begin, size](HostileServer::Connection& connection, const HostileServer::Received&) {
    const std::string piece(1 << 20, 'x');
    bool is_open =
        connection.write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", begin.size() + size, begin));
    for (size_t sent = 0; is_open && sent < size; sent += piece.size()) is_open = connection.write(piece);
    return false;
  };
}

TEST(CliLogs, PrintsAllRanksWithPrefixes) {
  PlayedJob job;
  job.set_pod(0, 0, kEnded);
  job.set_pod(0, 1, kRunning);
  job.set_log("bert-0-0", text("2026-11-23T06:00:00Z a\n2026-11-23T06:00:01Z b\n"));
  job.set_log("bert-0-1", text("2026-11-23T06:00:00Z c"));
  const auto all = job.start({"logs", "bert", "--tail", "5"});
  EXPECT_EQ(all->wait(), 0) << all->err();
  EXPECT_EQ(all->out(), "[rank 0] a\n[rank 0] b\n[rank 1] c\n");
  EXPECT_THAT(job.server().received().back().target, AllOf(HasSubstr("container=trainer"), HasSubstr("tailLines=5")));
  const auto one = job.start({"logs", "bert", "--rank", "1", "--no-prefix"});
  EXPECT_EQ(one->wait(), 0) << one->err();
  EXPECT_EQ(one->out(), "c\n");
  const auto missing = job.start({"logs", "bert", "--rank", "2"});
  EXPECT_EQ(missing->wait(), 64);
  const auto previous = job.start({"logs", "bert", "--previous"});
  EXPECT_EQ(previous->wait(), 66);
}

TEST(CliLogs, FollowsAcrossLostConnectionsAndAttempts) {
  PlayedJob job;
  job.set_pod(0, 0, kRunning);
  std::atomic<int> streams = 0;
  std::atomic<bool> was_read = false;
  job.set_log("bert-0-0", [&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (streams++ == 0) {
      EXPECT_THAT(request.target, HasSubstr("follow=true"));
      connection.write(
          "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n2026-11-23T06:00:00.5Z one\n2026-11-23T06:00:01Z tw");
      return false;  // ends before the announced length
    }
    EXPECT_THAT(request.target, HasSubstr("sinceTime=2026-11-23T06%3A00%3A00Z"));
    // The kubelet repeats the lines of that second.
    job.set_pod(0, 0, kEnded);
    connection.answer(200, "2026-11-23T06:00:00.5Z one\n2026-11-23T06:00:01Z two\n");
    was_read = true;
    return true;
  });
  job.set_log("bert-1-0", text("2026-11-23T06:10:00Z three\n"));
  const auto logs = job.start({"logs", "bert", "-f"});
  ASSERT_TRUE(eventually([&] { return was_read.load(); })) << logs->err();
  job.set_pod(1, 0, kEnded);
  job.set_job("Complete", 1);
  EXPECT_EQ(logs->wait(), 0) << logs->err();
  EXPECT_EQ(logs->out(), "[rank 0] one\n[rank 0] two\n[rank 0] three\n");
  EXPECT_THAT(logs->err(), HasSubstr("attempt 1 has started"));
}

TEST(CliLogs, TailDoesNotCutLaterAttempts) {
  PlayedJob job;
  job.set_pod(0, 0, kEnded);
  std::atomic<bool> was_read = false;
  job.set_log("bert-0-0", [&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    EXPECT_THAT(request.target, HasSubstr("tailLines=1"));
    connection.answer(200, "2026-11-23T06:00:00Z one\n");
    was_read = true;
    return true;
  });
  job.set_log("bert-1-0", [](HostileServer::Connection& connection, const HostileServer::Received& request) {
    EXPECT_THAT(request.target, Not(HasSubstr("tailLines")));
    connection.answer(200, "2026-11-23T06:10:00Z two\n2026-11-23T06:10:01Z three\n");
    return true;
  });
  const auto logs = job.start({"logs", "bert", "-f", "--tail", "1"});
  ASSERT_TRUE(eventually([&] { return was_read.load(); })) << logs->err();
  job.set_pod(1, 0, kEnded);
  job.set_job("Complete", 1);
  EXPECT_EQ(logs->wait(), 0) << logs->err();
  EXPECT_EQ(logs->out(), "[rank 0] one\n[rank 0] two\n[rank 0] three\n");
}

// A line of 128 MiB, with 64 MiB of memory for the data of the program.
TEST(CliLogs, EndlessLineNeedsLittleMemory) {
#if defined(OARLOCK_SANITIZED)
  GTEST_SKIP() << "a sanitizer needs more memory";
#endif
  constexpr size_t kSize = size_t{128} << 20;
  PlayedJob job;
  job.set_pod(0, 0, kRunning);
  job.set_log("bert-0-0", endless("2026-11-23T06:00:00Z ", kSize));
  Program logs({"/bin/sh", "-c", "ulimit -d 65536; exec \"$0\" \"$@\" | tr -d '\\n' | wc -c", oarlock(), "logs", "bert",
                "--no-prefix", "--kubeconfig", job.kubeconfig()});
  EXPECT_EQ(logs.wait(), 0) << logs.err();
  EXPECT_EQ(logs.out(), std::to_string(kSize) + "\n") << logs.err();
}

TEST(CliTop, ShowsRanksThroughProxy) {
  PlayedJob job;
  job.set_processes(2);
  job.set_pod(0, 0, kRunning);
  job.set_pod(0, 1, kRunning);
  RankStatus status;
  status.phase = "train";
  status.step = 100;
  status.last_step_seconds = 0.25;
  const auto proxy = [](int node, int port, const char* path) {
    return fmt::format("/api/v1/namespaces/default/pods/bert-0-{}:{}/proxy{}", node, port, path);
  };
  job.set_document(proxy(0, 9400, "/statusz"), text(to_json(status)));
  job.set_document(proxy(0, 9400, "/metrics"), text("process_resident_memory_bytes 1048576\n"));
  status.step = 97;
  status.phase = "eval\x1b[2J";
  job.set_document(proxy(0, 9401, "/statusz"), text(to_json(status)));
  job.set_document(proxy(0, 9401, "/metrics"), endless("", kGiB));
  job.set_document(proxy(1, 9400, "/statusz"), endless("{", kGiB));
  job.set_document(proxy(1, 9401, "/statusz"), text("[1, 2"));
  const auto top = job.start({"top", "bert"});
  EXPECT_EQ(top->wait(), 0) << top->err();
  EXPECT_THAT(top->out(),
              AllOf(HasSubstr("0      train"), HasSubstr("1 MiB"), HasSubstr("97     3 "), HasSubstr("no response"),
                    HasSubstr("no /statusz of oarlock-trainer"), Not(HasSubstr("\x1b"))));
  const auto document = job.start({"top", "bert", "-o", "json"});
  EXPECT_EQ(document->wait(), 0) << document->err();
  const Json parsed = Json::parse(document->out());
  ASSERT_EQ(parsed["ranks"].size(), 4u);
  EXPECT_EQ(parsed["ranks"][0]["status"]["step"], 100);
}

TEST(CliTop, PodThatForbidsRequestsIsShown) {
  PlayedJob job;
  job.set_pod(0, 0, kRunning);
  job.set_pod(0, 1, kRunning);
  RankStatus status;
  status.phase = "train";
  status.step = 100;
  const auto statusz = [](int node) {
    return fmt::format("/api/v1/namespaces/default/pods/bert-0-{}:9400/proxy/statusz", node);
  };
  job.set_document(statusz(0), text(to_json(status)));
  job.set_document(statusz(1), [](HostileServer::Connection& connection, const HostileServer::Received&) {
    connection.answer(403, "log in first");
    return true;
  });
  const auto top = job.start({"top", "bert"});
  EXPECT_EQ(top->wait(), 0) << top->err();
  EXPECT_THAT(top->out(), AllOf(HasSubstr("0      train"), HasSubstr("no response")));
}

TEST(CliLogs, DocumentedCommandsWork) {
  PlayedJob job;
  job.set_pod(0, 0, kRunning);
  job.set_log("bert-0-0", text("2026-11-23T06:00:00Z a\n"));
  const std::vector<std::string> commands = documented_commands(test::source_path("docs/cli.md"), "cli_streams_test");
  ASSERT_EQ(commands.size(), 2u);
  for (const std::string& command : commands) {
    std::vector<std::string> words = words_of(command);
    words.erase(words.begin());
    const auto program = job.start(words);
    EXPECT_EQ(program->wait(), 0) << command << ": " << program->err();
  }
}

TEST(CliList, ShowsProgressOnATerminal) {
  const TemporaryDirectory directory;
  std::atomic<bool> is_released = false;
  const Json job = {{"metadata", {{"name", "bert"}, {"namespace", "default"}}}};
  const HostileServer server([&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    const bool is_last = request.target.find("continue=") != std::string::npos;
    if (is_last) becomes_true([&] { return is_released || connection.stopping(); });
    connection.answer(200, Json{{"metadata", {{"continue", is_last ? "" : "more"}}}, {"items", Json(1, job)}}.dump());
    return true;
  });
  TerminalProgram list({oarlock(), "list", "--kubeconfig", write_kubeconfig(directory.path(), server.url())},
                       directory.path());
  const std::string line = "waiting for " + server.url() + ": 1 job so far";
  EXPECT_TRUE(becomes_true([&] { return list.output().find(line) != std::string::npos; })) << list.output();
  is_released = true;
  EXPECT_EQ(list.wait(), 0) << list.output();
  const std::vector<std::string> lines = screen(list.output());
  EXPECT_THAT(lines.front(), HasSubstr("NAME")) << "the line is erased";
}

// `oarlock list` on a terminal, with a credential plugin that reads a password there.
class CliCredentialPlugin : public ::testing::Test {
 protected:
  CliCredentialPlugin()
      : server_([](HostileServer::Connection& connection, const HostileServer::Received&) {
          connection.answer(200, Json{{"metadata", Json::object()}, {"items", Json::array()}}.dump());
          return true;
        }) {
    std::ofstream(path("plugin")) << "#!/bin/sh\n"
                                  << "trap '' HUP\n"  // of the end of the session's leader, which is `oarlock` here
                                  << "trap 'echo > " << path("interrupted") << "; exit 1' INT\n"
                                  << "printf 'Password: ' > /dev/tty\n"
                                  << "read -r password < /dev/tty\n"
                                  << R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)"
                                  << R"("status":{"token":"'"$password"'"}}')"
                                  << "\n";
    std::filesystem::permissions(path("plugin"), std::filesystem::perms::owner_all);
    std::ofstream(path("kubeconfig"))
        << "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        << "clusters: [{name: c, cluster: {server: '" << server_.url() << "'}}]\n"
        << "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: " << path("plugin")
        << "}}}]\n";
    list_ = std::make_unique<TerminalProgram>(
        std::vector<std::string>{oarlock(), "list", "--kubeconfig", path("kubeconfig")}, directory_.path());
  }

  std::string path(const char* name) const { return (directory_.path() / name).string(); }
  bool shows(const std::string& text) {
    return becomes_true([&] { return list_->output().find(text) != std::string::npos; });
  }

  TemporaryDirectory directory_;
  HostileServer server_;
  std::unique_ptr<TerminalProgram> list_;
};

TEST_F(CliCredentialPlugin, ReadsAPasswordOnTheTerminal) {
  ASSERT_TRUE(shows("Password: ")) << list_->output();
  list_->type("secret\n");
  EXPECT_EQ(list_->wait(), 0) << list_->output();
}

TEST_F(CliCredentialPlugin, EndsOnCtrlC) {
  ASSERT_TRUE(shows("Password: ")) << list_->output();
  list_->type("\x03");
  EXPECT_EQ(list_->wait(), 128 + SIGINT) << list_->output();
  EXPECT_TRUE(becomes_true([&] { return std::filesystem::exists(path("interrupted")); }));
}

TEST(CliErrors, MissingCrdIsReportedWithRemedy) {
  PlayedJob job;
  job.omit_crd();
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"list"}, {"status", "bert"}, {"logs", "bert"}, {"wait", "bert"}}) {
    const auto command = job.start(words);
    EXPECT_EQ(command->wait(), 69) << words.front();
    EXPECT_THAT(command->err(),
                HasSubstr("does not serve trainingjobs (oarlock.dev/v1alpha1): install Oarlock's operator"))
        << words.front();
  }
}

}  // namespace
}  // namespace oarlock::test

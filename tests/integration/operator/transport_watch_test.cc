// The informer over a real connection to servers that end, truncate or corrupt its watch: no event is lost, no
// incomplete event is processed, and memory stays small.
#include <gmock/gmock.h>

#include <thread>

#include "kube/client/informer.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace kube;  // NOLINT
using namespace std::chrono_literals;
using test::becomes_true;
using test::chunk;
using test::HostileServer;
using test::kChunkedHead;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Connection = HostileServer::Connection;
using Received = HostileServer::Received;

std::string thing(const std::string& type, const std::string& name, int version, const std::string& color) {
  return R"({"type":")" + type + R"(","object":{"metadata":{"namespace":"ns","name":")" + name +
         R"(","resourceVersion":")" + std::to_string(version) + R"("},"color":")" + color + "\"}}\n";
}
std::string end_of_initial(int version) {
  return R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":")" + std::to_string(version) +
         R"(","annotations":{"k8s.io/initial-events-end":"true"}}}})"
         "\n";
}
bool is_watch_list(const Received& request) { return request.target.find("sendInitialEvents") != std::string::npos; }

class NoSleep final : public Sleeper {
 public:
  bool sleep(std::chrono::milliseconds, const std::stop_token& stop) override { return !stop.stop_requested(); }
};

// An informer for the server's `things`, which runs until the end of the test.
class Follower {
 public:
  explicit Follower(TransportOptions options)
      : informer_({.resource = {"g", "v1", "things"}, .selection = {}, .fields = FieldFilter({"color"})}, hooks(),
                  test::transport_with(std::move(options)), std::make_shared<RealClock>(), std::make_shared<NoSleep>(),
                  [] { return 0.5; }),
        thread_([this](const std::stop_token& stop) { informer_.run(stop); }) {}

  std::string color(const std::string& name) const {
    const auto record = informer_.store().get({"ns", name});
    return record == nullptr ? "none" : *record;
  }
  // Waits for so many changes. on_change is called after the store has changed, so color() may be ahead of them.
  std::vector<std::string> changes(size_t count) const {
    EXPECT_TRUE(becomes_true([&] { return copy(changes_).size() >= count; }));
    return copy(changes_);
  }
  std::vector<std::string> problems() const { return copy(problems_); }

 private:
  using Texts = std::vector<std::string>;
  Texts copy(const Texts& texts) const {
    const std::lock_guard lock(mutex_);
    return texts;
  }
  void add(Texts& texts, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts.push_back(text);
  }
  Informer<std::string>::Hooks hooks() {
    Informer<std::string>::Hooks out;
    out.project = [](const nlohmann::json& json) -> Result<std::string> { return json.value("color", ""); };
    out.index_of = [](const ObjectKey&, const std::string&) { return std::string(); };
    out.on_change = [this](const ObjectKey& key, const std::string* before, const std::string* after) {
      add(changes_, key.name + ":" + (before ? *before : "-") + ">" + (after ? *after : "-"));
    };
    out.on_unreadable = [](const ObjectKey&, const Error&) {};
    out.on_problem = [this](const ApiError& error) { add(problems_, error.message); };
    out.on_synced = [](size_t) {};
    return out;
  }

  mutable std::mutex mutex_;
  Texts changes_;
  Texts problems_;
  Informer<std::string> informer_;
  std::jthread thread_;
};

TransportOptions options_for(const HostileServer& server) {
  TransportOptions options;
  options.server = server.url();
  return options;
}

TEST(Watch, EndlessLineCausesARelist) {
  std::atomic<size_t> poured = 0;
  std::atomic<int> lists = 0;
  HostileServer server([&](Connection& connection, const Received& request) {
    const bool is_first = is_watch_list(request) && ++lists == 1;
    connection.write(kChunkedHead + chunk(is_first ? thing("ADDED", "a", 1, "red") : thing("ADDED", "a", 2, "green")) +
                     chunk(end_of_initial(2)));
    if (is_first) {
      const std::string piece = chunk(std::string(64u << 10, 'x'));
      connection.write(chunk(R"({"type":"MODIFIED","object":{"color":")"));
      while (!connection.stopping() && connection.write(piece)) poured = connection.written.load();
      return false;
    }
    connection.wait_for_close();
    return false;
  });
  Follower follower(options_for(server));
  EXPECT_TRUE(becomes_true([&] { return follower.color("a") == "green"; }));
  EXPECT_THAT(follower.problems(), Contains(HasSubstr("a line of the watch is longer than")));
  EXPECT_THAT(follower.changes(2), ElementsAre("a:->red", "a:red>green"));
  EXPECT_LT(poured, 96u << 20);  // 64 MiB and the kernel's socket buffers
}

TEST(Watch, GoneCausesARelistWithOnlyDifferences) {
  std::atomic<int> lists = 0;
  HostileServer server([&](Connection& connection, const Received& request) {
    EXPECT_TRUE(is_watch_list(request)) << request.target;
    connection.write(kChunkedHead);
    if (++lists == 1) {
      connection.write(chunk(thing("ADDED", "a", 1, "red")) + chunk(thing("ADDED", "b", 2, "red")) +
                       chunk(end_of_initial(2)) + chunk(thing("MODIFIED", "a", 3, "blue")) +
                       chunk(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",)"
                             R"("message":"too old resource version"}})"
                             "\n") +
                       "0\r\n\r\n");
      return true;
    }
    connection.write(chunk(thing("ADDED", "a", 3, "blue")) + chunk(thing("ADDED", "c", 9, "red")) +
                     chunk(end_of_initial(9)));
    connection.wait_for_close();
    return false;
  });
  Follower follower(options_for(server));
  EXPECT_TRUE(becomes_true([&] { return follower.color("c") == "red" && follower.color("b") == "none"; }));
  EXPECT_THAT(follower.changes(5),
              ::testing::UnorderedElementsAre("a:->red", "b:->red", "a:red>blue", "b:red>-", "c:->red"));
  EXPECT_THAT(server.received().at(1).target, Not(HasSubstr("resourceVersion="))) << "the newest";
}

// After a truncated connection, the next watch resumes at the last complete event and receives the truncated one again.
TEST(Watch, TruncatedEventIsDroppedAndReceivedAgain) {
  const test::Authority authority("test authority");
  HostileServer server(
      [&](Connection& connection, const Received& request) {
        connection.write(kChunkedHead);
        if (is_watch_list(request)) {
          const std::string cut = thing("MODIFIED", "a", 3, "white");
          connection.write(chunk(thing("ADDED", "a", 1, "red")) + chunk(end_of_initial(1)) +
                           chunk(thing("MODIFIED", "a", 2, "green")) + chunk(cut.substr(0, cut.size() - 4)));
          connection.truncate();
          return false;
        }
        connection.write(chunk(thing("MODIFIED", "a", 3, "white")));
        connection.wait_for_close();
        return false;
      },
      {.identity = authority.issue("server", "IP:127.0.0.1")});
  TransportOptions options = options_for(server);
  options.ca.text = authority.certificate();
  Follower follower(options);
  EXPECT_TRUE(becomes_true([&] { return follower.color("a") == "white"; }));
  EXPECT_THAT(follower.changes(3), ElementsAre("a:->red", "a:red>green", "a:green>white"));
  EXPECT_THAT(server.received().at(1).target, AllOf(HasSubstr("resourceVersion=2"), Not(HasSubstr("sendInitial"))));
}

}  // namespace
}  // namespace oarlock::http

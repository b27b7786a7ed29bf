// How much memory the operator needs for 10,000 pods of 6 KB, after relists too. The API server is played, so that the
// test takes seconds; against the real one the figures are the same within half a MiB.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/api_server.h"
#include "tests/support/hostile_server.h"

namespace oarlock::test {
namespace {

constexpr int kPods = 10000;
constexpr double kMiB = 1024;  // of /proc's kB

std::string event(const std::string& type, const std::string& object) {
  const std::string line = R"({"type":")" + type + R"(","object":)" + object + "}\n";
  return fmt::format("{:x}\r\n{}\r\n", line.size(), line);
}

std::string end_of_initial(int version) {
  return event("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}","annotations":{{)"
                                       R"("k8s.io/initial-events-end":"true"}}}}}})",
                                       version));
}

// As a real one: half of it is managedFields and a spec that nobody reads.
std::string pod(int i) {
  static const std::string kNoise(5000, 'x');
  return fmt::format(
      R"({{"metadata":{{"name":"job-{0:05}-0-{1}","namespace":"default","uid":"{2:08x}-1111-4222-8333-444455556666",)"
      R"("resourceVersion":"{3}","labels":{{"oarlock.dev/job-name":"job-{0:05}"}},"ownerReferences":[{{"controller":true,)"
      R"("uid":"{0:08x}-aaaa-4bbb-8ccc-ddddeeeeffff"}}],"managedFields":[{{"fieldsV1":"{4}"}}]}},"spec":{{"nodeName":"node-{5}",)"
      R"("containers":[{{"name":"trainer","image":"example.invalid/trainer:1"}}]}},"status":{{"phase":"Running",)"
      R"("podIP":"10.1.{6}.{1}","conditions":[{{"type":"PodScheduled","status":"True"}},{{"type":"Ready","status":"True"}}],)"
      R"("containerStatuses":[{{"name":"trainer","state":{{"running":{{"startedAt":"2026-01-01T00:00:00Z"}}}}}}]}}}})",
      i / 4, i % 4, i, 1000 + i, kNoise, i % 100, i / 4 % 250);
}

// Serves WatchLists with the initial events; the pods' one ends with 410 as often as asked.
class ManyPods {
 public:
  explicit ManyPods(int pods)
      : server_([this, pods](auto& connection, const auto& request) {
          const bool is_pods = request.target.find("/pods?") != std::string::npos;
          connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
          for (int i = 0; is_pods && i < pods; ++i) connection.write(event("ADDED", pod(i)));
          connection.write(end_of_initial(100000));
          if (is_pods && relists_-- > 0) {
            connection.write(event("ERROR", R"({"code":410,"reason":"Expired","message":"too old"})") + "0\r\n\r\n");
            return true;
          }
          connection.wait_for_close();
          return false;
        }) {}
  void relist(int times) { relists_ = times; }
  std::string kubeconfig(const TemporaryFolder& folder) const {
    const std::string path = (folder.path() / "kubeconfig").string();
    std::ofstream(path)
        << "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: '"
        << server_.url() << "'}}]\n";
    return path;
  }

 private:
  std::atomic<int> relists_ = 0;
  HostileServer server_;
};

// A line of /proc/PID/status in MiB.
double memory(OperatorProcess& one, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/status", one.program().pid()));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / kMiB;
  }
  throw std::runtime_error("no " + name);
}

size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(OperatorMemory, IdleIsAtMost15MiB) {
  const TemporaryFolder folder;
  const ManyPods none(0);
  OperatorProcess one({"--kubeconfig", none.kubeconfig(folder)});
  EXPECT_EQ(one.get("/metrics").status, 200);
  const double resident = memory(one, "VmRSS");
  std::printf("idle: %.1f MiB\n", resident);
  EXPECT_LE(resident, 15);
}

TEST(OperatorMemory, TenThousandPodsAreAtMost25MiBAfterRelistsToo) {
  const TemporaryFolder folder;
  ManyPods many(kPods);
  many.relist(2);
  OperatorProcess one({"--kubeconfig", many.kubeconfig(folder)});
  const std::string synced = R"("resource":"pods","objects":10000)";
  ASSERT_TRUE(eventually([&] { return occurrences(one.log(), synced) == 3; })) << one.log();
  EXPECT_EQ(one.get("/metrics").status, 200);
  const double resident = memory(one, "VmRSS");
  const double most = memory(one, "VmHWM");
  std::printf("10,000 pods after two relists: %.1f MiB, at most %.1f MiB\n", resident, most);
  EXPECT_LE(resident, 25);
  EXPECT_LE(most, 35);  // while two states are held and pages of start-up are still there
}

}  // namespace
}  // namespace oarlock::test

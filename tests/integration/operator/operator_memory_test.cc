// The memory of the operator with many objects and with large ones. The API server is simulated, so that the test takes
// seconds; with a real one, the figures for 10,000 pods differ by less than half a MiB.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <optional>

#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/hostile_server.h"
#include "tests/support/job_world.h"
#include "tests/support/measurement.h"
#include "tests/support/played_cluster.h"

namespace oarlock::test {
namespace {

constexpr int kPods = 10000;

std::string event(const std::string& type, const std::string& object) {
  const std::string line = R"({"type":")" + type + R"(","object":)" + object + "}\n";
  return fmt::format("{:x}\r\n{}\r\n", line.size(), line);
}

std::string end_of_initial(int version) {
  return event("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}","annotations":{{)"
                                       R"("k8s.io/initial-events-end":"true"}}}}}})",
                                       version));
}

const std::string kNoise(5000, 'x');

// Like a real one: half of it is managedFields and a spec that the operator does not read.
std::string pod(int i, std::string_view noise = kNoise, int version = 1000) {
  return fmt::format(
      R"({{"metadata":{{"name":"job-{0:05}-0-{1}","namespace":"default","uid":"{2:08x}-1111-4222-8333-444455556666",)"
      R"("resourceVersion":"{3}","labels":{{"oarlock.dev/job-name":"job-{0:05}"}},"ownerReferences":[{{"controller":true,)"
      R"("uid":"{0:08x}-aaaa-4bbb-8ccc-ddddeeeeffff"}}],"managedFields":[{{"fieldsV1":"{4}"}}]}},"spec":{{"nodeName":"node-{5}",)"
      R"("containers":[{{"name":"trainer","image":"example.invalid/trainer:1"}}]}},"status":{{"phase":"Running",)"
      R"("podIP":"10.1.{6}.{1}","conditions":[{{"type":"PodScheduled","status":"True"}},{{"type":"Ready","status":"True"}}],)"
      R"("containerStatuses":[{{"name":"trainer","state":{{"running":{{"startedAt":"2026-01-01T00:00:00Z"}}}}}}]}}}})",
      i / 4, i % 4, i, version + i, noise, i % 100, i / 4 % 250);
}

std::string service(int i, int version) {
  return fmt::format(
      R"({{"metadata":{{"name":"job-{0:05}","namespace":"default","uid":"{0:08x}-5555-4666-8777-888899990000",)"
      R"("resourceVersion":"{1}","labels":{{"oarlock.dev/job-name":"job-{0:05}"}},"creationTimestamp":"2026-01-01T00:00:00Z",)"
      R"("ownerReferences":[{{"controller":true,"kind":"TrainingJob","name":"job-{0:05}",)"
      R"("uid":"{0:08x}-aaaa-4bbb-8ccc-ddddeeeeffff"}}]}}}})",
      i, version + i);
}

// A job that has ended, with a spec of 10 KB.
std::string finished_job(int i, int spec_bytes = 10000, int version = 1000) {
  const std::string trainer(static_cast<size_t>(spec_bytes), 'x');
  return fmt::format(
      R"({{"metadata":{{"name":"job-{0:05}","namespace":"default","uid":"{0:08x}-aaaa-4bbb-8ccc-ddddeeeeffff",)"
      R"("resourceVersion":"{1}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"nodes":4,)"
      R"("template":{{"spec":{{"containers":[{{"name":"trainer","image":"example.invalid/trainer:1"}}]}}}},)"
      R"("trainer":{{"note":"{2}"}}}},"status":{{"phase":"Complete","observedGeneration":1,"attempt":0,"worldSize":4,)"
      R"("completionTime":"2026-01-01T01:00:00Z","conditions":[{{"type":"Complete","status":"True","reason":"Succeeded",)"
      R"("message":"all ranks ended with exit code 0","lastTransitionTime":"2026-01-01T01:00:00Z"}}]}}}})",
      i, version + i, trainer);
}

// Serves WatchLists with the initial events; the one for pods ends with 410 the given number of times.
class ManyPods {
 public:
  explicit ManyPods(int pods, int jobs = 0)
      : server_([this, pods, jobs](auto& connection, const auto& request) {
          const bool is_pods = request.target.find("/pods?") != std::string::npos;
          const bool is_jobs = request.target.find("/trainingjobs?") != std::string::npos;
          connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
          for (int i = 0; is_pods && i < pods; ++i) connection.write(event("ADDED", pod(i)));
          for (int i = 0; is_jobs && i < jobs; ++i) connection.write(event("ADDED", finished_job(i)));
          connection.write(end_of_initial(100000));
          if (is_pods && relists_-- > 0) {
            connection.write(event("ERROR", R"({"code":410,"reason":"Expired","message":"too old"})") + "0\r\n\r\n");
            return true;
          }
          connection.wait_for_close();
          return false;
        }) {}
  void relist(int times) { relists_ = times; }
  std::string kubeconfig(const TemporaryDirectory& directory) const {
    return write_kubeconfig(directory.path(), server_.url());
  }

 private:
  std::atomic<int> relists_ = 0;
  HostileServer server_;
};

double memory(OperatorProcess& one, const std::string& name) { return memory_of(one.program().pid(), name); }

size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(OperatorMemory, IdleIsAtMost15MiB) {
  const TemporaryDirectory directory;
  const ManyPods none(0);
  OperatorProcess one({"--kubeconfig", none.kubeconfig(directory)});
  EXPECT_EQ(one.get("/metrics").status, 200);
  const double resident = memory(one, "VmRSS");
  std::printf("idle: %.1f MiB\n", resident);
  expect_memory_within(resident, 15);
}

TEST(OperatorMemory, TenThousandPodsNeedAtMost40MiB) {
  const TemporaryDirectory directory;
  ManyPods many(kPods);
  many.relist(2);
  OperatorProcess one({"--kubeconfig", many.kubeconfig(directory)});
  const std::string synced = R"("resource":"pods","objects":10000)";
  ASSERT_TRUE(eventually([&] { return occurrences(one.log(), synced) == 3; })) << one.log();
  EXPECT_EQ(one.get("/metrics").status, 200);
  const double resident = memory(one, "VmRSS");
  const double most = memory(one, "VmHWM");
  std::printf("10,000 pods after two relists: %.1f MiB, at most %.1f MiB\n", resident, most);
  expect_memory_within(resident, 40);
  expect_memory_within(most, 50);  // while two states are held and pages of start-up are still there
}

TEST(OperatorMemory, FinishedJobsKeepNoTemplate) {
  const TemporaryDirectory directory;
  const ManyPods many(0, 10000);
  OperatorProcess one({"--kubeconfig", many.kubeconfig(directory)});
  ASSERT_TRUE(one.logged(R"("jobs":10000)")) << one.log();
  EXPECT_EQ(one.get("/metrics").status, 200);
  const double most = memory(one, "VmHWM");
  std::printf("10,000 finished jobs of 10 KB: %.1f MiB, at most %.1f MiB\n", memory(one, "VmRSS"), most);
  expect_memory_within(most, 80);  // their specs alone are 95 MiB
}

// Serves more jobs, pods and Services than the operator keeps with its default --cache-limit. Each WatchList ends with
// 410 once; the next one has later versions of all objects, so that the operator cannot share any.
class FullCluster {
 public:
  FullCluster()
      : server_([this](auto& connection, const auto& request) {
          Kind* kind = nullptr;
          for (Kind& one : kinds_) {
            if (request.target.find(one.path) != std::string::npos) kind = &one;
          }
          if (kind == nullptr) {
            connection.answer(404, "{}");
            return true;
          }
          const bool is_first = kind->lists++ == 0;
          const int version = is_first ? 1000 : 1'000'000;
          connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
          for (int i = 0; i < kind->objects && !connection.stopping(); ++i)
            connection.write(event("ADDED", kind->object(i, version)));
          connection.write(end_of_initial(version + kind->objects));
          if (is_first) {
            connection.write(event("ERROR", R"({"code":410,"reason":"Expired","message":"too old"})") + "0\r\n\r\n");
            return true;
          }
          connection.wait_for_close();
          return false;
        }) {}
  std::string kubeconfig(const TemporaryDirectory& directory) const {
    return write_kubeconfig(directory.path(), server_.url());
  }

 private:
  struct Kind {
    std::string path;
    int objects;
    std::function<std::string(int i, int version)> object;
    std::atomic<int> lists = 0;
  };
  Kind kinds_[3] = {
      {.path = "/trainingjobs?", .objects = 60'000, .object = [](int i, int v) { return finished_job(i, 100, v); }},
      {.path = "/pods?", .objects = 90'000, .object = [](int i, int v) { return pod(i, "", v); }},
      {.path = "/services?", .objects = 60'000, .object = service}};
  HostileServer server_;
};

// The operator is within the chart's memory limit of 160 MiB, however many objects there are.
TEST(OperatorMemory, FullCacheStaysWithinTheChartsLimit) {
  const TemporaryDirectory directory;
  const FullCluster cluster;
  OperatorProcess one({"--kubeconfig", cluster.kubeconfig(directory)});
  const auto times_logged = [&](const std::string& resource) {
    return occurrences(one.log(), fmt::format(R"("resource":"{}","objects")", resource));
  };
  for (const char* resource : {"trainingjobs.oarlock.dev", "pods", "services"}) {
    for (int minutes = 0; minutes < 5 && times_logged(resource) < 2; ++minutes)
      eventually([&] { return times_logged(resource) == 2; });
    EXPECT_EQ(times_logged(resource), 2u) << resource << ": " << one.log();
  }
  std::printf("full stores: %.1f MiB, at most %.1f MiB\n", memory(one, "VmRSS"), memory(one, "VmHWM"));
  expect_memory_within(memory(one, "VmHWM"), 150);
}

// A list in one piece from a server without WatchList: its pods are read one after the other.
TEST(OperatorMemory, StreamsListsOfLargePods) {
  constexpr int kLargePods = 512;
  const std::string annotation =
      R"("annotations":{"oarlock.dev/trainer-config":")" + std::string(240 << 10, 'x') + "\"},";
  const TemporaryDirectory directory;
  HostileServer server([&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (request.target.find("sendInitialEvents") != std::string::npos) {
      connection.answer(422, R"({"kind":"Status","reason":"Invalid","message":"sendInitialEvents is forbidden"})");
      return true;
    }
    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    if (request.target.find("watch=true") != std::string::npos) {
      connection.wait_for_close();
      return false;
    }
    const auto chunk = [&](const std::string& text) {
      connection.write(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
    };
    chunk(R"({"kind":"List","metadata":{"resourceVersion":"100000"},"items":[)");
    const bool is_pods = request.target.find("/pods?") != std::string::npos;
    for (int i = 0; is_pods && i < kLargePods; ++i) {
      std::string text = pod(i);
      text.insert(text.find(R"("labels")"), annotation);
      chunk((i == 0 ? "" : ",") + text);
    }
    chunk("]}");
    connection.write("0\r\n\r\n");
    return true;
  });
  OperatorProcess one({"--kubeconfig", write_kubeconfig(directory.path(), server.url())});
  ASSERT_TRUE(one.logged(R"("resource":"pods","objects":512)")) << one.log();
  const double most = memory(one, "VmHWM");
  std::printf("a list of 512 pods of 246 KiB (123 MiB): at most %.1f MiB\n", most);
  expect_memory_within(most, 48);
}

// 512 nodes of 200 KiB. The largest job that the operator accepts, in a cgroup below the chart's default limit:
//   OARLOCK_LARGE_JOB_NODES=4096 OARLOCK_LARGE_JOB_KIB=60 OARLOCK_LARGE_JOB_MIB=128
//   BUILD/tests/.../operator_memory_test
TEST(OperatorMemory, RestartsLargeJobWithinMemoryLimit) {
  const int nodes = option("OARLOCK_LARGE_JOB_NODES", 512);
  const int kib = option("OARLOCK_LARGE_JOB_KIB", 200);
  const int limit = option("OARLOCK_LARGE_JOB_MIB", 64);
  const TemporaryDirectory directory;
  PlayedCluster cluster;
  std::optional<MemoryLimit> cgroup;  // removed after the operator's end
  OperatorProcess one({"--kubeconfig", write_kubeconfig(directory.path(), cluster.url())});
  cgroup.emplace(one.program().pid(), limit);
  const auto wait = [&](const std::string& what, const std::function<bool()>& condition) {
    for (int minutes = 0; minutes < 5; ++minutes) {
      if (eventually([&] { return condition() || !alive(one.program().pid()); })) break;
    }
    EXPECT_TRUE(alive(one.program().pid())) << "the operator has ended";
    if (!condition()) throw std::runtime_error("waited for " + what + "; the job: " + cluster.job_status("j").dump());
  };
  const auto wait_for_phase = [&](const std::string& phase) {
    wait("phase " + phase, [&] { return cluster.job_status("j").value("phase", "") == phase; });
  };
  const auto wait_for_pods = [&](int attempt) {
    wait("pods", [&] { return cluster.pods(attempt) == static_cast<size_t>(nodes); });
  };

  const auto began = std::chrono::steady_clock::now();
  cluster.create_job(
      {{"metadata", {{"name", "j"}}},
       {"spec",
        {{"nodes", nodes},
         {"template", {{"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}}},
         {"trainer", {{"note", std::string(static_cast<size_t>(kib) << 10, 'x')}}}}}});
  wait_for_pods(0);
  cluster.set_pods(0, pod_running());
  wait_for_phase("Running");
  const auto failed = std::chrono::steady_clock::now();
  cluster.set_pod("j-0-1", pod_ended(1));
  wait_for_pods(1);
  EXPECT_EQ(cluster.pods(0), 1u) << "only the pod that failed is kept";
  cluster.set_pods(1, pod_running());
  wait_for_phase("Running");
  cluster.set_pods(1, pod_ended(0));
  wait_for_phase("Complete");

  EXPECT_EQ(cluster.job_status("j")["restarts"]["total"], 1);
  EXPECT_EQ(one.get("/healthz").status, 200);
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  const double most = memory(one, "VmHWM");
  std::printf(
      "%d nodes of %d KiB: created in %.1f s; from the failure to the first new pod %.1f s, to the last %.1f s; at "
      "most "
      "%.1f MiB%s\n",
      nodes, kib, seconds(cluster.created(0).second - began), seconds(cluster.created(1).first - failed),
      seconds(cluster.created(1).second - failed), most, cgroup->is_set() ? " (in a cgroup)" : "");
  expect_memory_within(most, limit);
}

}  // namespace
}  // namespace oarlock::test

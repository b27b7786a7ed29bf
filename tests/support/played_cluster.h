// A simulated API server that stores jobs, pods and Services and serves watches, for large jobs, which take minutes
// with a real one and etcd. It stores pods without their spec, and returns spec.trainer in each, as a real one does.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/contract.h"
#include "tests/support/hostile_server.h"

namespace oarlock::test {

class PlayedCluster {
 public:
  using Json = nlohmann::json;
  using Time = std::chrono::steady_clock::time_point;

  PlayedCluster()
      : server_([this](HostileServer::Connection& connection, const HostileServer::Received& request) {
          return answer(connection, request);
        }) {}
  ~PlayedCluster() {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  PlayedCluster(const PlayedCluster&) = delete;
  PlayedCluster& operator=(const PlayedCluster&) = delete;

  std::string url() const { return server_.url(); }

  void create_job(Json job) {
    const std::lock_guard lock(mutex_);
    job["metadata"]["generation"] = 1;
    put(kJobs, "ADDED", std::move(job), nullptr);
  }
  Json job_status(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return objects_[kJobs].at(name)->body.value("status", Json::object());
  }
  // Pods of one attempt.
  size_t pods(int attempt) const {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [name, pod] : objects_[kPods]) count += attempt_of(*pod) == attempt ? 1 : 0;
    return count;
  }
  // Set the status of one pod, or of all pods of an attempt, as kubelets do.
  void set_pod(const std::string& name, const Json& status) {
    const std::lock_guard lock(mutex_);
    set_status(objects_[kPods].at(name), status);
  }
  void set_pods(int attempt, const Json& status) {
    const std::lock_guard lock(mutex_);
    const std::map<std::string, ObjectPtr> pods = objects_[kPods];
    for (const auto& [name, pod] : pods) {
      if (attempt_of(*pod) == attempt) set_status(pod, status);
    }
  }
  // When the first and the last pod of an attempt were created.
  std::pair<Time, Time> created(int attempt) const {
    const std::lock_guard lock(mutex_);
    return created_.at(attempt);
  }

 private:
  enum Kind { kJobs, kPods, kServices, kOther };
  struct Object {
    Json body;
    std::shared_ptr<const std::string> config;  // of a pod: the annotation with spec.trainer, as JSON text
  };
  using ObjectPtr = std::shared_ptr<const Object>;
  struct Event {
    Kind kind;
    const char* type;
    int version;
    ObjectPtr object;
  };

  static int attempt_of(const Object& pod) {
    return std::stoi(pod.body["metadata"]["labels"][kLabelAttempt].get<std::string>());
  }
  static Kind kind_of(const std::string& path) {
    if (path.find("/trainingjobs") != std::string::npos) return kJobs;
    if (path.find("/pods") != std::string::npos) return kPods;
    return path.find("/services") != std::string::npos ? kServices : kOther;
  }
  static std::string text_of(const Object& object) {
    std::string text = object.body.dump();
    if (object.config != nullptr) {
      const std::string metadata = R"("metadata":{)";
      text.insert(text.find(metadata) + metadata.size(),
                  fmt::format(R"("annotations":{{"{}":{}}},)", kAnnotationConfig, *object.config));
    }
    return text;
  }
  static std::string failure(const char* reason) {
    return fmt::format(R"({{"kind":"Status","reason":"{}","message":"played"}})", reason);
  }

  // Called with the lock held.
  ObjectPtr put(Kind kind, const char* type, Json body, std::shared_ptr<const std::string> config) {
    Json& metadata = body["metadata"];
    metadata["namespace"] = "default";
    metadata["resourceVersion"] = std::to_string(++version_);
    if (!metadata.contains("uid")) metadata["uid"] = fmt::format("{:08x}-1111-4222-8333-444455556666", version_);
    metadata["creationTimestamp"] = metadata.value("creationTimestamp", "2026-01-01T00:00:00Z");
    const std::string name = metadata["name"];
    auto object = std::make_shared<const Object>(Object{std::move(body), std::move(config)});
    if (std::string_view(type) == "DELETED") {
      objects_[kind].erase(name);
    } else {
      objects_[kind][name] = object;
    }
    events_.push_back({kind, type, version_, object});
    changed_.notify_all();
    return object;
  }
  void set_status(const ObjectPtr& pod, const Json& status) {
    Json body = pod->body;
    body["status"] = status;
    put(kPods, "MODIFIED", std::move(body), pod->config);
  }

  bool answer(HostileServer::Connection& connection, const HostileServer::Received& request) {
    const std::string path = request.target.substr(0, request.target.find('?'));
    const Kind kind = kind_of(path);
    if (request.target.find("watch=true") != std::string::npos) {
      watch(connection, kind, request.target);
      return false;
    }
    std::string body = "{}";
    int status = 201;
    if (kind != kOther) {
      const std::lock_guard lock(mutex_);
      status = serve(kind, request, path, body);
    }
    connection.answer(status, body);
    return true;
  }

  int serve(Kind kind, const HostileServer::Received& request, const std::string& path, std::string& body) {
    if (request.method == "POST") return create(kind, Json::parse(request.body), body);
    const bool is_status = path.ends_with("/status");
    const std::string object_path = is_status ? path.substr(0, path.rfind('/')) : path;
    const std::string name = object_path.substr(object_path.rfind('/') + 1);
    if (kind_of("/" + name) == kind) {
      body = fmt::format(R"({{"kind":"List","metadata":{{"resourceVersion":"{}"}},"items":[]}})", version_);
      return 200;
    }
    const auto found = objects_[kind].find(name);
    if (found == objects_[kind].end()) {
      body = failure("NotFound");
      return 404;
    }
    ObjectPtr object = found->second;
    const Json wanted = request.body.empty() ? Json::object() : Json::parse(request.body);
    const Json& metadata = object->body["metadata"];
    const Json preconditions = wanted.value(request.method == "PATCH" ? "metadata" : "preconditions", Json::object());
    if (preconditions.value("uid", metadata["uid"]) != metadata["uid"] ||
        preconditions.value("resourceVersion", metadata["resourceVersion"]) != metadata["resourceVersion"]) {
      body = failure("Conflict");
      return 409;
    }
    if (request.method == "DELETE") {
      object = put(kind, "DELETED", object->body, object->config);
    } else if (request.method == "PATCH") {
      Json patched = object->body;
      patched.merge_patch({{"status", wanted["status"]}});
      if (patched != object->body) object = put(kind, "MODIFIED", std::move(patched), object->config);
    }
    body = text_of(*object);
    return 200;
  }

  int create(Kind kind, Json object, std::string& body) {
    if (objects_[kind].contains(object["metadata"]["name"].get<std::string>())) {
      body = failure("AlreadyExists");
      return 409;
    }
    std::shared_ptr<const std::string> config;
    if (const Json annotations = object["metadata"].value("annotations", Json::object());
        annotations.contains(kAnnotationConfig)) {
      config = std::make_shared<const std::string>(annotations[kAnnotationConfig].dump());
    }
    object["metadata"].erase("annotations");
    object.erase("spec");
    object["status"] = {{"phase", "Pending"}};
    const ObjectPtr made = put(kind, "ADDED", std::move(object), std::move(config));
    if (kind == kPods) {
      const Time now = std::chrono::steady_clock::now();
      created_.try_emplace(attempt_of(*made), now, now).first->second.second = now;
    }
    body = text_of(*made);
    return 201;
  }

  void watch(HostileServer::Connection& connection, Kind kind, const std::string& target) {
    const auto write = [&](const char* type, const std::string& object) {
      const std::string line = fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
      return connection.write(fmt::format("{:x}\r\n{}\r\n", line.size(), line));
    };
    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    size_t next = 0;
    if (target.find("sendInitialEvents") != std::string::npos) {
      std::map<std::string, ObjectPtr> present;
      int version = 0;
      {
        const std::lock_guard lock(mutex_);
        present = objects_[kind];
        next = events_.size();
        version = version_;
      }
      for (const auto& [name, object] : present) write("ADDED", text_of(*object));
      write("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}","annotations":{{)"
                                    R"("k8s.io/initial-events-end":"true"}}}}}})",
                                    version));
    } else if (const size_t at = target.find("resourceVersion="); at != std::string::npos) {
      const int since = std::stoi(target.substr(at + 16));
      const std::lock_guard lock(mutex_);
      while (next < events_.size() && events_[next].version <= since) ++next;
    }
    for (;;) {
      Event event{kOther, "", 0, nullptr};
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return is_ending_ || next < events_.size(); });
        if (is_ending_ || connection.stopping()) return;
        if (next == events_.size()) continue;
        event = events_[next++];
      }
      if (event.kind == kind && !write(event.type, text_of(*event.object))) return;
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  int version_ = 1000;
  std::map<std::string, ObjectPtr> objects_[3];
  std::vector<Event> events_;
  std::map<int, std::pair<Time, Time>> created_;  // by attempt
  HostileServer server_;
};

}  // namespace oarlock::test

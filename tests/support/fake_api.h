// An API server inside the test's process.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "http/client/transport.h"

namespace oarlock::test {

// Watches show what the test pushes; all other requests are answered by a function. PodGroups and TrainingProfiles are
// served of the group `optional` only.
class FakeApi final : public http::Transport {
 public:
  using Handler = std::function<http::Response(const http::Request&)>;

  explicit FakeApi(std::string optional = "none") : optional_(std::move(optional)) {}

  void push(const std::string& plural, const std::string& type, const nlohmann::json& object) {
    push(plural, nlohmann::json{{"type", type}, {"object", object}}.dump() + "\n");
  }
  // Ends the initial list of these objects.
  void end_list(const std::string& plural, int version = 10) {
    push(plural, "BOOKMARK",
         {{"metadata",
           {{"resourceVersion", std::to_string(version)}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}});
  }
  // Ends the lists of the objects that a cache requires to be synchronized.
  void end_required_lists(int version = 10) {
    for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural, version);
  }
  // Ends the present watch of these objects, or the next one, with this response.
  void end_watch(const std::string& plural, http::Response response) { push(plural, std::move(response)); }
  void on_request(Handler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // The targets of all watches so far.
  std::vector<std::string> watches() const {
    const std::lock_guard lock(mutex_);
    return watches_;
  }

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds,
                                             std::stop_token) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.target);
    return handler_(request);
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink, http::StreamLimits,
                                               std::stop_token cancel) override {
    const std::string plural = request.target.find("/trainingjobs") != std::string::npos       ? "trainingjobs"
                               : request.target.find("/pods") != std::string::npos             ? "pods"
                               : request.target.find("/workloads") != std::string::npos        ? "workloads"
                               : request.target.find("/podgroups") != std::string::npos        ? "podgroups"
                               : request.target.find("/trainingprofiles") != std::string::npos ? "trainingprofiles"
                               : request.target.find("/nodes") != std::string::npos            ? "nodes"
                                                                                               : "services";
    std::unique_lock lock(mutex_);
    const bool is_optional = plural == "podgroups" || plural == "trainingprofiles";
    if (is_optional && request.target.find(optional_ + "/") == std::string::npos) {
      if (refused_.insert(request.target).second) return http::Response{.status = 404, .body = "", .retry_after = {}};
      changed_.wait(lock, cancel, [] { return false; });  // the test needs no further refusals
      return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kCancelled, "cancelled"});
    }
    watches_.push_back(request.target);
    for (;;) {
      std::deque<Item>& items = items_[plural];
      if (!changed_.wait(lock, cancel, [&] { return !items.empty(); })) break;
      Item item = std::move(items.front());
      items.pop_front();
      if (auto* response = std::get_if<http::Response>(&item)) return std::move(*response);
      lock.unlock();
      const bool goes_on = sink.write(std::get<std::string>(item));
      lock.lock();
      if (!goes_on) break;
    }
    return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kCancelled, "cancelled"});
  }

 private:
  using Item = std::variant<std::string, http::Response>;  // a line, or the end of the watch

  void push(const std::string& plural, Item item) {
    const std::lock_guard lock(mutex_);
    items_[plural].push_back(std::move(item));
    changed_.notify_all();
  }

  const std::string optional_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::deque<Item>> items_;
  std::vector<std::string> requests_;
  std::vector<std::string> watches_;
  std::set<std::string> refused_;
  Handler handler_;
};

}  // namespace oarlock::test

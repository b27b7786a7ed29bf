#include "tests/bench/operator/burst.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace oarlock::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{250};  // each look costs the server some milliseconds

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string filled(std::string text, const std::string& name, const std::string& uid) {
  for (const auto& [mark, value] : {std::pair<std::string, std::string>{"@NAME@", name}, {"@UID@", uid}}) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size())) {
      text.replace(at, mark.size(), value);
    }
  }
  return text;
}

void create_job(Server& server, const BurstPlan& plan, int index) {
  const std::string name = plan.prefix + "-" + std::to_string(index);
  std::string uid;
  for (const Template& object : plan.templates) {
    const nlohmann::json created = server.post(object.target, filled(object.body, name, uid));
    if (uid.empty()) uid = created.at("metadata").at("uid").get<std::string>();
  }
}

// Rethrows the first failure of any worker.
void create_all(Server& server, const BurstPlan& plan) {
  std::atomic<int> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (int i = next++; i < plan.jobs; i = next++) create_job(server, plan, i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
      next = plan.jobs;
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < plan.concurrency; ++i) workers.emplace_back(work);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

// A page of one item states how many more there are, which costs the server far less than the list.
int count(Server& server, const std::string& list) {
  const nlohmann::json page = server.get(list + "?limit=1");
  return static_cast<int>(page.at("items").size()) + page.at("metadata").value("remainingItemCount", 0);
}

bool all_run(Server& server, const std::string& list) {
  return server.get(list + "?limit=1&fieldSelector=status.phase%21%3DRunning").at("items").empty();
}

}  // namespace

BurstPlan burst_plan(const nlohmann::json& json) {
  BurstPlan plan;
  json.at("jobs").get_to(plan.jobs);
  json.at("concurrency").get_to(plan.concurrency);
  json.at("prefix").get_to(plan.prefix);
  for (const nlohmann::json& object : json.at("templates")) {
    plan.templates.push_back({object.at("target").get<std::string>(), object.at("body").dump()});
  }
  json.at("pods").get_to(plan.pods);
  json.at("expected_pods").get_to(plan.expected_pods);
  json.at("wait_until_running").get_to(plan.wait_until_running);
  plan.timeout = std::chrono::seconds(json.at("timeout").get<int>());
  return plan;
}

nlohmann::json to_json(const BurstResult& result) {
  const auto optional = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nullptr; };
  return {{"started_at", result.started_at},
          {"posted", result.posted},
          {"all_pods", optional(result.all_pods)},
          {"all_running", optional(result.all_running)},
          {"pods", result.pods}};
}

BurstResult run_burst(Server& server, const BurstPlan& plan) {
  BurstResult result;
  result.started_at = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto start = Clock::now();
  create_all(server, plan);
  result.posted = seconds_since(start);

  const auto deadline = Clock::now() + plan.timeout;
  while (true) {
    if (!result.all_pods) {
      result.pods = count(server, plan.pods);
      if (result.pods >= plan.expected_pods) result.all_pods = seconds_since(start);
    }
    if (result.all_pods && plan.wait_until_running && all_run(server, plan.pods)) {
      result.all_running = seconds_since(start);
    }
    if (result.all_pods && (result.all_running || !plan.wait_until_running)) return result;
    if (Clock::now() > deadline) return result;
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace oarlock::bench

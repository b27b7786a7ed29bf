// Creates objects with several requests in flight, and waits until the pods that controllers create for them run.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/operator/server.h"

namespace oarlock::bench {

struct Template {
  std::string target;  // where it is POSTed
  std::string body;    // "@NAME@" stands for the job's name, "@UID@" for the uid of the job's first object
};

struct BurstPlan {
  int jobs = 0;
  int concurrency = 1;              // jobs created concurrently; the objects of one job are created in order
  std::string prefix;               // job i is named <prefix>-<i>
  std::vector<Template> templates;  // the objects of one job
  std::string pods;                 // the list to wait for: "/api/v1/namespaces/x/pods"
  int expected_pods = 0;            // in it
  bool wait_until_running = false;
  std::chrono::seconds timeout{120};  // of the waiting
};
// Throws nlohmann::json::exception if a key is missing or has another type.
BurstPlan burst_plan(const nlohmann::json& json);

// Times in seconds since the first request; absent if the timeout expired before.
struct BurstResult {
  double started_at = 0;  // Unix time
  double posted = 0;
  std::optional<double> all_pods;
  std::optional<double> all_running;
  int pods = 0;  // number of pods at the end
};
nlohmann::json to_json(const BurstResult& result);

BurstResult run_burst(Server& server, const BurstPlan& plan);

}  // namespace oarlock::bench

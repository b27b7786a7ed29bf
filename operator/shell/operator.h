// All of the operator put together, without flags and signals: what main() runs and what a test may run in its process.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/http/server.h"
#include "common/log.h"
#include "operator/kube/config.h"
#include "operator/shell/election.h"
#include "operator/shell/progress_poller.h"

namespace oarlock::control {

struct OperatorOptions {
  kube::ClusterConfig cluster;
  std::vector<std::string> namespaces;  // empty: all
  int workers = 16;  // a job is created in six steps, each a wait for the server: fewer leave the server idle
  std::string listen_address = "::";  // all of IPv4 and IPv6
  int port = 8080;                    // 0: a free one
  std::string server_certificate;     // PEM file with certificate and key; empty: plain HTTP
  bool protect_metrics = false;       // /metrics wants a token that may get it
  // JSON list of NetworkPolicy peers (read_metrics_peers() in operator/core/network_policy.h): each job gets a
  // NetworkPolicy that admits them to its metrics ports. Absent: jobs get none.
  std::optional<std::string> job_network_policy;
  std::chrono::seconds startup_timeout{60};  // 0: wait for the API server for ever
  std::string instance;                      // of several operators this one: the pod's name
  std::string version;
  ProgressOptions progress;
  ElectionOptions election;
};

// Runs until a stop is requested, then ends in order: workers, poller, lease, informers, HTTP. Fails when it cannot
// begin: a port in use, credentials that cannot work, no answer from the API server within the startup timeout
// (kUnavailable); and when it was the leader and is not any more (kTempFail: start again and stand by).
Result<void> run_operator(const OperatorOptions& options, const Logger& log, const std::stop_token& stop);

}  // namespace oarlock::control

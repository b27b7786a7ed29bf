// The composition root of the operator, without flags and signals.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "kube/auth/kubeconfig.h"
#include "operator/core/pod_template.h"
#include "operator/shell/cache.h"
#include "operator/shell/leader_election.h"
#include "operator/shell/progress.h"

namespace oarlock::control {

struct OperatorOptions {
  kube::ClusterConfig cluster;
  std::vector<std::string> namespaces;  // empty: all
  std::string profile_namespace;        // see CacheOptions::profile_namespace
  PodDefaults pod_defaults;
  std::string launcher_image;         // Observed::launcher_image
  int pending_timeout_seconds = 0;    // Observed::pending_timeout_seconds; 0: absent
  size_t cache_limit = kCacheLimit;   // see CacheOptions::limit
  bool watch_nodes = false;           // request checkpoints before disruptions that nodes announce
  int workers = 16;                   // creating a job takes six round trips; fewer workers leave the server idle
  std::string listen_address = "::";  // all addresses, IPv4 and IPv6
  int port = 8080;                    // 0: any free port
  // A second port for /healthz and /readyz, with a separate thread and without TLS, so that no client of the first
  // port can delay a probe. 0: any free port. Absent: only the first port serves them.
  std::optional<int> health_port;
  std::string server_certificate;  // PEM file with certificate and key; empty: plain HTTP
  bool protect_metrics = false;    // /metrics requires an authorized bearer token
  // JSON list of NetworkPolicy peers (see parse_metrics_peers() in operator/core/desired.h). Each job gets a
  // NetworkPolicy that admits them to its metrics ports. Absent: jobs get no NetworkPolicy.
  std::optional<std::string> job_network_policy;
  std::chrono::seconds startup_timeout{60};  // for the first response of the API server; 0: no limit
  std::string instance;                      // name of the operator's pod
  std::string version;
  ProgressOptions progress;
  LeaderElectionOptions election;
};

// Runs the operator until a stop is requested, and then shuts down in order: workers, poller, events, lease, informers,
// HTTP server. Returns an error if the operator cannot start (port in use, invalid credentials, no response from the
// API server within the startup timeout: kUnavailable), or if it has lost the leadership (kTempFail: restart as a
// standby).
Result<void> run_operator(const OperatorOptions& options, const Logger& log, const std::stop_token& stop);

}  // namespace oarlock::control

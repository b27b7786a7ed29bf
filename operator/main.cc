// oarlock-operator: flags, signals, and the exit code.
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "api/rules.h"
#include "common/error.h"
#include "common/log.h"
#include "common/random.h"
#include "common/terminal.h"
#include "kube/auth/kubeconfig.h"
#include "operator/core/desired.h"
#include "operator/shell/operator.h"

namespace {

using oarlock::ExitCode;
using oarlock::to_int;
using oarlock::control::OperatorOptions;

constexpr char kExamples[] = R"(
examples:
  oarlock-operator                                     in a pod, with its service account
  oarlock-operator --kubeconfig ~/.kube/config --port 0 --log-format text
  oarlock-operator --namespace team-a --namespace team-b

The API server is reached through the proxy of the kubeconfig (proxy-url) or of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
It serves /healthz, /readyz and /metrics. SIGTERM and SIGINT shut it down gracefully; a second one ends it immediately.
Exit codes: 0 stopped; 64 invalid flags; 66 kubeconfig not found; 69 no response from the API server, or port in use;
75 leadership lost; 78 invalid kubeconfig.)";

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// A random suffix keeps two processes on one host from sharing a lease.
std::string unique_identity(const std::string& host) { return host + "_" + oarlock::random_hex(sizeof(uint64_t)); }

// Waits for SIGTERM or SIGINT on a dedicated thread and requests a stop. A second signal ends the process.
class SignalWatcher {
 public:
  SignalWatcher() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGUSR2);                   // sent by the destructor
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);  // before other threads start, because they inherit the mask
    thread_ = std::thread([this] {
      int signal = 0;
      sigwait(&set_, &signal);
      stop_.request_stop();
      if (signal == SIGUSR2) return;
      while (sigwait(&set_, &signal) == 0 && signal != SIGUSR2) _exit(128 + signal);
    });
  }
  ~SignalWatcher() {
    pthread_kill(thread_.native_handle(), SIGUSR2);
    thread_.join();
  }
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  std::stop_token token() const { return stop_.get_token(); }

 private:
  sigset_t set_{};
  std::stop_source stop_;
  std::thread thread_;
};

// Keeps the resident memory small: one arena, and large blocks returned to the system when they are freed. To be called
// before the first thread starts.
void tune_allocator() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // fixed, because glibc would raise it after the first large block
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

// The command line. Values that need a conversion are stored here first.
struct Flags {
  OperatorOptions options;
  std::string kubeconfig;
  std::string metrics_peers;
  const CLI::Option* job_network_policy = nullptr;
  double progress_interval = 3;
  int startup_timeout = 60;
  int lease_duration = 15;
  int renew_deadline = 10;
  int retry_period = 2;
  std::string log_level = "info";
  std::string log_format = "json";
};

void add_cluster_flags(CLI::App& app, Flags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "Cluster to manage; default: $KUBECONFIG, the pod's service account, ~/.kube/config")
      ->type_name("FILE");
  app.add_option("--namespace", flags.options.namespaces, "Namespace to watch; may be repeated. Default: all")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option(
         "--cache-limit", flags.options.cache_limit,
         "Memory for the objects that the operator keeps, such as 96Mi: three eighths each for jobs and for pods. "
         "Beyond it, objects of the namespaces that have the most are ignored. The process needs 1.5 times as much, "
         "and 32Mi")
      ->default_str("48Mi")
      ->type_name("QUANTITY")
      ->check(CLI::Validator(CLI::Range(size_t{1} << 20, size_t{1} << 40)).description(""))
      ->transform(CLI::Validator(CLI::AsSizeValue(true)).description(""));
  app.add_flag("--watch-nodes", flags.options.watch_nodes,
               "Watch the nodes of the cluster, and request checkpoints of jobs whose nodes are about to be drained or "
               "removed, by their taints and conditions");
  app.add_option("--workers", flags.options.workers, "Maximum number of concurrent reconciles")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--trainer-image", flags.options.pod_defaults.image,
                 "Image of the jobs that set neither spec.image nor an image in their template")
      ->capture_default_str()
      ->type_name("IMAGE")
      ->check(CLI::Validator([](const std::string& image) { return image.empty() ? "must not be empty" : ""; }, ""));
  app.add_option(
         "--launcher-image", flags.options.launcher_image,
         "Image from which the pods of jobs with spec.launcher Auto copy the launcher; \"\": jobs that start now "
         "get none")
      ->default_val(oarlock::control::default_launcher_image())
      ->type_name("IMAGE");
  app.add_option("--pending-timeout", flags.options.pending_timeout_seconds,
                 "Seconds after which jobs whose pods cannot all be placed delete them, and try again later, unless "
                 "spec.scheduling.pendingTimeoutSeconds is set; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0, oarlock::api::rules::kMaxSeconds));
  app.add_option("--trainer-user", flags.options.pod_defaults.user,
                 "User and group ID of the pods that the operator builds; 0: those of the image, or as the cluster "
                 "assigns them (OpenShift)")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{2147483647}));
  flags.job_network_policy =
      app.add_option(
             "--job-network-policy", flags.metrics_peers,
             "Create a NetworkPolicy for each job: its pods accept connections from each other, and on their "
             "metrics ports from these peers, a JSON list of NetworkPolicyPeer that should include the operator")
          ->type_name("JSON");
  app.add_option("--progress-interval", flags.progress_interval, "Progress polling interval in seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--startup-timeout", flags.startup_timeout,
                 "Timeout for the first response of the API server in seconds; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
}

void add_server_flags(CLI::App& app, Flags& flags) {
  app.add_option("--listen-address", flags.options.listen_address,
                 "Address of the HTTP server; :: is every address, IPv4 and IPv6")
      ->capture_default_str();
  app.add_option("--port", flags.options.port, "Port of the HTTP server; 0: any free port")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--health-port", flags.options.health_port,
                 "Serve /healthz and /readyz on this port, too: plain HTTP on a separate thread, so that no client of "
                 "the other port delays a probe; 0: any free port")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535));
  app.add_flag("--protect-metrics", flags.options.protect_metrics,
               "Require an authorized bearer token for /metrics (by TokenReview and SubjectAccessReview)");
  app.add_option("--tls-certificate", flags.options.server_certificate,
                 "Serve HTTPS with this PEM file, which contains the certificate and its key")
      ->type_name("FILE");
}

void add_leader_election_flags(CLI::App& app, Flags& flags) {
  auto& election = flags.options.election;
  app.add_flag("--leader-elect", election.enabled,
               "Enable leader election, so that one of several operators is active and the others are standbys");
  app.add_option("--leader-elect-resource-namespace", election.lease.key.namespace_name,
                 "Namespace of the Lease; default: the pod's namespace, or the kubeconfig context's")
      ->type_name("NAME");
  app.add_option("--leader-elect-resource-name", election.lease.key.name, "Name of the Lease")
      ->default_val(oarlock::control::kLeaseName)
      ->type_name("NAME");
  app.add_option("--leader-elect-lease-duration", flags.lease_duration,
                 "Seconds after which a standby replaces a leader that does not renew the Lease")
      ->capture_default_str()
      ->check(CLI::Range(2, 3600));
  app.add_option("--leader-elect-renew-deadline", flags.renew_deadline,
                 "Seconds after which a leader that cannot renew the Lease exits; less than the lease duration")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  app.add_option("--leader-elect-retry-period", flags.retry_period,
                 "Seconds between two attempts to acquire or renew the Lease; less than the renew deadline")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
}

void add_log_flags(CLI::App& app, Flags& flags) {
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->type_name("LEVEL");
  app.add_option("--log-format", flags.log_format, "json or text")
      ->capture_default_str()
      ->check(CLI::IsMember({"json", "text"}))
      ->type_name("FORMAT");
}

int fail_usage(const std::string& message, ExitCode code = ExitCode::kUsage) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return to_int(code);
}

// Fills in the options that depend on the cluster or need a conversion.
void complete_options(const Flags& flags, oarlock::kube::ClusterConfig cluster, OperatorOptions& options) {
  using std::chrono::seconds;
  options.cluster = std::move(cluster);
  options.startup_timeout = seconds(flags.startup_timeout);
  options.progress.interval = std::chrono::milliseconds(static_cast<int64_t>(flags.progress_interval * 1000));
  options.profile_namespace = oarlock::kube::pod_namespace();
  options.instance = host_name();
  options.version = OARLOCK_VERSION;
  oarlock::kube::LeaseOptions& lease = options.election.lease;
  if (lease.key.namespace_name.empty())
    lease.key.namespace_name = options.cluster.namespace_name.empty() ? "default" : options.cluster.namespace_name;
  lease.identity = unique_identity(options.instance);
  lease.duration = seconds(flags.lease_duration);
  lease.renew_deadline = seconds(flags.renew_deadline);
  lease.retry_period = seconds(flags.retry_period);
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app("Watches TrainingJobs and manages their pods and Services.", "oarlock-operator");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(OARLOCK_VERSION));
  add_cluster_flags(app, flags);
  add_server_flags(app, flags);
  add_leader_election_flags(app, flags);
  add_log_flags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : to_int(ExitCode::kUsage);
  }
  if (!(flags.lease_duration > flags.renew_deadline && flags.renew_deadline > flags.retry_period)) {
    return fail_usage(
        fmt::format("--leader-elect-lease-duration ({}) must be greater than --leader-elect-renew-deadline ({}), which "
                    "must be greater than --leader-elect-retry-period ({})",
                    flags.lease_duration, flags.renew_deadline, flags.retry_period));
  }
  OperatorOptions& options = flags.options;
  if (flags.job_network_policy->count() > 0) {
    auto peers = oarlock::control::parse_metrics_peers(flags.metrics_peers);
    if (!peers) return fail_usage("--job-network-policy: " + peers.error().message, peers.error().code);
    options.job_network_policy = *std::move(peers);
  }
  const auto level = oarlock::log_level_from(flags.log_level);
  if (!level) return fail_usage("--log-level: " + level.error().message, level.error().code);
  const auto format = flags.log_format == "json" ? oarlock::LogFormat::kJson : oarlock::LogFormat::kText;
  const oarlock::Logger log(format, *level, "operator");
  const auto log_failure = [&](const oarlock::Error& error) {
    log.error(error.message, {{"exitCode", to_int(error.code)}});
    return to_int(error.code);
  };

  auto cluster = oarlock::kube::find_cluster_config(flags.kubeconfig, oarlock::kube::process_environment());
  if (!cluster) return log_failure(cluster.error());
  complete_options(flags, *std::move(cluster), options);

  const SignalWatcher signals;
  const auto result = oarlock::control::run_operator(options, log, signals.token());
  if (!result) return log_failure(result.error());
  log.info("stopped");
  return to_int(ExitCode::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto opened = oarlock::open_standard_streams(); !opened) return to_int(opened.error().code);
  tune_allocator();
  try {
    return oarlock::exit_code_after_flush("oarlock-operator", run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: unexpected: %s; this is a bug in oarlock-operator\n", error.what());
    return to_int(ExitCode::kSoftware);
  }
}

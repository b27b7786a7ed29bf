// oarlock-operator: flags, signals, and the exit code.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "common/standard_streams.h"
#include "operator/core/network_policy.h"
#include "operator/kube/config.h"
#include "operator/shell/memory.h"
#include "operator/shell/operator.h"

namespace {

using oarlock::ExitCode;
using oarlock::to_int;

constexpr char kExamples[] = R"(
examples:
  oarlock-operator                                     in a pod, with its service account
  oarlock-operator --kubeconfig ~/.kube/config --port 0 --log-format text
  oarlock-operator --namespace team-a --namespace team-b

The API server is reached through the proxy of the kubeconfig (proxy-url) or of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
It serves /healthz, /readyz and /metrics. SIGTERM and SIGINT end it in order; a second one at once.
Exit codes: 0 stopped; 64 wrong flags; 66 no kubeconfig; 69 no answer from the API server, or the port is in use;
75 not the leader any more; 78 a kubeconfig that cannot work.)";

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// Two starts on one host must not take each other's lease for their own.
std::string unique_identity(const std::string& host) {
  std::random_device random;
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, "_%08x%08x", random(), random());
  return host + suffix;
}

// Waits for SIGTERM or SIGINT on a thread of its own. After the first, the signals have their usual effect again.
class SignalWatcher {
 public:
  SignalWatcher() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGUSR2);                   // from the destructor
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);  // before any other thread, which inherit it
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

int run(int argc, char** argv) {
  std::string kubeconfig;
  std::string level_name = "info";
  std::string format_name = "json";
  oarlock::control::OperatorOptions options;
  int startup_timeout = 60;
  double progress_interval = 3;

  CLI::App app("Watches TrainingJobs and makes the pods and Services that they need.", "oarlock-operator");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(OARLOCK_VERSION));
  app.add_option("--kubeconfig", kubeconfig,
                 "Which cluster; default: $KUBECONFIG, the pod's service account, ~/.kube/config")
      ->type_name("FILE");
  app.add_option("--namespace", options.namespaces, "Look at this namespace only; may be repeated. Default: all")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--workers", options.workers, "Jobs worked on at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--listen-address", options.listen_address,
                 "Address of the HTTP server; :: is every address, of IPv4 and IPv6")
      ->capture_default_str();
  app.add_option("--port", options.port, "Port of the HTTP server; 0: a free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_flag("--protect-metrics", options.protect_metrics,
               "/metrics wants a bearer token whose user may get it (asked by TokenReview and SubjectAccessReview)");
  app.add_option("--tls-certificate", options.server_certificate,
                 "Serve HTTPS with this PEM file, which holds the certificate and its key")
      ->type_name("FILE");
  std::string metrics_peers;
  const CLI::Option* job_network_policy =
      app.add_option(
             "--job-network-policy", metrics_peers,
             "Create a NetworkPolicy for each job: its pods accept connections from each other, and on their "
             "metrics ports from these peers, a JSON list of NetworkPolicyPeer that should include the operator")
          ->type_name("JSON");
  app.add_option("--progress-interval", progress_interval, "Seconds between two questions to a running job's rank 0")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  int lease_seconds = 15;
  int renew_seconds = 10;
  int retry_seconds = 2;
  app.add_flag("--leader-elect", options.election.enabled,
               "Run several operators: one works, the others stand by and take over when it ends or is lost");
  app.add_option("--leader-elect-resource-namespace", options.election.lease.key.name_space,
                 "Where the Lease is; default: the pod's namespace, or the kubeconfig context's")
      ->type_name("NAME");
  app.add_option("--leader-elect-resource-name", options.election.lease.key.name, "Name of the Lease")
      ->default_val(oarlock::control::kLeaseName)
      ->type_name("NAME");
  app.add_option("--leader-elect-lease-duration", lease_seconds,
                 "Seconds after which the others take over from a leader that is silent")
      ->capture_default_str()
      ->check(CLI::Range(2, 3600));
  app.add_option("--leader-elect-renew-deadline", renew_seconds,
                 "Seconds after which a leader that cannot renew gives up; less than the duration")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  app.add_option("--leader-elect-retry-period", retry_seconds,
                 "Seconds between two tries; less than the renew deadline")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  app.add_option("--startup-timeout", startup_timeout,
                 "Seconds to wait for the first answer of the API server before giving up; 0: for ever")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  app.add_option("--log-level", level_name, "debug, info, warn or error")->capture_default_str()->type_name("LEVEL");
  app.add_option("--log-format", format_name, "json or text")
      ->capture_default_str()
      ->check(CLI::IsMember({"json", "text"}))
      ->type_name("FORMAT");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : to_int(ExitCode::kUsage);
  }

  if (!(lease_seconds > renew_seconds && renew_seconds > retry_seconds)) {
    std::fprintf(stderr,
                 "error: --leader-elect-lease-duration (%d) must be more than --leader-elect-renew-deadline (%d), "
                 "and that more than --leader-elect-retry-period (%d)\n",
                 lease_seconds, renew_seconds, retry_seconds);
    return to_int(ExitCode::kUsage);
  }
  if (job_network_policy->count() > 0) {
    auto peers = oarlock::control::read_metrics_peers(metrics_peers);
    if (!peers) {
      std::fprintf(stderr, "error: --job-network-policy: %s\n", peers.error().message.c_str());
      return to_int(peers.error().code);
    }
    options.job_network_policy = *std::move(peers);
  }
  const auto level = oarlock::log_level_from(level_name);
  if (!level) {
    std::fprintf(stderr, "error: --log-level: %s\n", level.error().message.c_str());
    return to_int(level.error().code);
  }
  const oarlock::Logger log(format_name == "json" ? oarlock::LogFormat::kJson : oarlock::LogFormat::kText, *level,
                            "operator");
  const auto give_up = [&](const oarlock::Error& error) {
    log.error(error.message, {{"exitCode", to_int(error.code)}});
    return to_int(error.code);
  };

  const auto cluster = oarlock::kube::find_cluster_config(kubeconfig, oarlock::kube::process_environment());
  if (!cluster) return give_up(cluster.error());
  options.cluster = *cluster;
  options.startup_timeout = std::chrono::seconds(startup_timeout);
  options.progress.interval = std::chrono::milliseconds(static_cast<int64_t>(progress_interval * 1000));
  options.instance = host_name();
  oarlock::kube::LeaseOptions& lease = options.election.lease;
  if (lease.key.name_space.empty())
    lease.key.name_space = cluster->name_space.empty() ? "default" : cluster->name_space;
  lease.identity = unique_identity(options.instance);
  lease.duration = std::chrono::seconds(lease_seconds);
  lease.renew_deadline = std::chrono::seconds(renew_seconds);
  lease.retry_period = std::chrono::seconds(retry_seconds);
  options.version = OARLOCK_VERSION;

  const SignalWatcher signals;
  const auto result = oarlock::control::run_operator(options, log, signals.token());
  if (!result) return give_up(result.error());
  log.info("stopped");
  return to_int(ExitCode::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto opened = oarlock::open_standard_streams(); !opened) return to_int(opened.error().code);
  oarlock::control::tune_allocator();
  try {
    return oarlock::exit_code_after_flush("oarlock-operator", run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: unexpected: %s; this is a bug in oarlock-operator\n", error.what());
    return to_int(ExitCode::kSoftware);
  }
}

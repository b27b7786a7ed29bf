#include "operator/shell/operator.h"

#include <fmt/format.h>
#include <malloc.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/random.h"
#include "common/status_macros.h"
#include "http/client/tls_context.h"
#include "http/client/transport.h"
#include "http/metrics.h"
#include "http/server.h"
#include "kube/client/client.h"
#include "operator/core/reconcile.h"
#include "operator/shell/authorization_filter.h"
#include "operator/shell/cache_health.h"
#include "operator/shell/controller.h"
#include "operator/shell/job_metrics.h"
#include "operator/shell/unreadable_log.h"

namespace oarlock::control {
namespace {

// Kubernetes kills a pod after a grace period of 30 s, so a call must end well before.
constexpr http::Milliseconds kCallDeadline{10000};
// For each of the two reviews of a token. Prometheus cancels a scrape after 10 s.
constexpr http::Milliseconds kReviewDeadline{3000};
// A worker that completes no API call for this long hangs, and only a restart helps. The plan for a job of thousands of
// nodes may take longer, but each completed call counts as progress.
constexpr kube::Seconds kHungWorker{300};
// The pods of a job are created, scheduled, started and become ready one after the other. Their changes are batched
// into one reconcile and one status write, as Kubernetes' Job controller does (syncJobBatchPeriod, 1 s).
constexpr auto kBatchPeriod = std::chrono::milliseconds(500);
constexpr auto kIdlePollInterval = std::chrono::seconds(5);
constexpr auto kSyncPollInterval = std::chrono::milliseconds(50);

std::string host_of(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

// Connects to pods with plain HTTP, without credentials.
Connect connect_to_pods(const std::string& user_agent) {
  return [user_agent](const std::string& url) -> std::shared_ptr<http::Transport> {
    http::TransportOptions options;
    options.server = url;
    options.user_agent = user_agent;
    auto transport = http::create_transport(std::move(options));
    return transport ? std::shared_ptr<http::Transport>(std::move(*transport)) : nullptr;
  };
}

// Returns the current resource version of the jobs, read from the API server's store instead of its cache; empty if the
// call fails.
std::string current_version(const kube::Client& client, const std::vector<std::string>& namespaces,
                            const std::stop_token& stop) {
  const kube::Selection anywhere{
      .namespace_name = namespaces.empty() ? "" : namespaces.front(), .label_selector = "", .field_selector = ""};
  const auto jobs = client.list(resource_of(ResourceKind::kJob), anywhere,
                                {.resource_version = "", .limit = 1, .continue_token = ""}, stop);
  return jobs ? read_object_metadata(*jobs).resource_version : "";
}

// A probe's route. Its functions must not block, because they run on the server's I/O thread. `failure` returns an
// empty string if the probe succeeds, and `warning` a line for the response of a successful probe, or an empty string.
HttpRoute probe_route(std::function<std::string()> failure, std::function<std::string()> warning) {
  return {[failure = std::move(failure), warning = std::move(warning)](const std::string&) -> HttpResponse {
            const std::string reason = failure();
            const std::string note = reason.empty() ? warning() : "";
            if (reason.empty()) return {.status = 200, .body = note.empty() ? "ok\n" : "ok\n" + note + "\n"};
            return {.status = 503, .body = reason + "\n"};
          },
          HandlerKind::kImmediate};
}

class Operator {
 public:
  Operator(const OperatorOptions& options, std::shared_ptr<http::Transport> network, const std::string& user_agent,
           std::shared_ptr<const Clock> clock, const Logger& log);

  Result<void> run(const std::stop_token& stop);

 private:
  CacheHooks cache_hooks();
  Controller::Dependencies controller_dependencies();
  HttpRoutes probes();
  HttpRoutes routes();
  Result<void> start_server();
  Result<void> wait_for_cache_sync(const std::stop_token& stop);
  bool lead(const std::stop_token& stop);
  void release_idle_memory(const std::stop_token& stop);
  void shut_down();

  const OperatorOptions& options_;
  const std::shared_ptr<const Clock> clock_;
  const Logger log_;
  const std::shared_ptr<kube::RealSleeper> sleeper_ = std::make_shared<kube::RealSleeper>();
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(registry_);
  const std::shared_ptr<InstrumentedTransport> transport_;
  const kube::Client reader_{transport_, kCallDeadline};  // independent of the leadership
  std::atomic<bool> is_ready_ = false;

  // In the order of their dependencies; destroyed, and thereby stopped, in the opposite order.
  kube::WorkQueue queue_;
  CacheHealth health_;
  UnreadableLog unreadable_log_;
  Cache cache_;
  ProgressPoller poller_;
  StallProbe stalls_;
  AuthorizationFilter authorization_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpServer> health_server_;  // null unless OperatorOptions::health_port is set
  LeaderElection election_;
  const kube::Client writer_{election_.leader_transport(), kCallDeadline, kube::ResponseContent::kMetadata};
  const std::shared_ptr<OwnWrites> own_writes_ = std::make_shared<OwnWrites>(clock_);
  const std::shared_ptr<EventRecorder> events_;
  Controller controller_;
};

Operator::Operator(const OperatorOptions& options, std::shared_ptr<http::Transport> network,
                   const std::string& user_agent, std::shared_ptr<const Clock> clock, const Logger& log)
    : options_(options),
      clock_(std::move(clock)),
      log_(log),
      transport_(std::make_shared<InstrumentedTransport>(std::move(network), host_of(options.cluster.server), metrics_,
                                                         clock_)),
      queue_({}, clock_, metrics_.get()),
      health_(options.cluster.server, clock_, log),
      unreadable_log_(clock_, log),
      cache_({.namespaces = options.namespaces,
              .seed = random_number(),
              .limit = options.cache_limit,
              .network_policies = options.job_network_policy.has_value(),
              .nodes = options.watch_nodes,
              .profile_namespace = options.profile_namespace},
             cache_hooks(), transport_, clock_, sleeper_),
      poller_(
          options.progress, connect_to_pods(user_agent), [this](const kube::ObjectKey& job) { queue_.add(job); },
          clock_),
      stalls_(
          {}, connect_to_pods(user_agent), [this](const kube::ObjectKey& job) { queue_.add(job); }, clock_),
      authorization_(kube::Client(transport_, kReviewDeadline), clock_),
      election_(options.election, transport_, metrics_, clock_, sleeper_, random_number(), log),
      events_(std::make_shared<EventRecorder>(
          writer_, EventSource{.instance = options.instance}, clock_, log,
          [metrics = metrics_](const char* reason) { metrics->count_dropped_event(reason); })),
      controller_(controller_dependencies(), log) {}

CacheHooks Operator::cache_hooks() {
  const auto record_success = [this](const WatchScope& scope) {
    metrics_->record_cache_success(resource_of(scope.kind).to_string(), health_.failures(scope.kind), clock_->now());
  };
  CacheHooks hooks;
  hooks.on_change = [this](const kube::ObjectKey& job, Urgency urgency) {
    if (urgency == Urgency::kImmediate) {
      queue_.add(job);
    } else {
      queue_.add_after(job, kBatchPeriod);
    }
  };
  hooks.on_error = [this](const WatchScope& scope, const kube::ApiError& error) {
    health_.record_failure(scope, error);
    metrics_->set_cache_failures(resource_of(scope.kind).to_string(), health_.failures(scope.kind));
  };
  hooks.on_listing = [this](const WatchScope& scope) { health_.record_listing(scope); };
  hooks.on_synced = [this, record_success](const WatchScope& scope, size_t objects) {
    health_.record_list(scope, objects);
    record_success(scope);
    if (is_ready_) ::malloc_trim(0);  // after a relist; the memory of the start is returned once, in run()
  };
  hooks.on_watching = [this, record_success](const WatchScope& scope) {
    health_.record_watch(scope);
    record_success(scope);
  };
  hooks.on_incomplete = [this](const WatchScope& scope, const std::set<std::string>& namespaces) {
    health_.record_incomplete(scope, namespaces);
    metrics_->set_incomplete_namespaces(resource_of(scope.kind).to_string(), health_.incomplete_namespaces(scope.kind));
  };
  hooks.on_unreadable = [this](ResourceKind kind, const kube::ObjectKey& key, const Error& error) {
    metrics_->count_unreadable_object(resource_of(kind).to_string());
    unreadable_log_.record(resource_of(kind).to_string(), key, error);
  };
  return hooks;
}

Controller::Dependencies Operator::controller_dependencies() {
  return {.cache = &cache_,
          .poller = &poller_,
          .stalls = &stalls_,
          .queue = &queue_,
          .own_writes = own_writes_,
          .executor = std::make_shared<Executor>(writer_, own_writes_, events_, log_, options_.pod_defaults, clock_),
          .client = reader_,
          .metrics = metrics_,
          .clock = clock_,
          .reconciler = [](const Observed& observed) { return reconcile(observed); },
          .metrics_peers = options_.job_network_policy,
          .launcher_image = options_.launcher_image,
          .pending_timeout_seconds = options_.pending_timeout_seconds};
}

HttpRoutes Operator::probes() {
  const auto liveness = [this]() -> std::string {
    return queue_.longest_running() < kHungWorker ? ""
                                                  : "a worker has completed no API call for more than five minutes";
  };
  const auto readiness = [this]() -> std::string {
    if (is_ready_) return health_.stale_reason();
    const std::string failure = health_.public_failure();
    return failure.empty() ? "the caches have not synced yet" : failure;
  };
  return {{"/healthz", probe_route(liveness, [] { return std::string(); })},
          {"/readyz", probe_route(readiness, [this] { return health_.incomplete_reason(); })}};
}

HttpRoutes Operator::routes() {
  JobMetrics job_metrics({.jobs = [this] { return cache_.jobs(); },
                          .unfinished_work = [this] { return queue_.unfinished_work(); },
                          .longest_work = [this] { return queue_.longest_running(); },
                          .out_of_date = [this](ResourceKind kind) { return health_.out_of_date(kind); }});
  HttpRoutes routes = probes();
  routes.emplace("/metrics", metrics_handler(registry_, std::bind_front(&JobMetrics::collect, std::move(job_metrics))));
  return routes;
}

Result<void> Operator::start_server() {
  HttpServerOptions server_options{.certificate = options_.server_certificate, .refuse = {}};
  if (!options_.server_certificate.empty()) {
    const http::Pem file{.text = "", .file = options_.server_certificate};
    RETURN_IF_ERROR(http::check_key_pair(file, file));
    server_options.on_unusable_certificate = [this](const std::string& reason) {
      log_.warn("the renewed certificate cannot be used; the previous one is kept",
                {{"file", options_.server_certificate}, {"reason", reason}});
    };
  }
  if (options_.protect_metrics) {
    if (options_.server_certificate.empty())
      log_.warn("bearer tokens for /metrics are sent unencrypted; set --tls-certificate");
    server_options.refuse = [this](const std::string& path, const std::string& authorization, bool is_known_address) {
      return path == "/metrics" ? authorization_.check(path, authorization, is_known_address) : std::nullopt;
    };
  }
  ASSIGN_OR_RETURN(server_, HttpServer::start(options_.listen_address, options_.port, routes(), server_options));
  log_.info("listening", {{"address", options_.listen_address}, {"port", server_->port()}});
  if (!options_.health_port) return {};
  ASSIGN_OR_RETURN(health_server_, HttpServer::start(options_.listen_address, *options_.health_port, probes()));
  log_.info("listening for probes", {{"address", options_.listen_address}, {"port", health_server_->port()}});
  return {};
}

Result<void> Operator::run(const std::stop_token& stop) {
  RETURN_IF_ERROR(start_server());
  const SteadyTime started = clock_->steady();
  log_.info("connecting", {{"server", options_.cluster.server}, {"config", options_.cluster.source}});
  cache_.start();
  if (auto synced = wait_for_cache_sync(stop); !synced) {
    authorization_.stop();  // the server's destructor waits for a review
    return synced;
  }
  bool is_leader = true;
  if (!stop.stop_requested()) {
    is_ready_ = true;  // a standby is ready too, because its cache is complete
    log_.info("ready", {{"seconds", std::chrono::duration<double>(clock_->steady() - started).count()},
                        {"workers", options_.workers},
                        {"jobs", cache_.jobs().size()},
                        {"pods", cache_.pod_count()}});
    ::malloc_trim(0);
    const std::jthread idle([this](const std::stop_token& end) { release_idle_memory(end); });
    is_leader = lead(stop);
  }
  shut_down();
  if (!is_leader) return fail(ExitCode::kTempFail, "leadership lost; restart the operator to continue as a standby");
  return {};
}

Result<void> Operator::wait_for_cache_sync(const std::stop_token& stop) {
  const SteadyTime started = clock_->steady();
  while (!cache_.has_synced() && sleeper_->sleep(kSyncPollInterval, stop)) {
    const bool has_limit = options_.startup_timeout.count() > 0 && !transport_->has_responded();
    if (has_limit && clock_->steady() - started > options_.startup_timeout) {
      return fail(ExitCode::kUnavailable,
                  fmt::format("no response from the API server within {} s (--startup-timeout): {}",
                              options_.startup_timeout.count(), health_.current_failure()));
    }
  }
  return {};
}

// Reconciles jobs while this process is the leader. Returns false if the leadership was lost.
bool Operator::lead(const std::stop_token& stop) {
  if (!election_.acquire(stop)) return true;
  poller_.start();
  stalls_.start();
  events_->start();
  controller_.start(options_.workers, current_version(reader_, options_.namespaces, stop));
  return election_.hold(stop);
}

// Returns the memory that a burst of work has left: connections to the API server, and the pages that they occupied.
void Operator::release_idle_memory(const std::stop_token& stop) {
  while (sleeper_->sleep(kIdlePollInterval, stop)) {
    if (transport_->close_idle_connections() > 0) ::malloc_trim(0);
    unreadable_log_.flush();
  }
}

void Operator::shut_down() {
  is_ready_ = false;
  log_.info("stopping");
  authorization_.stop();
  controller_.stop();
  stalls_.stop();
  poller_.stop();
  events_->stop();
  election_.release();
  cache_.stop();
}

}  // namespace

Result<void> run_operator(const OperatorOptions& options, const Logger& log, const std::stop_token& stop) {
  const auto clock = std::make_shared<const RealClock>();
  const std::string user_agent = "oarlock-operator/" + options.version;
  auto network = http::create_transport(kube::transport_options(options.cluster, user_agent, clock, stop));
  if (!network) {
    return fail(network.error().code, fmt::format("{}: {}", options.cluster.source, network.error().message));
  }
  return Operator(options, *std::move(network), user_agent, clock, log).run(stop);
}

}  // namespace oarlock::control

#include "operator/shell/operator.h"

#include <fmt/format.h>
#include <prometheus/registry.h>

#include <atomic>
#include <random>

#include "common/http/metrics.h"
#include "operator/core/reconcile.h"
#include "operator/kube/client.h"
#include "operator/kube/http/create_transport.h"
#include "operator/kube/tls_context.h"
#include "operator/shell/access_guard.h"
#include "operator/shell/controller.h"
#include "operator/shell/memory.h"
#include "operator/shell/problem_log.h"
#include "operator/shell/server.h"

namespace oarlock::control {
namespace {

// Kubernetes waits 30 s before it kills, so a call must end well before.
constexpr kube::Milliseconds kCallDeadline{10000};
// Of each of the two calls that decide whether a token may read /metrics. Prometheus gives up a scrape after 10 s.
constexpr kube::Milliseconds kReviewDeadline{3000};
// A worker that completes no call for this long hangs, and only a restart helps. The plan for a job of thousands of
// nodes may take longer: each call that is done counts as progress.
constexpr kube::Seconds kHungWorker{300};
// A job's pods are made, scheduled, run and become ready one after the other: one look and one status for several of
// them, as Kubernetes' Job controller does it (syncJobBatchPeriod, 1 s).
constexpr auto kGather = std::chrono::milliseconds(500);
constexpr auto kLook = std::chrono::milliseconds(50);

std::string host_of(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

// Of the pods: plain HTTP, no credentials.
ProgressPoller::Connect connect_to_pods(const std::string& user_agent) {
  return [user_agent](const std::string& url) -> std::shared_ptr<kube::Transport> {
    kube::TransportOptions options;
    options.server = url;
    options.user_agent = user_agent;
    auto transport = kube::create_transport(std::move(options));
    return transport ? std::shared_ptr<kube::Transport>(std::move(*transport)) : nullptr;
  };
}

// The version of the jobs that the API server has now, by its store and not by its cache; empty: it does not say.
std::string present_version(const kube::Client& client, const std::vector<std::string>& namespaces) {
  const kube::Selection anywhere{
      .name_space = namespaces.empty() ? "" : namespaces.front(), .label_selector = "", .field_selector = ""};
  const auto jobs =
      client.list(resource_of(Kind::kJob), anywhere, {.resource_version = "", .limit = 1, .continue_token = ""}, {});
  return jobs ? read_written(*jobs).resource_version : "";
}

}  // namespace

Result<void> run_operator(const OperatorOptions& options, const Logger& log, const std::stop_token& stop) {
  const auto clock = std::make_shared<const RealClock>();
  const auto sleeper = std::make_shared<kube::RealSleeper>();
  const std::string user_agent = "oarlock-operator/" + options.version;

  auto network = kube::create_transport(kube::transport_options(options.cluster, user_agent, clock));
  if (!network) {
    return fail(network.error().code, fmt::format("{}: {}", options.cluster.source, network.error().message));
  }
  const auto registry = std::make_shared<prometheus::Registry>();
  const auto metrics = std::make_shared<Metrics>(registry);
  const auto transport = std::make_shared<MeteredTransport>(std::shared_ptr<kube::Transport>(std::move(*network)),
                                                            host_of(options.cluster.server), metrics, clock);

  // Declared in the order of need; destroyed, and so stopped, in the opposite one.
  kube::WorkQueue queue({}, clock, metrics.get());
  ProblemLog problems(options.cluster.server, clock, log);
  std::atomic<bool> ready = false;
  CacheHooks hooks;
  hooks.on_change = [&](const kube::ObjectKey& job, Urgency urgency) {
    if (urgency == Urgency::kNow) {
      queue.add(job);
    } else {
      queue.add_after(job, kGather, urgency == Urgency::kLater ? kube::Priority::kLow : kube::Priority::kNormal);
    }
  };
  hooks.on_problem = [&](const Followed& followed, const kube::ApiError& error) {
    problems.problem(followed, error);
    metrics->cache_failures(resource_of(followed.kind).to_string(), problems.failures(followed.kind));
  };
  const auto cache_works = [&](const Followed& followed) {
    metrics->cache_works(resource_of(followed.kind).to_string(), problems.failures(followed.kind), clock->now());
  };
  hooks.on_synced = [&](const Followed& followed, size_t objects) {
    problems.works(followed, objects);
    cache_works(followed);
    if (ready) trim_heap();  // after a relist; what the start needed is returned when all of it is done
  };
  hooks.on_watching = [&](const Followed& followed) {
    problems.watches(followed);
    cache_works(followed);
  };
  hooks.on_unreadable = [&](Kind kind, const kube::ObjectKey& key, const Error& error) {
    metrics->unreadable_object(resource_of(kind).to_string());
    log.warn("an object cannot be read and is ignored", {{"resource", resource_of(kind).to_string()},
                                                         {"namespace", key.name_space},
                                                         {"name", key.name},
                                                         {"error", error.message}});
  };
  Cache cache({.namespaces = options.namespaces,
               .seed = std::random_device()(),
               .network_policies = options.job_network_policy.has_value()},
              std::move(hooks), transport, clock, sleeper);
  ProgressPoller poller(
      options.progress, connect_to_pods(user_agent), [&](const kube::ObjectKey& job) { queue.add(job); }, clock);

  ServerSources sources;
  sources.why_not_healthy = [&]() -> std::string {
    return queue.longest() < kHungWorker ? ""
                                         : "a worker has completed no API call for one job for more than five minutes";
  };
  sources.why_not_ready = [&]() -> std::string {
    if (ready) return problems.why_stale();
    const std::string problem = problems.present();
    return problem.empty() ? "the caches are not filled yet" : problem;
  };
  sources.metrics = {
      registry, std::make_shared<JobMetrics>(JobMetrics::Source{.jobs = [&] { return cache.jobs(); },
                                                                .unfinished_work = [&] { return queue.unfinished(); },
                                                                .longest_work = [&] { return queue.longest(); }})};
  if (!options.server_certificate.empty()) {
    const kube::Pem file{.text = "", .file = options.server_certificate};
    if (const auto good = kube::check_key_pair(file, file); !good) return tl::make_unexpected(good.error());
  }
  // Reviews change nothing: they are asked whoever leads.
  const kube::Client reader(transport, kCallDeadline);
  AccessGuard guard(kube::Client(transport, kReviewDeadline), clock);
  HttpServerOptions server_options{.certificate = options.server_certificate, .refuse = {}};
  if (options.protect_metrics) {
    if (options.server_certificate.empty())
      log.warn("bearer tokens for /metrics are sent unencrypted; set --tls-certificate");
    server_options.refuse = [&guard](const std::string& path, const std::string& authorization) {
      return path == "/metrics" ? guard.refuse(path, authorization) : std::nullopt;
    };
  }
  auto server =
      HttpServer::start(options.listen_address, options.port, operator_routes(std::move(sources)), server_options);
  if (!server) return tl::make_unexpected(server.error());
  log.info("listening", {{"address", options.listen_address}, {"port", (*server)->port()}});

  const auto own_writes = std::make_shared<OwnWrites>(clock);
  Election election(options.election, transport, metrics, clock, sleeper, std::random_device()(), log);
  const kube::Client client(election.writing_transport(), kCallDeadline, kube::Answers::kMetadata);
  const auto events =
      std::make_shared<EventRecorder>(client, EventSource{.instance = options.instance}, clock, log,
                                      [metrics](const char* reason) { metrics->event_dropped(reason); });
  const auto executor = std::make_shared<Executor>(client, own_writes, events, log);
  Controller controller({.cache = &cache,
                         .poller = &poller,
                         .queue = &queue,
                         .own_writes = own_writes,
                         .executor = executor,
                         .client = reader,
                         .metrics = metrics,
                         .clock = clock,
                         .decide = [](const Observed& observed) { return reconcile(observed); },
                         .metrics_peers = options.job_network_policy},
                        log);

  const SteadyTime started = clock->steady();
  const auto age = [&] { return std::chrono::duration<double>(clock->steady() - started); };
  log.info("connecting", {{"server", options.cluster.server}, {"config", options.cluster.source}});
  cache.start();
  while (!cache.synced() && sleeper->sleep(kLook, stop)) {
    if (options.startup_timeout.count() > 0 && age() > options.startup_timeout && !transport->has_answered()) {
      return fail(ExitCode::kUnavailable,
                  fmt::format("no answer from the API server within {} s (--startup-timeout): {}",
                              options.startup_timeout.count(), problems.present()));
    }
  }
  bool lost = false;
  if (!stop.stop_requested()) {
    ready = true;  // one that stands by is ready too: its cache is full
    log.info("ready", {{"seconds", age().count()},
                       {"workers", options.workers},
                       {"jobs", cache.jobs().size()},
                       {"pods", cache.pods()}});
    trim_heap();
    if (election.acquire(stop)) {
      poller.start();
      events->start();
      controller.start(options.workers, present_version(reader, options.namespaces));
      lost = !election.hold(stop);
    }
  }

  ready = false;
  log.info("stopping");
  controller.stop();
  poller.stop();
  events->stop();
  election.release();
  cache.stop();
  if (lost) return fail(ExitCode::kTempFail, "this operator is not the leader any more: start it again to stand by");
  return {};
}

}  // namespace oarlock::control
